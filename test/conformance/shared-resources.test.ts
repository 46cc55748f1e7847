/** Resources that streams of a real host may share or not (RFC 5042, RFC 4296), against raw peers. */
import { afterEach, describe, expect, it } from 'vitest';
import { AsyncEventType, QPState, WCStatus } from '#contract/verbs/enums';
import { Consumer, hex32, hex64 } from '../support/consumer.ts';
import { closeFacing, Facing, facingNode, settled } from '../support/facing.ts';
import { quiet, until } from '../support/patience.ts';

afterEach(closeFacing);

function send(msn: number, payload = '41'): string {
  return `4143 00000000 00000000 ${hex32(msn)} 00000000 ${payload}`;
}

describe('an STag', () => {
  it('is valid on every stream of its protection domain, which may hold a single stream [SEC-6.1.1-01, DDP-8.2-01]', async () => {
    const node = facingNode();
    const first = await Facing.accept(node, new Consumer(node));
    const second = await Facing.accept(node, new Consumer(node, { pd: first.consumer.pd }));
    const alone = await Facing.accept(node, new Consumer(node));
    const shared = first.consumer.register(8);
    first.say(`c140 ${shared.stag} ${hex64(0x1000)} 41`);
    second.say(`c140 ${shared.stag} ${hex64(0x1001)} 42`);
    await until('both Writes', () => shared.bytes[0] === 0x41 && shared.bytes[1] === 0x42);
    alone.say(`c140 ${shared.stag} ${hex64(0x1002)} 43`);
    expect((await alone.terminate()).slice(0, 4)).toBe('1102');
    expect(shared.bytes[2]).toBe(0);
  });

  it('names the same memory over every address of the host [ARCH-2.1.3-03]', async () => {
    const node = facingNode();
    const consumer = new Consumer(node);
    const region = consumer.register(8);
    const addresses = ['127.0.0.1', '127.0.0.2', '127.0.0.3'];
    for (const [at, address] of addresses.entries()) {
      const sharing = new Consumer(node, { pd: consumer.pd });
      const facing = await Facing.accept(node, sharing, { address });
      facing.say(`c140 ${region.stag} ${hex64(0x1000 + at)} 0${at + 1}`);
    }
    await until('the Writes', () => region.bytes[2] === 3);
    expect([...region.bytes]).toEqual([1, 2, 3, 0, 0, 0, 0, 0]);
  });
});

describe('a shared receive queue', () => {
  it('reports which queue pair consumes a receive, and when few are left [SEC-6.4.3.1-01]', async () => {
    const node = facingNode();
    const { nic } = node.device();
    const pd = nic.allocPD();
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    const srq = nic.createSRQ(pd, { maxWr: 16, maxSge: 4, srqLimit: 4, ring, tag: 'srq' });
    const greedy = await Facing.accept(node, new Consumer(node, { pd, srq }));
    const modest = await Facing.accept(node, new Consumer(node, { pd, srq }));
    greedy.consumer.postReceive(8, 8);
    modest.say(send(1));
    greedy.say(...[1, 2, 3].map((msn) => send(msn)));
    expect(await modest.consumer.completions(1)).toHaveLength(1);
    // Each completes to the CQ of its queue pair; three of four belong to the greedy one.
    expect(await greedy.consumer.completions(3)).toHaveLength(3);
    expect(node.asyncEvents).toEqual([]);
    greedy.say(send(4));
    await until('the limit event', () => node.asyncEvents.length > 0);
    expect(node.asyncEvents).toMatchObject([
      { event: AsyncEventType.srqLimitReached, object: srq },
    ]);
    // The countermeasure: one is closed, the other is unaffected.
    node.host.cm.disconnect(greedy.id);
    modest.say(send(2));
    expect(await modest.consumer.completions(1)).toHaveLength(1);
  });
});

describe('a completion queue that overflows', () => {
  it('harms no stream that does not use it [SEC-6.4.6-01]', async () => {
    const node = facingNode();
    const full = await Facing.accept(node, new Consumer(node, { cqe: 2 }));
    const other = await Facing.accept(node, new Consumer(node));
    full.consumer.postReceive(8, 8);
    full.say(...[1, 2, 3, 4, 5, 6].map((msn) => send(msn)));
    await until('the overflow', () =>
      node.asyncEvents.some(({ event }) => event === AsyncEventType.cqErr),
    );
    other.consumer.postReceive(8);
    other.say(send(1, '42'));
    expect(await other.consumer.payloads(1)).toEqual(['42']);
    other.consumer.send('43');
    expect(await other.receive(1)).toHaveLength(1);
    expect(other.consumer.qp.state).toBe(QPState.RTS);
    expect(node.asyncEvents.map(({ object }) => object)).not.toContain(other.consumer.qp);
  });
});

describe('a stream', () => {
  it('that is idle stays up [SEC-5.4.5-02]', async () => {
    const facing = await Facing.responder();
    // Longer than any timeout of this host.
    await quiet(1500);
    expect(facing.consumer.qp.state).toBe(QPState.RTS);
    expect(await facing.hearAll()).toEqual([]);
    facing.consumer.postReceive(8);
    facing.say(send(1));
    expect(await facing.consumer.payloads(1)).toEqual(['41']);
    facing.consumer.send('42');
    expect(await facing.receive(1)).toHaveLength(1);
    expect(await facing.consumer.statuses(1)).toEqual([WCStatus.success]);
    await settled();
  });
});
