/** DDP segments (RFC 5041 §4, §5) that a real host sends and takes. */
import { afterEach, describe, expect, it } from 'vitest';
import { WCStatus, WROpcode } from '#contract/verbs/enums';
import { hex32, hex64 } from '../support/consumer.ts';
import { closeFacing, Facing, settled } from '../support/facing.ts';
import { compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { skimFpdus } from '../support/raw-fpdu.ts';

afterEach(closeFacing);

/** Segments of at most 110 bytes of untagged payload, or 114 of tagged. */
const SMALL = { fpduSize: { kind: 'fixed', mulpduBytes: 128 } } as const;
const UNTAGGED = 18;
const TAGGED = 14;

function cut(payload: string, bytes: number): string[] {
  return payload.match(new RegExp(`.{1,${2 * bytes}}`, 'g')) ?? [''];
}

function send(control: string, msn: number, mo: number): string {
  return `${control}43 00000000 00000000 ${hex32(msn)} ${hex32(mo)}`;
}

describe('a sent untagged message', () => {
  it('is cut into segments of one header, with L only in the last [DDP-4.1-03, DDP-4.1-04, DDP-4.1-05, DDP-4.1-06, DDP-4.1-09, DDP-4.1-11, DDP-4.3-01, DDP-4.3-02, DDP-4.3-05, DDP-4.3-06, DDP-4.3-09, DDP-4.3-11, DDP-5.2-01, DDP-5.2-03, DDP-5.2-05, DDP-5.3-03]', async () => {
    const facing = await Facing.initiator({ wire: SMALL });
    const payload = hexOf(pattern(250));
    facing.consumer.send(payload);
    const [a = '', b = '', c = ''] = cut(payload, 128 - UNTAGGED);
    expect(await facing.receive(3)).toEqual(
      [`${send('01', 1, 0)} ${a}`, `${send('01', 1, 110)} ${b}`, `${send('41', 1, 220)} ${c}`].map(
        compactHex,
      ),
    );
    expect(await facing.consumer.statuses(1)).toEqual([WCStatus.success]);
  });

  it('has the next MSN of its queue, however many segments came before [DDP-4.3-06, DDP-4.3-07, DDP-4.3-10]', async () => {
    const facing = await Facing.initiator({ wire: SMALL });
    for (const length of [300, 0, 1]) facing.consumer.send(hexOf(pattern(length)));
    facing.consumer.read(facing.consumer.register(8), 1, 1, 0);
    facing.consumer.send('');
    const ulpdus = await facing.receive(7);
    // QN and MSN.
    expect(ulpdus.map((ulpdu) => ulpdu.slice(12, 28))).toEqual([
      '0000000000000001',
      '0000000000000001',
      '0000000000000001',
      '0000000000000002',
      '0000000000000003',
      '0000000100000001',
      '0000000000000004',
    ]);
  });

  it('of no bytes is one segment, a header without payload [DDP-4.1-03, DDP-4.4-01, DDP-5.2-10, RDMAP-5.3-08]', async () => {
    const facing = await Facing.initiator();
    facing.consumer.send('');
    expect(await facing.receive(1)).toEqual([compactHex(send('41', 1, 0))]);
  });
});

describe('a sent tagged message', () => {
  it('is cut into segments of one STag, with increasing TO and L in the last [DDP-4.1-03, DDP-4.1-04, DDP-4.1-05, DDP-4.1-09, DDP-4.1-11, DDP-4.2-01, DDP-4.2-02, DDP-4.2-04, DDP-5.2-01, DDP-5.2-03, DDP-5.2-08, DDP-5.3-03]', async () => {
    const facing = await Facing.initiator({ wire: SMALL });
    const payload = hexOf(pattern(250));
    // The sum with the offset carries into the upper half.
    facing.consumer.write(payload, 0x11223344, 0xffff_ffe0);
    const [a = '', b = '', c = ''] = cut(payload, 128 - TAGGED);
    expect(await facing.receive(3)).toEqual(
      [
        `8140 11223344 00000000ffffffe0 ${a}`,
        `8140 11223344 0000000100000052 ${b}`,
        `c140 11223344 00000001000000c4 ${c}`,
      ].map(compactHex),
    );
  });

  it('of no bytes is one segment, a header without payload [DDP-4.4-01, DDP-5.2-10, RDMAP-5.1-06]', async () => {
    const facing = await Facing.initiator();
    facing.consumer.write('', 0x11223344, 0x1000);
    expect(await facing.receive(1)).toEqual([compactHex('c140 11223344 0000000000001000')]);
  });
});

describe('sent messages', () => {
  it('go in the order in which they were posted, across both models [DDP-5.3-01, DDP-5.3-02, RDMAP-5.1-04, RDMAP-5.3-07, RDMAP-5.5-08]', async () => {
    const facing = await Facing.initiator({ wire: SMALL });
    const { consumer } = facing;
    const sink = consumer.register(64);
    consumer.write('41'.repeat(200), 1, 0x1000);
    consumer.send('42'.repeat(200));
    consumer.read(sink, 1, 2, 0);
    consumer.write('43', 3, 0);
    consumer.send('44');
    // Control bytes: T and L, opcode. Segments of different messages do not interleave.
    const controls = (await facing.receive(7)).map((ulpdu) => ulpdu.slice(0, 4));
    expect(controls).toEqual('8140 c140 0143 4143 4141 c140 4143'.split(' '));
  });

  it('of 2^32 bytes are refused, and nothing of them is sent [DDP-5.2-02]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    const { lkey, address } = consumer.bufferMR;
    const sgList = Array.from({ length: 4 }, () => ({ addr: address, length: 0x4000_0000, lkey }));
    consumer.post({ opcode: WROpcode.send, sgList });
    const [wc] = await consumer.sends(1);
    expect(wc?.status).not.toBe(WCStatus.success);
    const ulpdus = await facing.hearAll();
    expect(ulpdus.filter((ulpdu) => ulpdu.slice(2, 4) !== '47')).toEqual([]);
  });

  it('keep the segments that are cut when segments become smaller [DDP-3-02, MPA-4.5-05]', async () => {
    let emssBytes = 8000;
    const facing = await Facing.initiator({ emssBytes: () => emssBytes });
    const { consumer, peer } = facing;
    peer.stopReading();
    // More than the sockets of both sides hold.
    const [messages, length] = [24, 500_000];
    const { lkey, address } = consumer.bufferMR;
    for (let i = 0; i < messages; i++) {
      consumer.enqueue({ opcode: WROpcode.send, sgList: [{ addr: address, length, lkey }] });
    }
    facing.node.host.doorbell(consumer.qp);
    await settled();
    emssBytes = 1000;
    peer.resumeReading();
    expect(await consumer.statuses(messages)).toEqual(Array(messages).fill(WCStatus.success));
    facing.node.host.cm.disconnect(facing.id);
    await until('all that was sent', () => peer.ended);
    const skimmed = skimFpdus(peer.received.subarray(facing.startup.length));
    const carried = skimmed.reduce((sum, { ulpduBytes }) => sum + ulpduBytes - UNTAGGED, 0);
    expect(carried).toBe(messages * length);
    const full = skimmed.filter(({ last }) => !last).map(({ ulpduBytes }) => ulpduBytes);
    const sizes = full.filter((bytes, at) => bytes !== full[at - 1]);
    // Segments cut earlier keep their size; from one segment on all are smaller.
    expect(sizes).toEqual([7994, 994]);
  });
});

