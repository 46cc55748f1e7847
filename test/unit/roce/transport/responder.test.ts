/** The responder of RC, one request packet at a time. */
import { beforeEach, describe, expect, it } from 'vitest';
import { QPState } from '#contract/verbs/enums';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { PacketOperation } from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { NakCode, nakSyndrome, rnrSyndrome } from '#daemon/roce/wire/syndrome';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { parsed, pathOf, TransportPair, TransportSide } from '#test/support/transport-pair';

const ACK = 31;
const MTU = 256;

/** A responder and its answers. */
class Rig {
  readonly side: TransportSide;

  constructor(change: Parameters<typeof pathOf>[0] = {}) {
    this.side = new TransportSide(65536, {});
    this.side.wire.modified(pathOf(change), QPState.RTR, 0);
  }

  /** A request for `offset` of its memory; asks for an ACK. Payload is counted up from `seed`. */
  ask(psn: number, opcode: number, length = 0, fields: Partial<Packet> = {}, seed = 1): void {
    const { remoteToHi: vaHi, remoteToLo: vaLo } = addressAt(0);
    const base = { opcode, psn, ackRequest: true, rkey: REMOTE_KEY, vaHi, vaLo };
    const packet = { ...new Packet(), ...base, payloadLength: length, ...fields };
    const bytes = new Uint8Array(packetBytes(packet));
    const at = writeHeaders(bytes, 0, packet);
    for (let index = 0; index < length; index += 1) bytes[at + index] = index + seed;
    this.side.receive(bytes, 0);
  }

  /** Answers: operation, PSN, syndrome. */
  answers(): [number, number, number][] {
    return this.side
      .pollAll(0)
      .map(parsed)
      .map(({ opcode, psn, syndrome }) => [opcode, psn, syndrome]);
  }

  get by(): string | undefined {
    return this.side.failure?.by;
  }
}

function ack(psn: number): [number, number, number] {
  return [PacketOperation.acknowledge, psn, ACK];
}
function nak(psn: number, code: NakCode): [number, number, number] {
  return [PacketOperation.acknowledge, psn, nakSyndrome(code)];
}

let rig: Rig;

beforeEach(() => {
  rig = new Rig();
});

