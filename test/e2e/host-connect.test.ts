/** Hosts that connect, accept, reject, disconnect and destroy, over real sockets of loopback. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WC } from '#contract/verbs/completion';
import { CMEventType, QPState, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { HostId } from '#daemon/host/host-id';
import type { RnicHostOptions } from '#daemon/host/rnic-host';
import { quiet, until } from '../support/patience.ts';
import { type Channel, connectPair, NO_WISHES, RnicNode } from '../support/rnic-node.ts';

const nodes: RnicNode[] = [];

function node(options: Partial<RnicHostOptions> = {}): RnicNode {
  const made = new RnicNode(options);
  nodes.push(made);
  return made;
}

afterEach(() => Promise.all(nodes.splice(0).map(({ host }) => host.close())));

/** Answers the next request to a listener, and waits until the initiator is connected. */
async function expectAccepted(listener: HostId, initiator: HostId): Promise<void> {
  to.host.cm.accept((await to.event(listener)).id, to.channel().qp, NO_WISHES);
  expect((await from.event(initiator)).type).toBe(CMEventType.established);
}

/** One completion, with success. */
async function expectDone(channel: Channel, outcome: Partial<WC> = {}): Promise<void> {
  expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success, ...outcome }]);
}

const fails = (code: string) => expect.objectContaining({ code });

/** One Send from each side to the other arrives as it was sent. */
async function exchange(active: Channel, passive: Channel): Promise<void> {
  passive.receive(0, 4096);
  active.buffer.set([1, 2, 3, 4, 5]);
  active.send(0, 5);
  await expectDone(passive, { opcode: WCOpcode.recv, byteLen: 5 });
  expect([...passive.buffer.subarray(0, 6)]).toEqual([1, 2, 3, 4, 5, 0]);
  await expectDone(active);
  active.receive(100, 100);
  passive.send(0, 3);
  await expectDone(active, { byteLen: 3 });
  await expectDone(passive);
}

let from: RnicNode;
let to: RnicNode;

beforeEach(() => {
  from = node();
  to = node();
});