describe('a received untagged message', () => {
  it('is placed by MO and delivered with its last segment, once, with its length [DDP-4.1-02, DDP-4.1-07, DDP-4.1-08, DDP-5.2-04, DDP-5.3-06, DDP-5.4-02, DDP-5.4-03, RDMAP-5.3-03]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    consumer.postReceive(64, 2);
    facing.say(`${send('01', 1, 0)} 4142`, `${send('01', 1, 2)} 43`);
    await settled();
    expect(consumer.receivedNow()).toEqual([]);
    facing.say(`${send('41', 1, 3)} 4445`);
    expect(await consumer.received(1)).toEqual([
      { status: WCStatus.success, payload: '4142434445' },
    ]);
    await settled();
    expect(consumer.receivedNow()).toEqual([]);
  });

  it('may have any split, also an empty last segment [DDP-5.2-14, DDP-5.4-03]', async () => {
    const facing = await Facing.responder();
    facing.consumer.postReceive(64, 2);
    facing.say(`${send('01', 1, 0)} 41`, `${send('01', 1, 1)}`, `${send('41', 1, 1)}`);
    facing.say(send('41', 2, 0));
    expect(await facing.consumer.payloads(2)).toEqual(['41', '']);
  });

  it('is delivered in the order sent, each into the next receive [DDP-5.1.2-01, DDP-5.3-07, RDMAP-5.3-05]', async () => {
    const facing = await Facing.responder();
    facing.consumer.postReceive(8, 100);
    const payloads = Array.from({ length: 100 }, (_, at) => hex32(at));
    for (let at = 0; at < 100; at += 7) {
      facing.say(
        ...payloads
          .slice(at, at + 7)
          .map((payload, i) => `${send('41', at + i + 1, 0)} ${payload}`),
      );
    }
    expect(await facing.consumer.payloads(100)).toEqual(payloads);
  });

  it('has reserved bits that are ignored [DDP-4.1-10, RDMAP-4.1-07, RDMAP-4.1-10]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(64);
    consumer.postReceive(8, 3);
    facing.say(
      // DDP's Rsvd, RDMAP's Rsv, the Invalidate STag of a plain Send.
      '7d43 00000000 00000000 00000001 00000000 41',
      '4173 00000000 00000000 00000002 00000000 42',
      `4143 ${region.stag} 00000000 00000003 00000000 43`,
      `fd70 ${region.stag} 0000000000001000 44`,
    );
    expect(await consumer.payloads(3)).toEqual(['41', '42', '43']);
    await settled();
    expect(region.bytes[0]).toBe(0x44);
    expect(await facing.hearAll()).toEqual([]);
  });
});

