/** The output of streams: two back to back, and one with its ULPDUs read off the wire. */
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { hexOf } from '#test/support/hex';
import { ModelUser } from '#test/support/model-user';
import { pattern } from '#test/support/pattern';
import { compact, LiteralPeer, StreamPair } from '#test/support/streams';

const SMALL = { fpduSize: { kind: 'fixed', mulpduBytes: 128 } } as const;

/** An initiator with small segments, and its output for posted work. */
function sent(post: (user: ModelUser) => void, change = {}): string[] {
  const user = new ModelUser();
  post(user);
  return LiteralPeer.ofInitiator({ ...SMALL, ...change }, user).take();
}

function bytesAt(ulpdus: readonly string[], start: number, end: number): string[] {
  return ulpdus.map((ulpdu) => ulpdu.slice(2 * start, 2 * end));
}

describe('segments on the wire', () => {
  it('the kinds of Send [DDP-4.3-01, DDP-4.3-06, RDMAP-3.1-03, RDMAP-4.1-03, RDMAP-4.2-01, RDMAP-5.3-01]', () => {
    const ulpdus = sent((user) => {
      const invalidate = { kind: OutboundKind.sendWithInvalidate, invalidateStag: 0xcafe0001 };
      const payload = Uint8Array.of(0x41, 0x42);
      user.send(payload);
      user.send(payload, invalidate);
      user.send(payload, { solicited: true });
      user.send(payload, { ...invalidate, solicited: true });
      user.immediate(0x0102030405060708n);
      user.immediate(0x0102030405060708n, true);
    });
    expect(ulpdus).toEqual(
      [
        '4143 00000000 00000000 00000001 00000000 4142',
        '4144 cafe0001 00000000 00000002 00000000 4142',
        '4145 00000000 00000000 00000003 00000000 4142',
        '4146 cafe0001 00000000 00000004 00000000 4142',
        '4148 00000000 00000000 00000005 00000000 0102030405060708',
        '4149 00000000 00000000 00000006 00000000 0102030405060708',
      ].map(compact),
    );
  });

  it('share the MSNs of QN 0 [RDMAP-4.1-08, RDMAP-4.1-09, RDMAPX-6.2-01, RDMAPX-6.3-01, RDMAPX-6.3-04, RDMAPX-4.1-01]', () => {
    const ulpdus = sent((user) => {
      user.send(new Uint8Array(0));
      user.immediate(1n);
      user.send(new Uint8Array(0));
    });
    expect(bytesAt(ulpdus, 6, 14)).toEqual([
      '0000000000000001',
      '0000000000000002',
      '0000000000000003',
    ]);
    expect(bytesAt(ulpdus, 2, 6)).toEqual(['00000000', '00000000', '00000000']);
  });

  it('a cut Send [DDP-5.2-05, DDP-5.2-01, DDP-4.3-11, DDP-4.1-03, DDP-4.1-04, DDP-4.1-05, DDP-4.1-06]', () => {
    const ulpdus = sent((user) => user.send(pattern(300)));
    expect(bytesAt(ulpdus, 0, 2)).toEqual(['0143', '0143', '4143']);
    expect(bytesAt(ulpdus, 14, 18)).toEqual(['00000000', '0000006e', '000000dc']);
    expect(ulpdus.map((ulpdu) => ulpdu.length / 2 - 18)).toEqual([110, 110, 80]);
    expect(bytesAt(ulpdus, 18, 999).join('')).toBe(hexOf(pattern(300)));
  });

  it('header fields are those of the message [DDP-4.3-02, DDP-4.3-05, DDP-4.3-07, DDP-4.3-09]', () => {
    const ulpdus = sent((user) => {
      const kind = OutboundKind.sendWithInvalidate;
      user.send(pattern(300), { kind, invalidateStag: 0xcafe0001 });
      user.send(pattern(1));
    });
    expect(bytesAt(ulpdus, 1, 6)).toEqual([...Array(3).fill('44cafe0001'), '4300000000']);
    expect(bytesAt(ulpdus, 6, 10)).toEqual(Array(4).fill('00000000'));
    expect(bytesAt(ulpdus, 10, 14)).toEqual([...Array(3).fill('00000001'), '00000002']);
  });

  it('a cut Write with a carry in its TO [DDP-5.2-08, DDP-4.2-02, DDP-4.2-04, RDMAP-5.1-01, DDP-5.3-03]', () => {
    const ulpdus = sent((user) => user.write(pattern(300), 0x11223344, 0xfffffff0));
    expect(bytesAt(ulpdus, 0, 14)).toEqual([
      '81401122334400000000fffffff0',
      '8140112233440000000100000062',
      'c1401122334400000001000000d4',
    ]);
    expect(ulpdus.map((ulpdu) => ulpdu.length / 2 - 14)).toEqual([114, 114, 72]);
  });

  it('the worked examples of the RFC [DDP-5.2-06, DDP-5.2-09]', () => {
    const fpduSize = { kind: 'fixed', mulpduBytes: 1500 } as const;
    const ulpdus = sent(
      (user) => {
        user.send(pattern(2048));
        user.write(pattern(2048), 1, 16384);
      },
      { fpduSize },
    );
    expect(ulpdus.map((ulpdu) => ulpdu.length / 2)).toEqual([1500, 584, 1500, 576]);
    expect(bytesAt(ulpdus.slice(0, 2), 14, 18)).toEqual(['00000000', '000005ca']);
    expect(bytesAt(ulpdus.slice(2), 6, 14)).toEqual(['0000000000004000', '00000000000045ce']);
  });

  it('messages without payload have one segment [DDP-5.2-10, RDMAP-5.1-06, RDMAP-5.3-08]', () => {
    const ulpdus = sent((user) => {
      user.send(new Uint8Array(0));
      user.write(new Uint8Array(0), 0x11223344, 0x1000);
    });
    expect(ulpdus).toEqual([
      '414300000000000000000000000100000000',
      'c140112233440000000000001000',
    ]);
  });

  it('every size has one last segment and all its bytes [DDP-4.1-03, DDP-4.1-04, DDP-5.2-03]', () => {
    for (const size of [1, 109, 110, 111, 219, 220, 221, 330]) {
      const ulpdus = sent((user) => user.send(pattern(size)));
      expect(ulpdus.length).toBe(Math.ceil(size / 110));
      expect(bytesAt(ulpdus, 18, 999).join('')).toBe(hexOf(pattern(size)));
      const lasts = bytesAt(ulpdus, 0, 1).filter((control) => control === '41');
      expect(lasts.length).toBe(1);
    }
  });

  it('reserved bits and versions [DDP-4.1-09, DDP-4.1-11, RDMAP-4.1-04, RDMAP-4.1-06, RDMAP-6.1-01]', () => {
    const ulpdus = sent((user) => {
      user.send(pattern(300));
      user.write(pattern(300), 1, 0);
      user.read(1, [1, 0], [2, 0]);
      user.fetchAdd(1n, 1, 0);
      user.immediate(1n);
    });
    expect(ulpdus.length).toBe(9);
    for (const control of bytesAt(ulpdus, 0, 2)) {
      expect(Number.parseInt(control, 16) & 0x3ff0).toBe(0x0140);
    }
  });

  it('in the order posted [DDP-5.3-01, RDMAP-5.5-08, RDMAP-5.1-04, RDMAP-5.2.1-04, RDMAP-5.3-07, RDMAP-3.1-02]', () => {
    const ulpdus = sent((user) => {
      user.write(pattern(200), 1, 0);
      user.send(pattern(200));
      user.read(1, [1, 0], [2, 0]);
      user.write(pattern(1), 1, 0);
      user.fetchAdd(1n, 1, 0);
      user.send(pattern(1));
    });
    expect(bytesAt(ulpdus, 0, 2)).toEqual('8140 c140 0143 4143 4141 c140 414a 4143'.split(' '));
  });

  it('a new MULPDU counts for the segments cut from then on [DDP-3-02, MPA-4.5-05]', () => {
    const user = new ModelUser();
    user.send(pattern(1000));
    const peer = LiteralPeer.ofInitiator({}, user);
    expect(peer.take().length).toBe(1);
    peer.stream.setEmss(256);
    user.send(pattern(500));
    peer.run();
    expect(peer.take().map((ulpdu) => ulpdu.length / 2)).toEqual([250, 250, 54]);
  });
});