describe('connect and accept', () => {
  it('establishes both sides and moves a Send each way', async () => {
    const { active, passive } = await connectPair(node(), node());
    expect([active.qp.state, passive.qp.state]).toEqual([QPState.RTS, QPState.RTS]);
    await exchange(active, passive);
  });

  it('allows the responder to send first after the ready-to-receive frame', async () => {
    const { active, passive } = await connectPair(node(), node());
    active.receive(0, 64);
    passive.send(0, 8);
    await expectDone(active, { byteLen: 8 });
  });

  it('moves a Write and a Read of a megabyte', async () => {
    const { active, passive } = await connectPair(node(), node());
    const { length } = active.buffer;
    for (let at = 0; at < length; at++) active.buffer[at] = (at * 7) & 0xff;
    const sgList = [{ addr: active.address(), length, lkey: active.mr.lkey }];
    const remote = { remoteAddr: passive.address(), rkey: passive.mr.rkey };
    active.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...remote });
    await expectDone(active);
    const written = active.buffer.slice();
    active.buffer.fill(0);
    active.postSend({ opcode: WROpcode.rdmaRead, sgList, ...remote });
    await expectDone(active);
    expect(Buffer.compare(active.buffer, written)).toBe(0);
  });

  it('private data and depths reach the other consumer [MPA-7.1.1-24, EMPA-9.1-03]', async () => {
    const listener = to.listen();
    const active = from.channel();
    const request = Uint8Array.from({ length: 508 }, (_, index) => index & 0xff);
    const wishes = { privateData: request, initiatorDepth: 5, responderResources: 3 };
    const id = await from.connect(active, listener.at, wishes);
    const asked = await to.event(listener.id);
    expect(asked.privateData).toEqual(request);
    // IRD and ORD are swapped: the initiator's ORD is this side's IRD.
    expect([asked.initiatorDepth, asked.responderResources]).toEqual([3, 5]);
    expect(asked.id.tag).toBe(listener.id.tag);
    const reply = Uint8Array.of(9, 8, 7);
    const answer = { ...NO_WISHES, privateData: reply, initiatorDepth: 2, responderResources: 4 };
    const passive = to.channel();
    to.host.cm.accept(asked.id, passive.qp, answer);
    const established = await from.event(id);
    expect(established.type).toBe(CMEventType.established);
    expect(established.privateData).toEqual(reply);
    expect(active.qp.query().maxRdAtomic).toBeLessThanOrEqual(5);
    expect(passive.qp.query().maxRdAtomic).toBeLessThanOrEqual(3);
  });

  it('refuses private data that does not fit, and depths beyond the device', async () => {
    const listener = to.listen();
    const active = from.channel();
    const id = await from.resolved(listener.at);
    const connect = (change: object): void =>
      from.host.cm.connect(id, active.qp, { ...NO_WISHES, ...change });
    expect(() => connect({ privateData: new Uint8Array(509) })).toThrow(fails('EINVAL'));
    expect(() => connect({ initiatorDepth: 129 })).toThrow(fails('EINVAL'));
    expect(() => connect({ responderResources: -1 })).toThrow(fails('EINVAL'));
    // Revision 1 has no enhanced word: four bytes more.
    const wire = { mpaRevision: 1 } as const;
    expect(() => connect({ wire, privateData: new Uint8Array(513) })).toThrow(fails('EINVAL'));
    connect({ wire, privateData: new Uint8Array(512) });
    const asked = await to.event(listener.id);
    expect(asked.privateData.length).toBe(512);
    // An unenhanced Request carries no depths.
    expect(asked.initiatorDepth).toBeUndefined();
  });

  it('connects with the wire options of one connection: markers, no CRC, fixed FPDUs', async () => {
    const wire = { markers: true, crc: false, fpduSize: 1000, peerToPeer: false };
    const { active, passive } = await connectPair(node(), node(), '127.0.0.1', { wire });
    await exchange(active, passive);
  });

  it('connects over IPv6', async () => {
    const { active, activeId, passive } = await connectPair(from, to, '::1');
    expect(activeId.localAddress?.address).toBe('::1');
    await exchange(active, passive);
  });

  it('connects 50 pairs at once', async () => {
    const listener = to.listen('127.0.0.1', 64);
    const ids = await Promise.all(
      Array.from({ length: 50 }, () => from.connect(from.channel('iwarp0', 64), listener.at)),
    );
    for (let count = 0; count < ids.length; count++) {
      const request = await to.event(listener.id);
      to.host.cm.accept(request.id, to.channel('iwarp0', 64).qp, NO_WISHES);
    }
    for (const id of ids) expect((await from.event(id)).type).toBe(CMEventType.established);
    expect(to.host.connections()).toHaveLength(50);
  });
});