describe('ACK', () => {
  it('is one for all packets since the last poll', () => {
    rig.side.user.receives.push(10, 10, 10);
    for (const psn of [100, 101, 102]) rig.ask(psn, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([ack(102)]);
    expect(rig.answers()).toEqual([]);
  });

  it('is sent only if a packet requests it', () => {
    rig.side.user.receives.push(10, 10);
    rig.ask(100, PacketOperation.sendOnly, 4, { ackRequest: false });
    expect(rig.answers()).toEqual([]);
    rig.ask(101, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([ack(101)]);
  });

  it('counts messages in its MSN, not packets', () => {
    rig.side.user.receives.push(1000);
    rig.ask(100, PacketOperation.sendFirst, MTU);
    rig.ask(101, PacketOperation.sendLast, 1);
    rig.ask(102, PacketOperation.writeOnly, 4, { dmaLength: 4 });
    expect(rig.side.pollAll(0).map((bytes) => parsed(bytes).msn)).toEqual([2]);
  });

  it('comes after the receive is complete', () => {
    rig.side.user.receives.push(1000);
    rig.ask(100, PacketOperation.sendFirst, MTU);
    expect(rig.answers()).toEqual([ack(100)]);
    expect(rig.side.user.arrivals).toHaveLength(0);
    rig.ask(101, PacketOperation.sendLast, 5);
    expect(rig.side.user.arrivals).toHaveLength(1);
    expect(rig.answers()).toEqual([ack(101)]);
  });
});

describe('a gap', () => {
  it('gets one NAK, and later packets are dropped until the lost one arrives', () => {
    rig.side.user.receives.push(10, 10, 10);
    rig.ask(100, PacketOperation.sendOnly, 1);
    rig.ask(102, PacketOperation.sendOnly, 3);
    expect(rig.answers()).toEqual([nak(101, NakCode.psnSequence)]);
    rig.ask(103, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([]);
    rig.ask(101, PacketOperation.sendOnly, 2);
    rig.ask(103, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([nak(102, NakCode.psnSequence)]);
    expect(rig.side.user.arrivals.map(({ bytes }) => bytes.length)).toEqual([1, 2]);
    expect(rig.by).toBeUndefined();
  });

  it('that closes before the NAK leaves needs none', () => {
    rig.side.user.receives.push(10);
    rig.ask(101, PacketOperation.sendOnly, 1);
    rig.ask(100, PacketOperation.sendOnly, 1);
    expect(rig.answers()).toEqual([ack(100)]);
  });
});

describe('a repeated request', () => {
  it('is acknowledged again, up to the last one, and not carried out', () => {
    rig.side.user.receives.push(10, 10, 10);
    rig.ask(100, PacketOperation.sendOnly, 1);
    rig.ask(101, PacketOperation.writeOnly, 4, { dmaLength: 4 });
    rig.answers();
    rig.side.user.memory.fill(0);
    rig.ask(101, PacketOperation.writeOnly, 4, { dmaLength: 4 });
    rig.ask(100, PacketOperation.sendOnly, 1);
    expect(rig.answers()).toEqual([ack(101)]);
    expect(rig.side.user.arrivals).toHaveLength(1);
    expect(rig.side.user.memory.every((byte) => byte === 0)).toBe(true);
  });

  it('repeats a Read, also in part', () => {
    rig.side.user.memory.fill(1);
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 600 });
    expect(rig.answers().map(([, psn]) => psn)).toEqual([100, 101, 102]);
    rig.side.user.memory.fill(2);
    const { remoteToHi: vaHi, remoteToLo: vaLo } = addressAt(MTU);
    rig.ask(101, PacketOperation.readRequest, 0, { dmaLength: 600 - MTU, vaHi, vaLo });
    const packets = rig.side.pollAll(0);
    expect(packets.map((bytes) => parsed(bytes).psn)).toEqual([101, 102]);
    expect(packets[0]?.subarray(16, 20)).toEqual(Uint8Array.of(2, 2, 2, 2));
    // A request that exceeds the earlier one is not a repetition.
    rig.ask(102, PacketOperation.readRequest, 0, { dmaLength: 600 });
    expect(rig.answers()).toEqual([]);
  });

  it('is queued among the pending Reads', () => {
    for (const psn of [100, 101, 102])
      rig.ask(psn, PacketOperation.readRequest, 0, { dmaLength: 1 });
    rig.side.poll(0);
    rig.ask(102, PacketOperation.readRequest, 0, { dmaLength: 1 });
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 1 });
    expect(rig.answers().map(([, psn]) => psn)).toEqual([100, 101, 102]);
  });

  it('repeats the result of an atomic, for the last max_dest_rd_atomic', () => {
    const rig = new Rig({ maxDestRdAtomic: 2 });
    const add = (psn: number) => rig.ask(psn, PacketOperation.fetchAdd, 0, { swapAddLo: 5 });
    const results = () => rig.side.pollAll(0).map((bytes) => parsed(bytes).originalLo);
    for (const psn of [100, 101, 102]) {
      add(psn);
      expect(results()).toEqual([5 * (psn - 100)]);
    }
    add(101);
    add(102);
    expect(results()).toEqual([5, 10]);
    add(100);
    expect(results()).toEqual([]);
    expect(rig.side.user.atomics).toBe(3);
  });

  it('costs bounded memory, however often it is repeated', () => {
    const rig = new Rig({ maxDestRdAtomic: 4 });
    for (let psn = 100; psn < 120; psn += 1) {
      rig.ask(psn, PacketOperation.readRequest, 0, { dmaLength: 1 });
      rig.side.pollAll(0);
    }
    for (let round = 0; round < 50; round += 1) {
      for (let psn = 100; psn < 120; psn += 1) {
        rig.ask(psn, PacketOperation.readRequest, 0, { dmaLength: 1 });
      }
    }
    expect(rig.answers()).toHaveLength(8);
  });
});