describe('two streams', () => {
  function pairOf(options = {}): StreamPair {
    const pair = new StreamPair(options).establish();
    expect(pair.a.types).toEqual(['established']);
    expect(pair.b.types).toEqual(['request', 'established']);
    return pair;
  }

  it('Sends arrive in order, with their lengths [RDMAP-5.3-03, RDMAP-5.3-05, DDP-5.3-07, DDP-5.1.2-01]', () => {
    const pair = pairOf();
    pair.b.user.postReceive(100_000, 20);
    for (let i = 0; i < 20; i++) pair.a.user.send(pattern(i % 2 === 0 ? 1 : 100_000, i));
    pair.run();
    expect(pair.b.user.delivered.map(({ payload }) => payload)).toEqual(
      Array.from({ length: 20 }, (_, i) => hexOf(pattern(i % 2 === 0 ? 1 : 100_000, i))),
    );
  });

  it('messages that request an event carry the flag [RDMAP-5.3-06, RDMAP-5.3-08, RDMAPX-6.3-06, RDMAPX-6.3-03]', () => {
    const pair = pairOf();
    pair.b.user.postReceive(8, 4);
    pair.a.user.send(new Uint8Array(0));
    pair.a.user.send(new Uint8Array(0), { solicited: true });
    pair.a.user.immediate(1n);
    pair.a.user.immediate(2n, true);
    pair.run();
    const seen = pair.b.user.delivered.map(({ solicited }) => solicited);
    expect(seen).toEqual([false, true, false, true]);
  });

  it('an invalidation takes effect on delivery [RDMAP-5.3-09, RDMAP-5.3-11, RDMAP-3.2-02]', () => {
    const pair = pairOf();
    const memory = pair.b.user.register(0x77, 64);
    pair.b.user.postReceive(8);
    pair.a.user.write(Uint8Array.of(1), 0x77, 0);
    pair.a.user.send(new Uint8Array(0), {
      kind: OutboundKind.sendWithInvalidate,
      invalidateStag: 0x77,
    });
    pair.a.user.write(Uint8Array.of(2), 0x77, 0);
    pair.run();
    expect(memory[0]).toBe(1);
    expect(pair.b.user.delivered[0]?.invalidated).toBe(0x77);
    expect(pair.a.failure).toMatchObject({ kind: 'terminated', layer: 1, etype: 1, code: 0 });
  });

  it('the field of a plain Send invalidates nothing [RDMAP-4.1-10]', () => {
    const user = new ModelUser();
    user.register(0xcafe0001, 64);
    user.postReceive(8);
    LiteralPeer.ofResponder({}, user).feed('4143 cafe0001 00000000 00000001 00000000 4142');
    expect(user.delivered[0]?.invalidated).toBe(undefined);
    expect(user.regions.has(0xcafe0001)).toBe(true);
  });

  it('a Write is placed before what follows it [RDMAP-5.5-04, DDP-4.1-07, RDMAPX-6-01, RDMAPX-7-01, RDMAP-5.1-02, DDP-5.2-04]', () => {
    const pair = pairOf();
    const memory = pair.b.user.register(0x77, 200_000, 0xffff_ffff_ff00_0000n);
    pair.b.user.postReceive(8);
    pair.a.user.write(pattern(200_000), 0x77, 0xffff_ffff_ff00_0000n);
    pair.a.user.immediate(0x0102030405060708n);
    pair.run();
    expect(Buffer.compare(memory, pattern(200_000))).toBe(0);
    expect(pair.b.user.delivered.map(({ immediate }) => immediate)).toEqual(['0102030405060708']);
    expect(pair.b.user.log).toEqual(['received 8']);
  });

  it('a Write may target any TO, and the same one repeatedly [DDP-4.2-06, DDP-4.2-07, DDP-5.1.1-01, DDP-5.2-13, RDMAP-5.1-03]', () => {
    const pair = pairOf();
    const memory = pair.b.user.register(0x77, 4096, 0xffffffffffffe001n);
    for (const to of [1n, 1n, 7n, 4093n]) {
      pair.a.user.write(Uint8Array.of(1, 2, 3), 0x77, 0xffffffffffffe001n + to);
    }
    pair.run();
    expect(hexOf(memory.subarray(0, 11))).toBe('0001020300000001020300');
    expect(hexOf(memory.subarray(4092))).toBe('00010203');
    expect(pair.b.user.log).toEqual([]);
  });

  it('reads see the writes before them [RDMAP-B-01, RDMAP-B-02, RDMAP-4.4-04]', () => {
    const pair = pairOf();
    pair.b.user.register(0x77, 64);
    const sink = pair.a.user.register(0x99, 64);
    for (let i = 0; i < 8; i++) {
      pair.a.user.write(Uint8Array.of(i), 0x77, 3);
      pair.a.user.read(1, [0x77, 3], [0x99, 5 + i]);
      // A later Write may overtake the answer; a consumer can wait for it (RFC 5040 §5.5 rule 12).
      pair.run();
    }
    expect([...sink.subarray(5, 13)]).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(pair.a.user.log.filter((entry) => entry === 'read').length).toBe(8);
  });

  it('atomics see the writes before them [RDMAPX-5.4-02, RDMAPX-7-03, RDMAPX-5.2.2-05]', () => {
    const pair = pairOf();
    pair.b.user.register(0x77, 64);
    pair.a.user.write(Uint8Array.of(9), 0x77, 8);
    pair.a.user.fetchAdd(0n, 0x77, 8);
    pair.a.user.compareSwap(9n, 0xaan, 0x77, 8);
    pair.a.user.compareSwap(9n, 0xbbn, 0x77, 8);
    pair.run();
    expect(pair.a.user.log.slice(4)).toEqual(['atomic 9', 'atomic 9', 'atomic aa']);
  });

  it('both ends send at once, message by message [RDMAP-5.5-01, DDP-5.3-02]', () => {
    const pair = pairOf({ initiator: SMALL, responder: SMALL });
    pair.b.user.register(0x77, 4096).set(pattern(4096));
    const sink = pair.a.user.register(0x99, 4096);
    pair.a.user.postReceive(4096, 4);
    pair.b.user.postReceive(4096, 4);
    for (let i = 0; i < 4; i++) {
      pair.a.user.read(1000, [0x77, i * 1000], [0x99, i * 1000]);
      pair.b.user.send(pattern(1000, i));
      pair.a.user.send(pattern(900, i));
    }
    pair.run();
    expect(hexOf(sink.subarray(0, 4000))).toBe(hexOf(pattern(4096).subarray(0, 4000)));
    const lengths = [1000, 1000, 1000, 1000];
    expect(pair.a.user.delivered.map(({ length }) => length)).toEqual(lengths);
    expect(pair.b.user.delivered.map(({ length }) => length)).toEqual([900, 900, 900, 900]);
  });

  it('a Send is delivered even while Responses are blocked [RDMAPX-5.4-03, RDMAP-5.5-12, RDMAP-5.5-07]', () => {
    const pair = pairOf({ environment: { highWaterBytes: 1000 } });
    pair.b.user.register(0x77, 200_000);
    pair.a.user.register(0x99, 200_000);
    pair.b.user.postReceive(8);
    pair.b.blocked = true;
    pair.a.user.read(200_000, [0x77, 0], [0x99, 0]);
    pair.a.user.send(Uint8Array.of(1));
    pair.run();
    expect(pair.b.user.log).toEqual(['received 1']);
    pair.b.blocked = false;
    pair.run();
    expect(pair.a.user.log).toEqual(['sent', 'sent', 'read']);
  });

  it('a message that the output does not take is not sent [RDMAP-5.5-10]', () => {
    const pair = pairOf({ environment: { highWaterBytes: 4000 } });
    pair.b.user.postReceive(1000, 100);
    pair.a.blocked = true;
    for (let i = 0; i < 100; i++) pair.a.user.send(pattern(1000, i));
    pair.run();
    expect(pair.a.user.log.length).toBe(4);
    pair.a.blocked = false;
    pair.run();
    expect(pair.b.user.delivered.map(({ payload }) => payload)).toEqual(
      Array.from({ length: 100 }, (_, i) => hexOf(pattern(1000, i))),
    );
  });

  it('a source can wait for its data while the other one continues', () => {
    const pair = pairOf();
    pair.b.user.register(0x77, 64);
    pair.a.user.register(0x99, 64);
    pair.a.user.postReceive(8, 2);
    pair.b.user.stallSource = 1;
    pair.a.user.read(10, [0x77, 0], [0x99, 0]);
    pair.b.user.send(Uint8Array.of(1));
    pair.run();
    expect(pair.a.user.log).toEqual(['sent', 'received 1', 'read']);
    pair.b.user.stallGather = 1;
    pair.b.user.send(Uint8Array.of(1));
    pair.a.user.read(10, [0x77, 0], [0x99, 0]);
    pair.run();
    expect(pair.a.user.log.slice(3)).toEqual(['sent', 'read', 'received 1']);
  });

  it('alternates between the send queue and the Responses', () => {
    const user = new ModelUser();
    user.register(0x77, 64);
    const peer = LiteralPeer.ofInitiator({}, user);
    for (let i = 0; i < 4; i++) user.send(Uint8Array.of(i));
    const reads = Array.from(
      { length: 4 },
      (_, i) =>
        `4141 00000000 00000001 0000000${i + 1} 00000000 00000001 0000000000000000 00000001 00000077 0000000000000000`,
    );
    peer.feed(...reads);
    const kinds = peer.take().map((ulpdu) => ulpdu.slice(0, 4));
    expect(kinds).toEqual('4143 c142 4143 c142 4143 c142 4143 c142'.split(' '));
  });

  it('a served Read reports nothing to the consumer of its source [RDMAP-3.2-05, RDMAP-5.2.1-03]', () => {
    const pair = pairOf();
    pair.b.user.register(0x77, 64);
    pair.a.user.register(0x99, 64);
    for (let i = 0; i < 1000; i++) pair.a.user.read(8, [0x77, 0], [0x99, 0]);
    pair.run();
    expect(pair.a.user.log.filter((entry) => entry === 'read').length).toBe(1000);
    expect(pair.b.user.log).toEqual([]);
    expect(pair.b.types).toEqual(['request', 'established']);
  });

  it('an idle stream has no deadline and stays open [SEC-5.4.5-02]', () => {
    const pair = pairOf({ initiator: { peerToPeer: true } });
    expect(pair.a.stream.nextDeadline()).toBe(NEVER);
    expect(pair.b.stream.nextDeadline()).toBe(NEVER);
    pair.pass(1e15);
    pair.b.user.postReceive(8);
    pair.a.user.send(Uint8Array.of(1));
    pair.run();
    expect(pair.b.user.log).toEqual(['received 1']);
  });

  it('carries markers in both directions', () => {
    const pair = pairOf({
      initiator: { markersRequested: true },
      responder: { markersRequested: true },
    });
    pair.b.user.postReceive(10_000);
    pair.b.user.register(0x77, 10_000).set(pattern(10_000));
    const sink = pair.a.user.register(0x99, 10_000);
    pair.a.user.send(pattern(10_000));
    pair.a.user.read(10_000, [0x77, 0], [0x99, 0]);
    pair.run();
    expect(pair.b.user.delivered[0]?.payload).toBe(hexOf(pattern(10_000)));
    expect(hexOf(sink)).toBe(hexOf(pattern(10_000)));
  });
});
