/** The requester of RC, against a real responder and against single packets. */
import { beforeEach, describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { QPState, QPType } from '#contract/verbs/enums';
import {
  AccessRefusal,
  MessageFailure,
  OutboundKind,
  OutboundMessage,
} from '#daemon/rnic/wire-port';
import { PACKET_BYTES_MAX } from '#daemon/roce/transport/packet-wire';
import { makeWire } from '#daemon/roce/transport/transport';
import { PacketOperation } from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { NakCode, nakSyndrome, rnrSyndrome } from '#daemon/roce/wire/syndrome';
import { addressAt, ModelUser, REMOTE_KEY } from '#test/support/model-user';
import { pattern } from '#test/support/pattern';
import { parsed, pathOf, TransportPair, type TransportSide } from '#test/support/transport-pair';

const { send, write, readRequest, atomic } = OutboundKind;
/** 4.096 microseconds times 2^10. */
const TIMEOUT = 4194.304;
const ACK = 31;

/** A queue pair with a Read of 2^31 bytes then an empty Send. It counts completions. */
class LongRead extends ModelUser {
  bytes = 0;
  reads = 0;
  ended = 0;
  readonly #kinds = [readRequest, send];

  constructor() {
    super('roce');
  }

  override nextMessage(message: OutboundMessage): boolean {
    const kind = this.#kinds.shift();
    if (kind === undefined) return false;
    Object.assign(message, new OutboundMessage(), { kind });
    message.lengthBytes = kind === readRequest ? 2 ** 31 : 0;
    return true;
  }

  override placeReadPart(offset: number, _: Uint8Array, __: number, length: number): AccessRefusal {
    if (offset === this.bytes) this.bytes += length;
    return AccessRefusal.none;
  }

  override readCompleted(): void {
    this.reads += 1;
  }

  override messageDone(): void {
    this.ended += 1;
  }
}

function post(side: TransportSide, id: number, kind: OutboundKind, length: number): void {
  const message = { kind, remoteStag: REMOTE_KEY, ...addressAt(64) };
  if (kind === readRequest) side.user.work.push({ id, message, sink: new Uint8Array(length) });
  else if (kind === atomic) side.user.work.push({ id, message });
  else side.user.work.push({ id, message, payload: pattern(length) });
}

function ids(side: TransportSide): number[] {
  return side.user.done.map(({ id }) => id);
}

/** Gives `side` a packet that no peer of ours sends. */
function inject(pair: TransportPair, side: TransportSide, fields: Partial<Packet>): void {
  const packet = { ...new Packet(), ...fields };
  const bytes = new Uint8Array(packetBytes(packet));
  writeHeaders(bytes, 0, packet);
  side.receive(bytes, pair.now);
}

function acknowledge(pair: TransportPair, psn: number, syndrome = ACK): void {
  inject(pair, pair.a, { opcode: PacketOperation.acknowledge, psn, syndrome });
}

function psns(packets: readonly Uint8Array[]): number[] {
  return packets.map((bytes) => parsed(bytes).psn);
}

let pair: TransportPair;

beforeEach(() => {
  pair = new TransportPair();
});

describe('segmentation', () => {
  it('cuts a message into packets of the path MTU, and asks for an ACK at its end', () => {
    post(pair.a, 0, write, 600);
    const packets = pair.a.pollAll(0).map(parsed);
    expect(packets.map(({ opcode }) => opcode)).toEqual([
      PacketOperation.writeFirst,
      PacketOperation.writeMiddle,
      PacketOperation.writeLast,
    ]);
    expect(packets.map(({ payloadLength }) => payloadLength)).toEqual([256, 256, 88]);
    expect(packets.map(({ psn }) => psn)).toEqual([100, 101, 102]);
    expect(packets.map(({ ackRequest }) => ackRequest)).toEqual([false, false, true]);
    expect(packets[0]).toMatchObject({ dmaLength: 600, rkey: REMOTE_KEY, destQpn: 0x55 });
  });

  it('keeps the path MTU of RTR, whatever is modified under a message', () => {
    post(pair.a, 0, write, 600);
    const packets = [parsed(pair.a.poll(0) as Uint8Array)];
    for (const pathMtu of [5, 1]) {
      pair.a.wire.modified(pathOf({ pathMtu, minRnrTimer: 1 }), QPState.RTS, 0);
      packets.push(parsed(pair.a.poll(0) as Uint8Array));
    }
    expect(packets.map(({ payloadLength }) => payloadLength)).toEqual([256, 256, 88]);
    // Repetitions find their place by the same MTU.
    acknowledge(pair, 101);
    pair.a.wire.handleDeadline(2 * TIMEOUT);
    const again = pair.a.pollAll(2 * TIMEOUT).map(parsed);
    expect(again.map(({ psn, payloadLength }) => [psn, payloadLength])).toEqual([[102, 88]]);
  });

  it('sends a message without payload, or of exactly one MTU, as one packet', () => {
    for (const length of [0, 1, 256]) {
      const pair = new TransportPair();
      post(pair.a, 0, send, length);
      const packets = pair.a.pollAll(0);
      expect(packets.map((bytes) => parsed(bytes).opcode)).toEqual([PacketOperation.sendOnly]);
      expect(packets[0]?.length).toBe(12 + Math.ceil(length / 4) * 4);
    }
  });

  it('carries immediate data and the key to invalidate in the last packet only', () => {
    pair.b.user.receives.push(1000, 1000, 1000);
    pair.b.user.register(0xcafe_0001, 1);
    const payload = pattern(300);
    const work = [
      { kind: OutboundKind.sendWithImmediate, immediateLo: 0xfedc_ba98, solicited: true },
      { kind: OutboundKind.sendWithInvalidate, invalidateStag: 0xcafe_0001 },
      {
        kind: OutboundKind.writeWithImmediate,
        immediateLo: 7,
        remoteStag: REMOTE_KEY,
        ...addressAt(0),
      },
    ];
    pair.a.user.work.push(...work.map((message, id) => ({ id, message, payload })));
    pair.run();
    const [first, second, third] = pair.b.user.arrivals;
    expect(first?.bytes).toEqual(payload);
    expect(first?.message).toMatchObject({
      hasImmediate: true,
      immediateLo: 0xfedc_ba98,
      solicited: true,
      invalidates: false,
    });
    expect(second?.message).toMatchObject({
      invalidates: true,
      invalidateStag: 0xcafe_0001,
      hasImmediate: false,
      solicited: false,
    });
    expect(third?.message).toMatchObject({ written: true, lengthBytes: 300, immediateLo: 7 });
    expect(pair.b.user.memory.subarray(0, 300)).toEqual(payload);
    expect(ids(pair.a)).toEqual([0, 1, 2]);
  });
});

describe('acknowledgement', () => {
  it('completes nothing before it, and everything up to it after', () => {
    for (let id = 0; id < 3; id += 1) post(pair.a, id, send, 300);
    pair.a.pollAll(0);
    expect(ids(pair.a)).toEqual([]);
    acknowledge(pair, 102);
    expect(ids(pair.a)).toEqual([0]);
    acknowledge(pair, 105);
    expect(ids(pair.a)).toEqual([0, 1, 2]);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
  });

  it('ignores those of packets that were not sent, and old ones', () => {
    post(pair.a, 0, send, 1);
    pair.a.pollAll(0);
    for (const psn of [99, 101, 0, 100 + 2 ** 23]) acknowledge(pair, psn);
    expect(ids(pair.a)).toEqual([]);
    acknowledge(pair, 100);
    acknowledge(pair, 100);
    expect(ids(pair.a)).toEqual([0]);
  });

  it('limits unacknowledged packets to a window', () => {
    const pair = new TransportPair({}, { windowPackets: 8 });
    post(pair.a, 0, write, 256 * 30);
    const packets = pair.a.pollAll(0);
    expect(packets).toHaveLength(8);
    expect(packets.some((bytes) => parsed(bytes).ackRequest)).toBe(true);
    acknowledge(pair, 103);
    expect(pair.a.pollAll(0)).toHaveLength(4);
  });

  it('is implied by the response to a later Read', () => {
    post(pair.a, 0, write, 10);
    post(pair.a, 1, readRequest, 500);
    pair.pass(pair.a);
    const responses = pair.b.pollAll(0);
    expect(responses).toHaveLength(2);
    for (const bytes of responses) pair.a.receive(bytes, 0);
    expect(ids(pair.a)).toEqual([0, 1]);
  });

  it('works across the end of the PSNs', () => {
    const pair = new TransportPair({ sqPsn: 0xff_fffe, rqPsn: 0xff_fffe });
    for (let id = 0; id < 4; id += 1) post(pair.a, id, id % 2 === 0 ? write : readRequest, 700);
    pair.run();
    expect(ids(pair.a)).toEqual([0, 1, 2, 3]);
    expect(pair.a.wire.sqPsn).toBe(10);
    expect(pair.b.wire.rqPsn).toBe(10);
  });
});

describe('timeout', () => {
  it('retransmits unacknowledged packets retry_cnt times, then fails', () => {
    const pair = new TransportPair({ retryCnt: 2 });
    post(pair.a, 0, send, 300);
    post(pair.a, 1, send, 1);
    expect(pair.lose(pair.a)).toBe(3);
    for (let retry = 0; retry < 2; retry += 1) {
      expect(pair.a.wire.nextDeadline() - pair.now).toBeCloseTo(TIMEOUT);
      pair.expire(pair.a);
      expect(pair.a.failure).toBeUndefined();
      expect(psns(pair.a.pollAll(pair.now))).toEqual([100, 101, 102]);
    }
    pair.expire(pair.a);
    expect(pair.a.user.failures).toEqual([MessageFailure.retriesExceeded]);
    expect(pair.a.failure?.by).toBe('peer');
    expect(pair.a.pollAll(pair.now)).toEqual([]);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
    expect(ids(pair.a)).toEqual([]);
  });

  it('counts from the last progress', () => {
    const pair = new TransportPair({ retryCnt: 1 });
    post(pair.a, 0, send, 600);
    pair.a.pollAll(0);
    for (const psn of [100, 101]) {
      pair.expire(pair.a);
      pair.a.pollAll(pair.now);
      acknowledge(pair, psn);
      expect(pair.a.wire.nextDeadline() - pair.now).toBeCloseTo(TIMEOUT);
    }
    pair.expire(pair.a);
    expect(psns(pair.a.pollAll(pair.now))).toEqual([102]);
    expect(pair.a.failure).toBeUndefined();
  });

  it('never occurs when the code is 0', () => {
    const pair = new TransportPair({ timeout: 0 });
    post(pair.a, 0, send, 1);
    pair.a.pollAll(0);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
  });
});

describe('NAK', () => {
  it('of a sequence error causes a retransmission at once, once for each PSN', () => {
    post(pair.a, 0, write, 256 * 4);
    expect(pair.a.pollAll(0)).toHaveLength(4);
    for (let copies = 0; copies < 3; copies += 1) {
      acknowledge(pair, 102, nakSyndrome(NakCode.psnSequence));
      expect(psns(pair.a.pollAll(0))).toEqual(copies === 0 ? [102, 103] : []);
    }
    acknowledge(pair, 103);
    expect(ids(pair.a)).toEqual([0]);
  });

  it('of another kind fails its message, and completes those before', () => {
    for (const [code, failure] of [
      [NakCode.invalidRequest, MessageFailure.remoteInvalidRequest],
      [NakCode.remoteAccess, MessageFailure.remoteAccess],
      [NakCode.remoteOperation, MessageFailure.remoteOperation],
      [NakCode.invalidRdRequest, MessageFailure.badResponse],
    ] as const) {
      const pair = new TransportPair();
      for (let id = 0; id < 3; id += 1) post(pair.a, id, send, 1);
      pair.a.pollAll(0);
      acknowledge(pair, 101, nakSyndrome(code));
      expect(ids(pair.a)).toEqual([0]);
      expect(pair.a.user.failures).toEqual([failure]);
      expect(pair.a.failure?.by).toBe('peer');
      post(pair.a, 3, send, 1);
      expect(pair.a.pollAll(0)).toEqual([]);
    }
  });

  it('for a missing receive waits for its timer, without limit for 7', () => {
    const pair = new TransportPair({ rnrRetry: 7 });
    post(pair.a, 0, send, 1);
    post(pair.a, 1, send, 1);
    pair.a.pollAll(0);
    for (let tries = 0; tries < 20; tries += 1) {
      // Code 12: 640 microseconds.
      acknowledge(pair, 100, rnrSyndrome(12));
      expect(pair.a.wire.nextDeadline()).toBe(pair.now + 640);
      expect(pair.a.pollAll(pair.now)).toEqual([]);
      pair.expire(pair.a);
      expect(psns(pair.a.pollAll(pair.now))).toEqual([100, 101]);
    }
    acknowledge(pair, 101);
    expect(ids(pair.a)).toEqual([0, 1]);
  });

  it('for a missing receive is an answer: only silence uses up the retries', () => {
    const pair = new TransportPair({ rnrRetry: 7, retryCnt: 1 });
    post(pair.a, 0, send, 1);
    pair.a.pollAll(0);
    for (let tries = 0; tries < 5; tries += 1) {
      acknowledge(pair, 100, rnrSyndrome(12));
      pair.expire(pair.a);
      // Packets sent then are lost.
      expect(pair.lose(pair.a)).toBe(1);
      pair.expire(pair.a);
      expect(pair.lose(pair.a)).toBe(1);
      expect(pair.a.failure).toBeUndefined();
    }
    pair.expire(pair.a);
    expect(pair.a.user.failures).toEqual([MessageFailure.retriesExceeded]);
  });

  it('for a missing receive fails the message after rnr_retry retries', () => {
    const pair = new TransportPair({ rnrRetry: 2 });
    post(pair.a, 0, send, 1);
    pair.a.pollAll(0);
    for (let tries = 0; tries < 2; tries += 1) {
      acknowledge(pair, 100, rnrSyndrome(1));
      expect(pair.a.failure).toBeUndefined();
      pair.expire(pair.a);
      expect(pair.a.pollAll(pair.now)).toHaveLength(1);
    }
    acknowledge(pair, 100, rnrSyndrome(1));
    expect(pair.a.user.failures).toEqual([MessageFailure.rnrRetriesExceeded]);
  });
});

describe('Reads and atomics', () => {
  it('gives a Read the PSNs of its response, and the data to the queue pair', () => {
    post(pair.a, 0, readRequest, 600);
    post(pair.a, 1, send, 0);
    const [request, next] = pair.a.pollAll(0).map(parsed);
    expect(request).toMatchObject({
      opcode: PacketOperation.readRequest,
      psn: 100,
      dmaLength: 600,
    });
    expect(next?.psn).toBe(103);
    const other = new TransportPair();
    other.b.user.memory.set(pattern(600), 64);
    const sink = new Uint8Array(600);
    const message = { kind: readRequest, remoteStag: REMOTE_KEY, ...addressAt(64) };
    other.a.user.work.push({ id: 0, message, sink });
    other.run();
    expect(sink).toEqual(pattern(600));
    expect(ids(other.a)).toEqual([0]);
  });

  it('keeps at most max_rd_atomic in flight, and requests a long Read in parts', () => {
    const pair = new TransportPair({ maxRdAtomic: 2 }, { windowPackets: 8 });
    post(pair.a, 0, readRequest, 256 * 20 + 5);
    expect(pair.a.pollAll(0).map((bytes) => parsed(bytes).dmaLength)).toEqual([256 * 8]);
    post(pair.a, 1, readRequest, 1);
    pair.run();
    expect(ids(pair.a)).toEqual([]);
    pair.expire(pair.a);
    pair.run();
    expect(ids(pair.a)).toEqual([0, 1]);

    const small = new TransportPair({ maxRdAtomic: 2 });
    for (let id = 0; id < 3; id += 1) post(small.a, id, readRequest, 1);
    expect(small.a.pollAll(0)).toHaveLength(2);
  });

  it('may use half of all PSNs: the longest Read at the smallest MTU', () => {
    // A quarter of the PSNs at once, so that few requests are needed, and PSNs that wrap within.
    const sqPsn = 0x90_0000;
    const user = new LongRead();
    const options = { type: QPType.rc, qpn: 1, portMtuBytes: 256, windowPackets: 2 ** 22 };
    const wire = makeWire(user, options);
    const path = pathOf({ sqPsn, timeout: 0 });
    wire.modified(path, QPState.RTR, 0);
    wire.modified(path, QPState.RTS, 0);
    const buffer = new Uint8Array(PACKET_BYTES_MAX);
    const poll = (): Packet => parsed(buffer.slice(0, wire.pollPacket(buffer, 0, 0)));
    const response = { ...new Packet(), payloadLength: 256, syndrome: ACK };
    const { readResponseFirst, readResponseMiddle, readResponseLast } = PacketOperation;
    let psn = sqPsn;
    for (const part of [0, 1]) {
      const request = poll();
      expect(request).toMatchObject({ psn, dmaLength: 2 ** 30 });
      expect(request.vaLo).toBe(part * 2 ** 30);
      for (let count = 2 ** 22; count > 0; count -= 1) {
        const last = count === 1 ? readResponseLast : readResponseMiddle;
        response.opcode = count === 2 ** 22 ? readResponseFirst : last;
        response.psn = psn;
        wire.handlePacket(response, buffer, 0, buffer);
        psn = (psn + 1) % 2 ** 24;
      }
      wire.assertInvariants?.();
    }
    expect(user).toMatchObject({ bytes: 2 ** 31, reads: 1, ended: 1 });
    expect(psn).toBe((sqPsn + 2 ** 23) % 2 ** 24);
    expect(poll()).toMatchObject({ opcode: PacketOperation.sendOnly, psn });
    expect(wire.pollFailure()).toBeUndefined();
  });

  it('retries from the first missing byte', () => {
    post(pair.a, 0, readRequest, 256 * 4);
    pair.pass(pair.a);
    const [first, , third] = pair.b.pollAll(0);
    if (first === undefined || third === undefined) throw new Error('four responses are due');
    pair.a.receive(first, 0);
    pair.a.receive(third, 0);
    const [again] = pair.a.pollAll(0).map(parsed);
    expect(again).toMatchObject({ psn: 101, dmaLength: 256 * 3 });
    expect(again?.vaLo).toBe(addressAt(64 + 256).remoteToLo);
    pair.expire(pair.a);
    pair.run();
    expect(ids(pair.a)).toEqual([0]);
  });

  it('does not take a later acknowledgement for a response', () => {
    post(pair.a, 0, atomic, 0);
    post(pair.a, 1, send, 0);
    pair.a.pollAll(0);
    acknowledge(pair, 101);
    expect(ids(pair.a)).toEqual([]);
    expect(psns(pair.a.pollAll(0))).toEqual([100, 101]);
  });

  it('fails a response of the wrong kind or length', () => {
    for (const fields of [
      { opcode: PacketOperation.atomicAcknowledge, psn: 100 },
      { opcode: PacketOperation.readResponseOnly, psn: 100 },
    ]) {
      const pair = new TransportPair();
      post(pair.a, 0, readRequest, 100);
      pair.a.pollAll(0);
      inject(pair, pair.a, { ...fields, syndrome: ACK });
      expect(pair.a.user.failures).toEqual([MessageFailure.badResponse]);
    }
  });

  it('fails locally when its own memory is gone', () => {
    pair.a.user.refusals = { placeReadPart: 9 };
    post(pair.a, 0, readRequest, 100);
    pair.run();
    expect(pair.a.failure?.by).toBe('us');
    const other = new TransportPair();
    other.a.user.refusals = { gather: 9 };
    post(other.a, 0, send, 100);
    expect(other.a.pollAll(0)).toEqual([]);
    expect(other.a.failure?.by).toBe('us');
  });
});

describe('payload that must be fetched', () => {
  it('delays its message until the next pump', () => {
    let ready = false;
    pair.a.user.ready = () => ready;
    post(pair.a, 0, send, 10);
    expect(pair.a.pollAll(0)).toEqual([]);
    ready = true;
    expect(pair.a.pollAll(0)).toEqual([]);
    pair.a.wire.pump(0);
    expect(pair.a.pollAll(0)).toHaveLength(1);
  });
});

describe('a wire that is aborted', () => {
  it('sends and receives nothing more', () => {
    post(pair.a, 0, send, 600);
    pair.a.poll(0);
    pair.a.wire.abort(0);
    expect(pair.a.pollAll(0)).toEqual([]);
    acknowledge(pair, 100);
    expect(pair.a.wire.sendable).toBe(false);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
    expect(ids(pair.a)).toEqual([]);
    expect(pair.a.failure).toBeUndefined();
  });
});