describe('RNR', () => {
  it('is sent with the timer code when no receive is posted, and nothing is carried out', () => {
    const rig = new Rig({ minRnrTimer: 9 });
    rig.ask(100, PacketOperation.sendOnly, 4);
    rig.ask(101, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([[PacketOperation.acknowledge, 100, rnrSyndrome(9)]]);
    rig.side.user.receives.push(10, 10);
    rig.ask(100, PacketOperation.sendOnly, 4);
    rig.ask(101, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([ack(101)]);
    expect(rig.side.user.arrivals).toHaveLength(2);
  });

  it('holds up the last packet of a Write with immediate only', () => {
    rig.ask(100, PacketOperation.writeFirst, MTU, { dmaLength: MTU + 4 });
    rig.ask(101, PacketOperation.writeLastImmediate, 4, { immediate: 77 });
    expect(rig.answers()).toEqual([[PacketOperation.acknowledge, 101, rnrSyndrome(12)]]);
    rig.side.user.receives.push(0);
    rig.ask(101, PacketOperation.writeLastImmediate, 4, { immediate: 77 });
    expect(rig.answers()).toEqual([ack(101)]);
    expect(rig.side.user.arrivals[0]?.message).toMatchObject({
      written: true,
      lengthBytes: MTU + 4,
      immediateLo: 77,
    });
  });
});

describe('a request that is refused', () => {
  it('as invalid: out of order within a message, or of a wrong length', () => {
    const cases: ((rig: Rig) => void)[] = [
      (rig) => rig.ask(101, PacketOperation.sendMiddle, MTU),
      (rig) => rig.ask(101, PacketOperation.writeLast, 4),
      (rig) => {
        rig.ask(101, PacketOperation.sendFirst, MTU);
        rig.ask(102, PacketOperation.sendOnly, 4);
      },
      (rig) => {
        rig.ask(101, PacketOperation.sendFirst, MTU);
        rig.ask(102, PacketOperation.writeLast, 4);
      },
      (rig) => {
        rig.ask(101, PacketOperation.sendFirst, MTU);
        rig.ask(102, PacketOperation.readRequest, 0, { dmaLength: 4 });
      },
      (rig) => rig.ask(101, PacketOperation.sendFirst, 2 * MTU),
      (rig) => rig.ask(101, PacketOperation.sendOnly, MTU + 1),
      (rig) => rig.ask(101, PacketOperation.writeOnly, 4, { dmaLength: 5 }),
      (rig) => rig.ask(101, PacketOperation.writeOnly, 5, { dmaLength: 4 }),
      (rig) => rig.ask(101, PacketOperation.writeFirst, MTU, { dmaLength: MTU }),
      (rig) => rig.ask(101, PacketOperation.writeFirst, MTU, { dmaLength: 2 ** 31 + 1 }),
      (rig) => rig.ask(101, PacketOperation.readRequest, 0, { dmaLength: 2 ** 31 + 1 }),
      (rig) => rig.ask(101, PacketOperation.fetchAdd, 0, { vaLo: addressAt(4).remoteToLo }),
    ];
    for (const act of cases) {
      const rig = new Rig();
      rig.side.user.receives.push(1000, 1000);
      rig.ask(100, PacketOperation.sendOnly, 1);
      act(rig);
      expect(rig.answers()).toMatchObject([
        [PacketOperation.acknowledge, expect.any(Number), 0x61],
      ]);
      expect(rig.side.failure).toMatchObject({ by: 'us', failure: { event: 'request' } });
      rig.ask(101, PacketOperation.sendOnly, 1);
      expect(rig.answers()).toEqual([]);
    }
  });

  it('for its key, range or right, before anything of a Write is placed', () => {
    const end = addressAt(65536 - MTU);
    const cases: [number, number, Partial<Packet>][] = [
      [PacketOperation.writeOnly, 4, { dmaLength: 4, rkey: 1 }],
      [
        PacketOperation.writeFirst,
        MTU,
        { dmaLength: MTU + 1, vaHi: end.remoteToHi, vaLo: end.remoteToLo },
      ],
      [PacketOperation.readRequest, 0, { dmaLength: 4, rkey: 1 }],
      [PacketOperation.compareSwap, 0, { rkey: 1 }],
    ];
    for (const [opcode, length, fields] of cases) {
      const rig = new Rig();
      rig.ask(100, opcode, length, fields);
      expect(rig.answers()).toEqual([nak(100, NakCode.remoteAccess)]);
      expect(rig.side.failure).toMatchObject({ by: 'us', failure: { event: 'access' } });
      expect(rig.side.user.memory.every((byte) => byte === 0)).toBe(true);
    }
  });

  it('as invalid if the queue pair does not permit it, even with zero length', () => {
    const cases = [
      PacketOperation.writeOnly,
      PacketOperation.writeOnlyImmediate,
      PacketOperation.readRequest,
    ];
    for (const opcode of cases) {
      for (const dmaLength of [4, 0]) {
        const rig = new Rig();
        rig.side.user.receives.push(10);
        const { notPermitted } = AccessRefusal;
        rig.side.user.refusals = { checkWriteTarget: notPermitted, checkReadSource: notPermitted };
        const length = opcode === PacketOperation.readRequest ? 0 : dmaLength;
        rig.ask(100, opcode, length, { dmaLength });
        expect(rig.answers(), `${opcode} ${dmaLength}`).toEqual([nak(100, NakCode.invalidRequest)]);
        expect(rig.side.user.receives).toEqual([10]);
      }
    }
  });

  it('for an impossible length, once its PSN is due', () => {
    const odd: [number, number, Partial<Packet>][] = [
      [PacketOperation.sendFirst, 100, {}],
      [PacketOperation.sendFirst, 0, {}],
      [PacketOperation.writeFirst, 100, { dmaLength: 600 }],
      [PacketOperation.readRequest, 4, { dmaLength: 4 }],
      [PacketOperation.fetchAdd, 4, {}],
    ];
    for (const [opcode, length, fields] of odd) {
      const rig = new Rig();
      rig.side.user.receives.push(1000);
      rig.ask(101, opcode, length, fields);
      expect(rig.answers()).toEqual([nak(100, NakCode.psnSequence)]);
      rig.ask(100, opcode, length, fields);
      expect(rig.answers(), `${opcode}`).toEqual([nak(100, NakCode.invalidRequest)]);
      expect(rig.side.failure).toMatchObject({ by: 'us', failure: { event: 'request' } });
    }
    for (const [opcode, length] of [
      [PacketOperation.sendMiddle, 100],
      [PacketOperation.sendLast, 0],
      [PacketOperation.sendLastImmediate, 0],
    ] as const) {
      const rig = new Rig();
      rig.side.user.receives.push(1000);
      rig.ask(100, PacketOperation.sendFirst, MTU, { ackRequest: false });
      rig.ask(101, opcode, length);
      expect(rig.answers(), `${opcode}`).toEqual([nak(101, NakCode.invalidRequest)]);
    }
  });

  it('for lost memory, after the answers to earlier requests', () => {
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: MTU + 1 });
    rig.ask(102, PacketOperation.fetchAdd, 0, { swapAddLo: 1 });
    rig.side.user.refusals = { inputEnded: AccessRefusal.memoryLost };
    rig.ask(103, PacketOperation.writeOnly, 4, { dmaLength: 4 });
    expect(rig.answers()).toEqual([
      [PacketOperation.readResponseFirst, 100, ACK],
      [PacketOperation.readResponseLast, 101, ACK],
      [PacketOperation.atomicAcknowledge, 102, ACK],
      nak(103, NakCode.remoteOperation),
    ]);
    expect(rig.by).toBe('us');
  });

  it('accepts any key for no bytes', () => {
    rig.ask(100, PacketOperation.writeOnly, 0, { dmaLength: 0, rkey: 1 });
    rig.ask(101, PacketOperation.readRequest, 0, { dmaLength: 0, rkey: 1 });
    expect(rig.answers()).toEqual([[PacketOperation.readResponseOnly, 101, ACK]]);
    expect(rig.by).toBeUndefined();
  });

  it('for more Reads in flight than max_dest_rd_atomic, or any with 0', () => {
    const rig = new Rig({ maxDestRdAtomic: 2 });
    for (const psn of [100, 101, 102])
      rig.ask(psn, PacketOperation.readRequest, 0, { dmaLength: 1 });
    expect(rig.answers().at(-1)).toEqual(nak(102, NakCode.invalidRequest));
    for (const opcode of [PacketOperation.readRequest, PacketOperation.fetchAdd]) {
      const none = new Rig({ maxDestRdAtomic: 0 });
      none.ask(100, opcode, 0, { dmaLength: 1 });
      expect(none.answers()).toEqual([nak(100, NakCode.invalidRequest)]);
    }
  });

  it('is accepted once the queue pair was modified to serve more', () => {
    const rig = new Rig({ maxDestRdAtomic: 0 });
    rig.side.wire.modified(pathOf({ maxDestRdAtomic: 1 }), QPState.SQD, 0);
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 1 });
    expect(rig.answers()).toEqual([[PacketOperation.readResponseOnly, 100, ACK]]);
  });

  it('for a Send longer than its receive: a remote operational error, as from rxe', () => {
    rig.side.user.receives.push(3);
    rig.ask(100, PacketOperation.sendOnly, 4);
    expect(rig.answers()).toEqual([nak(100, NakCode.remoteOperation)]);
    expect(rig.by).toBe('us');
  });

  it('not for a key that it cannot invalidate: that fails only the responder, as in rxe', () => {
    rig.side.user.receives.push(10);
    rig.side.user.refusals = { completeReceive: AccessRefusal.cannotInvalidate };
    rig.ask(100, PacketOperation.sendOnlyInvalidate, 4, { invalidateRkey: 5 });
    expect(rig.answers()).toEqual([ack(100)]);
    expect(rig.by).toBe('us');
  });

  it('not for such a key, also while the message is not in memory yet', () => {
    const { user, wire } = rig.side;
    user.receives.push(10);
    user.refusals = { completeReceive: AccessRefusal.cannotInvalidate };
    user.placing = true;
    rig.ask(100, PacketOperation.sendOnlyInvalidate, 4, { invalidateRkey: 5 });
    expect(rig.answers()).toEqual([]);
    wire.assertInvariants?.();
    user.placing = false;
    wire.pump(0);
    expect(rig.answers()).toEqual([ack(100)]);
    expect(rig.by).toBe('us');
  });

  it('only after all replies to earlier ones', () => {
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 2 * MTU });
    rig.ask(102, PacketOperation.writeOnly, 4, { dmaLength: 4, rkey: 1 });
    rig.ask(103, PacketOperation.writeOnly, 4, { dmaLength: 4 });
    rig.side.poll(0);
    expect(rig.by).toBeUndefined();
    expect(rig.answers()).toEqual([
      [PacketOperation.readResponseLast, 101, ACK],
      nak(102, NakCode.remoteAccess),
    ]);
    expect(rig.by).toBe('us');
    expect(rig.side.user.writes).toBe(0);
  });

  it('for memory of a Read that disappeared, in place of the rest of its data', () => {
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 600 });
    rig.side.poll(0);
    rig.side.user.refusals = { gatherReadSource: AccessRefusal.stagInvalid };
    expect(rig.answers()).toEqual([nak(101, NakCode.remoteAccess)]);
    expect(rig.by).toBe('us');
  });
});