describe('a received tagged message', () => {
  it('is placed by STag and TO and not delivered [DDP-4.1-02, DDP-5.2-04, RDMAP-5.1-01, RDMAP-5.1-02]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(64);
    consumer.postReceive(64);
    facing.say(
      `8140 ${region.stag} ${hex64(0x1000)} 4142`,
      `c140 ${region.stag} ${hex64(0x1002)} 4344`,
      `c140 ${region.stag} ${hex64(0x103f)} ff`,
      `${send('41', 1, 0)} 55`,
    );
    // The Send takes the only receive.
    expect(await consumer.received(1)).toEqual([{ status: WCStatus.success, payload: '55' }]);
    expect(hexOf(region.bytes)).toBe(compactHex('41424344 00*59 ff'));
    consumer.poll();
    expect(consumer.sent).toEqual([]);
    expect(facing.node.asyncEvents).toEqual([]);
  });

  it('of no bytes may name any STag and TO [DDP-5.2-11]', async () => {
    const facing = await Facing.responder();
    facing.consumer.postReceive(8);
    facing.say('c140 deadbeef ffffffffffffffff', `${send('41', 1, 0)} 41`);
    expect(await facing.consumer.payloads(1)).toEqual(['41']);
    // Also as the last segment of a message that has begun.
    const region = facing.consumer.register(8);
    facing.consumer.postReceive(8);
    facing.say(`8140 ${region.stag} ${hex64(0x1000)} 41`, 'c140 00000000 0000000000000000');
    facing.say(`${send('41', 2, 0)} 42`);
    expect(await facing.consumer.payloads(1)).toEqual(['42']);
    expect(region.bytes[0]).toBe(0x41);
  });
});