describe('refusals', () => {
  it('reports a port without a listener as rejected with ECONNREFUSED', async () => {
    const listener = to.listen();
    to.host.cm.destroy(listener.id);
    const channel = from.channel();
    const id = await from.connect(channel, listener.at);
    const refused = { type: CMEventType.rejected, error: 'ECONNREFUSED' };
    expect(await from.event(id)).toMatchObject(refused);
    // The QP can be used again, with a new id.
    const again = to.listen();
    const second = await from.connect(channel, again.at);
    await expectAccepted(again.id, second);
  });

  it('a rejection carries private data, and the QP can try again [MPA-7.1.2-04, MPA-7.1.4.2-01]', async () => {
    const listener = to.listen();
    const channel = from.channel();
    const id = await from.connect(channel, listener.at);
    const request = await to.event(listener.id);
    to.host.cm.reject(request.id, Uint8Array.of(4, 2));
    const event = await from.event(id);
    expect(event).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
    expect([...event.privateData]).toEqual([4, 2]);
    expect(channel.qp.state).not.toBe(QPState.ERR);
    const second = await from.connect(channel, listener.at);
    await expectAccepted(listener.id, second);
  });

  it('the connection manager closes TCP after a rejection [MPA-7.1.2-05, MPA-7.1.2-09]', async () => {
    const listener = to.listen();
    await from.connect(from.channel(), listener.at);
    to.host.cm.reject((await to.event(listener.id)).id, new Uint8Array(0));
    const gone = (): boolean =>
      from.host.connections().length === 0 && to.host.connections().length === 0;
    await until('both ends to close', gone);
  });

  it('rejects requests beyond the backlog and accepts new ones once it has room', async () => {
    const listener = to.listen('127.0.0.1', 2);
    const ids: HostId[] = [];
    for (let count = 0; count < 3; count++) {
      ids.push(await from.connect(from.channel('iwarp0', 64), listener.at));
    }
    const outcomes = () => ids.flatMap((id) => from.eventsOf(id));
    await until('a rejection', () => outcomes().length > 0);
    expect(outcomes()).toMatchObject([{ type: CMEventType.rejected, error: 'ECONNRESET' }]);
    const first = await to.event(listener.id);
    to.host.cm.accept(first.id, to.channel().qp, NO_WISHES);
    const late = await from.connect(from.channel(), listener.at);
    await to.event(listener.id);
    await expectAccepted(listener.id, late);
  });

  it('refuses a busy QP, a QP of another device and use in a wrong state', async () => {
    const devices = [
      { name: 'a', addresses: ['127.0.0.21'] },
      { name: 'b', addresses: ['127.0.0.22'] },
    ];
    const both = node({ devices });
    const other = node();
    const listener = other.listen();
    const source = { address: '127.0.0.21', port: 0 };
    const channel = both.channel('a');
    await both.connect(channel, listener.at, {}, source);
    const second = await both.resolved(listener.at, source);
    const { cm } = both.host;
    expect(() => cm.connect(second, channel.qp, NO_WISHES)).toThrow(fails('EISCONN'));
    expect(() => cm.connect(second, both.channel('b').qp, NO_WISHES)).toThrow(fails('EINVAL'));
    expect(() => cm.listen(second, 1)).toThrow(fails('EINVAL'));
    expect(() => cm.accept(second, channel.qp, NO_WISHES)).toThrow(fails('EINVAL'));
    expect(() => cm.disconnect(second)).toThrow(fails('EINVAL'));
    cm.destroy(second);
    cm.destroy(second);
    expect(() => cm.resolveRoute(second)).toThrow(fails('ENOENT'));
  });
});