describe('the path MTU', () => {
  it('stays as at RTR, whatever is modified later', () => {
    rig.side.user.receives.push(1000);
    rig.ask(100, PacketOperation.sendFirst, MTU, { ackRequest: false });
    rig.ask(101, PacketOperation.sendMiddle, MTU, { ackRequest: false });
    for (const state of [QPState.RTS, QPState.RTS]) {
      rig.side.wire.modified(pathOf({ pathMtu: 3, minRnrTimer: 1 }), state, 0);
    }
    rig.ask(102, PacketOperation.sendLast, 1);
    rig.ask(103, PacketOperation.readRequest, 0, { dmaLength: MTU + 1 });
    expect(rig.side.user.arrivals.map(({ bytes }) => bytes.length)).toEqual([2 * MTU + 1]);
    expect(rig.answers().map(([opcode]) => opcode)).toEqual([
      PacketOperation.readResponseFirst,
      PacketOperation.readResponseLast,
    ]);
  });
});

describe('answers', () => {
  it('leave in the order of the requests', () => {
    rig.side.user.receives.push(10, 10);
    rig.ask(100, PacketOperation.sendOnly, 1);
    rig.ask(101, PacketOperation.readRequest, 0, { dmaLength: MTU + 1 });
    rig.ask(103, PacketOperation.fetchAdd, 0, { swapAddLo: 1 });
    rig.ask(104, PacketOperation.sendOnly, 1);
    expect(rig.answers()).toEqual([
      [PacketOperation.readResponseFirst, 101, ACK],
      [PacketOperation.readResponseLast, 102, ACK],
      [PacketOperation.atomicAcknowledge, 103, ACK],
      ack(104),
    ]);
  });

  it('to a Read of half of all PSNs, the longest at the smallest MTU, keep their places', () => {
    const rig = new Rig({ maxDestRdAtomic: 2, rqPsn: 0x90_0000 });
    const psn = (count: number): number => (0x90_0000 + count) % 2 ** 24;
    const next = (): number | undefined => {
      const bytes = rig.side.poll(0);
      return bytes && (parsed(bytes).psn - 0x90_0000 + 2 ** 24) % 2 ** 24;
    };
    rig.side.user.refusals = {
      checkReadSource: AccessRefusal.none,
      gatherReadSource: AccessRefusal.none,
    };
    rig.side.user.receives.push(10);
    rig.ask(psn(0), PacketOperation.readRequest, 0, { dmaLength: 2 ** 31 });
    expect([next(), next(), next()]).toEqual([0, 1, 2]);
    // The peer has received three packets, so it may use three more PSNs.
    rig.ask(psn(2 ** 23), PacketOperation.readRequest, 0, { dmaLength: MTU });
    rig.ask(psn(2 ** 23 + 1), PacketOperation.sendOnly, 4);
    expect(rig.side.user.arrivals).toHaveLength(1);
    expect([next(), next()]).toEqual([3, 4]);
    // It retries, first for the missing part, then for all that a repeated request may name.
    rig.ask(psn(3), PacketOperation.readRequest, 0, { dmaLength: 2 ** 31 - 3 * MTU });
    expect([next(), next()]).toEqual([3, 4]);
    rig.ask(psn(2), PacketOperation.readRequest, 0, { dmaLength: 2 ** 31 - 2 * MTU });
    expect([next(), next()]).toEqual([2, 3]);
    expect(rig.by).toBeUndefined();
    // A PSN too old to be repeated is ahead: it shows a gap.
    rig.ask(psn(1), PacketOperation.readRequest, 0, { dmaLength: MTU });
    expect(next()).toBe(4);
    // The end of the Read comes last, then the response to the request after it.
    rig.ask(psn(2 ** 23 - 2), PacketOperation.readRequest, 0, { dmaLength: 2 * MTU });
    expect(parsed(rig.side.poll(0))).toMatchObject({ psn: psn(2 ** 23 - 2) });
    expect([next(), next()]).toEqual([2 ** 23 - 1, 2 ** 23]);
  });

  it('wait for data that must be fetched first', () => {
    let ready = false;
    rig.side.user.ready = () => ready;
    rig.ask(100, PacketOperation.readRequest, 0, { dmaLength: 1 });
    expect(rig.answers()).toEqual([]);
    ready = true;
    expect(rig.answers()).toEqual([]);
    rig.side.wire.pump(0);
    expect(rig.answers()).toHaveLength(1);
  });

  it('are still sent when the queue pair ends, if they acknowledge', () => {
    rig.side.user.receives.push(10);
    rig.ask(100, PacketOperation.sendOnly, 1);
    rig.side.wire.abort(0);
    expect(rig.answers()).toEqual([ack(100)]);
    rig.ask(101, PacketOperation.sendOnly, 1);
    expect(rig.answers()).toEqual([]);
  });

  it('are not sent before RTR', () => {
    const side = new TransportSide(64, {});
    const packet = { ...new Packet(), opcode: PacketOperation.writeOnly };
    const bytes = new Uint8Array(packetBytes(packet));
    writeHeaders(bytes, 0, packet);
    side.receive(bytes, 0);
    expect(side.pollAll(0)).toEqual([]);
  });
});

describe('both directions', () => {
  it('share the output, so neither starves', () => {
    const pair = new TransportPair();
    const message = { kind: 3, remoteStag: REMOTE_KEY, ...addressAt(0) } as const;
    const read = { kind: 4, remoteStag: REMOTE_KEY, ...addressAt(0) } as const;
    pair.a.user.work.push({ id: 0, message: read, sink: new Uint8Array(20 * MTU) });
    pair.pass(pair.a);
    pair.b.user.work.push({ id: 0, message, payload: new Uint8Array(20 * MTU) });
    const kinds = pair.b.pollAll(0).map((bytes) => parsed(bytes).opcode >= 0x0d);
    expect(kinds.slice(0, 10).filter(Boolean)).toHaveLength(5);
  });
});