describe('disconnect', () => {
  it('everything sent arrives, then both sides are notified once [DDP-6.2.1-01, DDP-6.2.1-05]', async () => {
    const { active, activeId, passive, passiveId } = await connectPair(from, to);
    passive.receive(0, 1 << 19);
    active.send(0, 1 << 19);
    from.host.cm.disconnect(activeId);
    from.host.cm.disconnect(activeId);
    expect((await to.event(passiveId)).type).toBe(CMEventType.disconnected);
    expect((await from.event(activeId)).type).toBe(CMEventType.disconnected);
    await expectDone(passive, { byteLen: 1 << 19 });
    await expectDone(active);
    expect([active.qp.state, passive.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
    // A redundant call succeeds, without a second event.
    from.host.cm.disconnect(activeId);
    to.host.cm.disconnect(passiveId);
    await until('the sockets to close', () => to.host.connections().length === 0);
    expect([...from.eventsOf(activeId), ...to.eventsOf(passiveId)]).toEqual([]);
  });

  it('notifies both sides when the QP is moved to the error state', async () => {
    const { active, activeId, passive, passiveId } = await connectPair(from, to);
    passive.receive(0, 64);
    active.qp.modify(QPState.ERR, from.host.now());
    from.host.drain();
    expect((await from.event(activeId)).type).toBe(CMEventType.disconnected);
    expect((await to.event(passiveId)).type).toBe(CMEventType.disconnected);
    expect(await passive.completions(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
  });

  it('flushes receives that are posted to a QP in error', async () => {
    const { active, activeId } = await connectPair(from, to);
    from.host.cm.disconnect(activeId);
    await from.event(activeId);
    active.receive(0, 64);
    expect(await active.completions(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
  });
});

describe('destroy', () => {
  it('closes an established connection: the peer gets disconnected, the destroyed id nothing', async () => {
    const { activeId, passiveId } = await connectPair(from, to);
    from.host.cm.destroy(activeId);
    expect((await to.event(passiveId)).type).toBe(CMEventType.disconnected);
    await until('the socket to close', () => from.host.connections().length === 0);
    expect(from.eventsOf(activeId)).toEqual([]);
  });

  it('of a connect request rejects it', async () => {
    const listener = to.listen();
    const id = await from.connect(from.channel(), listener.at);
    to.host.cm.destroy((await to.event(listener.id)).id);
    expect(await from.event(id)).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
  });

  it('of a connecting id cancels, and accept then fails with ECONNRESET', async () => {
    const listener = to.listen();
    const channel = from.channel();
    const id = await from.connect(channel, listener.at);
    const request = await to.event(listener.id);
    from.host.cm.destroy(id);
    await until('the initiator to go', () => from.host.connections().length === 0);
    await quiet(20);
    const accept = (): void => to.host.cm.accept(request.id, to.channel().qp, NO_WISHES);
    expect(accept).toThrow(fails('ECONNRESET'));
    to.host.cm.destroy(request.id);
    // Its QP is free for another connection.
    const second = await from.connect(channel, listener.at);
    await expectAccepted(listener.id, second);
  });

  it('before TCP is connected, and of ids that only hold a port, leaks nothing', async () => {
    const listener = to.listen();
    const id = await from.connect(from.channel(), listener.at);
    from.host.cm.destroy(id);
    const bound = from.host.cm.createId(undefined);
    from.host.cm.bindAddr(bound, { address: '127.0.0.1', port: 0 });
    const { port = 0 } = bound.localAddress ?? {};
    const twin = from.host.cm.createId(undefined);
    const address = { address: '127.0.0.1', port };
    expect(() => from.host.cm.bindAddr(twin, address)).toThrow(fails('EADDRINUSE'));
    from.host.cm.destroy(bound);
    from.host.cm.bindAddr(twin, address);
    expect(from.host.connections()).toEqual([]);
  });

  it('of a listener frees its port and leaves accepted connections alone', async () => {
    const listener = to.listen();
    const active = from.channel();
    const passive = to.channel();
    const id = await from.connect(active, listener.at);
    const request = await to.event(listener.id);
    to.host.cm.destroy(listener.id);
    to.host.cm.accept(request.id, passive.qp, NO_WISHES);
    expect((await from.event(id)).type).toBe(CMEventType.established);
    await to.event(request.id);
    await exchange(active, passive);
    const again = to.host.cm.createId(undefined);
    to.host.cm.bindAddr(again, listener.at);
    to.host.cm.listen(again, 1);
  });
});

describe('the end of a host', () => {
  it('delivers everything sent, then a FIN', async () => {
    const ends: string[] = [];
    const tap = {
      opened: () => ({
        watched: true,
        outbound: () => {},
        inbound: () => {},
        finished: (by: 'us' | 'peer') => ends.push(`FIN of ${by}`),
        closed: (reset: boolean) => ends.push(reset ? 'reset' : 'closed'),
      }),
    };
    const [from, to] = [node(), node({ observer: { tap } })];
    const { active, passive } = await connectPair(from, to);
    passive.receive(0, 100_000);
    active.buffer.fill(7, 0, 100_000);
    active.send(0, 100_000);
    await from.host.close();
    const [received] = await passive.completions(1);
    expect(received?.byteLen).toBe(100_000);
    await until('the end', () => ends.includes('closed'));
    expect(ends).toEqual(['FIN of peer', 'FIN of us', 'closed']);
  });
});

describe('addresses', () => {
  it('refuses foreign addresses, malformed ones, and a port on which another program listens', () => {
    const [one, two] = [from, to];
    const listener = one.listen();
    const { cm } = two.host;
    const bind = (address: string, port: number): void =>
      cm.bindAddr(cm.createId(undefined), { address, port });
    expect(() => bind('192.0.2.77', 0)).toThrow(fails('EADDRNOTAVAIL'));
    expect(() => bind('localhost', 0)).toThrow(fails('EINVAL'));
    expect(() => bind('127.0.0.1', 65_536)).toThrow(fails('EINVAL'));
    const taken = cm.createId(undefined);
    cm.bindAddr(taken, listener.at);
    expect(() => cm.listen(taken, 1)).toThrow(fails('EADDRINUSE'));
    one.host.cm.destroy(listener.id);
    cm.listen(taken, 1);
  });

  it('reports that another program uses the source port', async () => {
    const [one, two] = [from, to];
    const { at: source } = one.listen();
    const id = await two.connect(two.channel(), one.listen().at, {}, source);
    const taken = { type: CMEventType.connectError, error: 'EADDRINUSE' };
    expect(await two.event(id)).toMatchObject(taken);
  });

  it('listens at every address of the host', async () => {
    const listener = to.listen('0.0.0.0');
    for (const address of ['127.0.0.1', '127.0.0.31']) {
      const id = await from.connect(from.channel(), { address, port: listener.at.port });
      const request = await to.event(listener.id);
      expect(request.id.localAddress?.address).toBe(address);
      to.host.cm.accept(request.id, to.channel().qp, NO_WISHES);
      expect((await from.event(id)).type).toBe(CMEventType.established);
    }
  });

  it('connects devices of one host with each other: a virtual cluster', async () => {
    const addresses = ['127.0.0.41', '127.0.0.42', '127.0.0.43'];
    const devices = addresses.map((address, at) => ({ name: `rnic${at}`, addresses: [address] }));
    const cluster = node({ devices });
    for (const [to, target] of addresses.entries()) {
      const listener = cluster.listen(target);
      for (const [from, address] of addresses.entries()) {
        const active = cluster.channel(`rnic${from}`, 4096);
        const passive = cluster.channel(`rnic${to}`, 4096);
        const id = await cluster.connect(active, listener.at, {}, { address, port: 0 });
        expect(id.device).toBe(`rnic${from}`);
        const request = await cluster.event(listener.id);
        expect(request.id.device).toBe(`rnic${to}`);
        expect(request.id.peerAddress?.address).toBe(address);
        cluster.host.cm.accept(request.id, passive.qp, NO_WISHES);
        expect((await cluster.event(id)).type).toBe(CMEventType.established);
        await cluster.event(request.id);
        await exchange(active, passive);
      }
    }
    // Without a source address, the first device that reaches the destination is used.
    expect((await cluster.resolved({ address: '127.0.0.42', port: 1 })).device).toBe('rnic0');
    const { cm } = cluster.host;
    const astray = cm.createId(undefined);
    cm.resolveAddr(astray, { address: '::1', port: 1 }, undefined);
    expect(cluster.eventsOf(astray)).toMatchObject([
      { type: CMEventType.addrError, error: 'ENODEV' },
    ]);
    // As in the kernel, a loopback address that no device lists counts as a wildcard.
    cm.bindAddr(astray, { address: '127.0.0.1', port: 0 });
    expect([astray.device, astray.localAddress?.address]).toEqual([undefined, '127.0.0.1']);
  });

  it('resets connections to an address of no device', async () => {
    const to = node({ devices: [{ name: 'a', addresses: ['127.0.0.51'] }] });
    const listener = to.listen('0.0.0.0');
    const { port } = listener.at;
    const id = await from.connect(from.channel(), { address: '127.0.0.52', port });
    expect(await from.event(id)).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
    expect(to.notices).toMatchObject([
      { kind: 'refused', text: 'no device has the address 127.0.0.52' },
    ]);
  });
});
