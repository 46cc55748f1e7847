import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { QPState, QPType } from '#contract/verbs/enums';
import { AccessRefusal, OutboundKind } from '#daemon/rnic/wire-port';
import { PacketOperation, Service } from '#daemon/roce/wire/opcode';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { parsed, pathOf, TransportPair } from '#test/support/transport-pair';

const { send, write, writeWithImmediate, readRequest } = OutboundKind;

function pairOf(): TransportPair {
  return new TransportPair({}, { type: QPType.uc });
}

function post(pair: TransportPair, id: number, kind: OutboundKind, length: number): void {
  const payload = Uint8Array.from({ length }, (_, index) => index * 3 + id);
  const message = { kind, remoteStag: REMOTE_KEY, immediateLo: id, ...addressAt(1000 * id) };
  pair.a.user.work.push({ id, message, payload });
}

/** Passes the packets of `a` but those with these indices. */
function passBut(pair: TransportPair, lost: readonly number[]): void {
  pair.a.pollAll(0).forEach((bytes, index) => {
    if (!lost.includes(index)) pair.b.receive(bytes, 0);
  });
}

describe('UC', () => {
  it('completes a message when its last packet has left, and expects no answer', () => {
    const pair = pairOf();
    post(pair, 0, send, 600);
    pair.b.user.receives.push(1000);
    const first = pair.a.poll(0);
    expect(parsed(first).opcode).toBe(Service.uc | PacketOperation.sendFirst);
    expect(pair.a.user.done).toEqual([]);
    if (first !== undefined) pair.b.receive(first, 0);
    pair.pass(pair.a);
    expect(pair.a.user.done).toHaveLength(1);
    expect(pair.b.user.arrivals).toHaveLength(1);
    expect(pair.b.pollAll(0)).toEqual([]);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
  });

  it('keeps the path MTU of RTR, whatever is modified under a message', () => {
    const pair = pairOf();
    pair.b.user.receives.push(1000);
    post(pair, 0, send, 600);
    for (const pathMtu of [5, 3, 1]) {
      const bytes = pair.a.poll(0);
      if (bytes !== undefined) pair.b.receive(bytes, 0);
      for (const { wire } of [pair.a, pair.b]) wire.modified(pathOf({ pathMtu }), QPState.RTS, 0);
    }
    expect(pair.a.user.done).toHaveLength(1);
    expect(pair.b.user.arrivals.map(({ bytes }) => bytes.length)).toEqual([600]);
  });

  it('drops a message with any packet missing, and takes the next one into its receive', () => {
    for (const lost of [0, 1, 2]) {
      const pair = pairOf();
      pair.b.user.receives.push(1000, 1000);
      post(pair, 0, send, 600);
      post(pair, 1, send, 300);
      passBut(pair, [lost]);
      expect(pair.b.user.arrivals).toHaveLength(1);
      expect(pair.b.user.arrivals[0]?.bytes.length).toBe(300);
      expect(pair.b.user.arrivals[0]?.bytes[0]).toBe(1);
      expect(pair.b.user.receives).toHaveLength(1);
      expect(pair.b.failure).toBeUndefined();
    }
  });

  it('continues after whole messages were lost', () => {
    const pair = pairOf();
    pair.b.user.receives.push(10, 10);
    for (let id = 0; id < 3; id += 1) post(pair, id, send, 4);
    passBut(pair, [1]);
    expect(pair.b.user.arrivals.map(({ bytes }) => bytes[0])).toEqual([0, 2]);
  });

  it('drops messages without a receive, and Writes that are not allowed', () => {
    const pair = pairOf();
    post(pair, 0, send, 4);
    pair.a.user.work.push({
      id: 1,
      message: { kind: write, remoteStag: 5 },
      payload: new Uint8Array(4),
    });
    post(pair, 2, write, 600);
    pair.pass(pair.a);
    expect(pair.b.user.arrivals).toEqual([]);
    expect(pair.b.user.writes).toBe(1);
    expect(pair.b.user.memory[2000 + 599]).toBe((599 * 3 + 2) & 0xff);
    expect(pair.a.user.done).toHaveLength(3);
    expect(pair.b.failure).toBeUndefined();
  });

  it('drops Writes that the queue pair does not permit, even with zero length', () => {
    const pair = pairOf();
    pair.b.user.receives.push(10);
    pair.b.user.refusals = { checkWriteTarget: AccessRefusal.notPermitted };
    for (const kind of [write, writeWithImmediate]) post(pair, 0, kind, 0);
    pair.pass(pair.a);
    expect(pair.b.user).toMatchObject({ arrivals: [], receives: [10], writes: 0 });
    pair.b.user.refusals = {};
    post(pair, 0, writeWithImmediate, 0);
    pair.pass(pair.a);
    expect(pair.b.user).toMatchObject({ arrivals: [{}], receives: [], writes: 1 });
  });

  it('places a Write with immediate, and delivers the immediate data if a receive is posted', () => {
    const pair = pairOf();
    post(pair, 1, writeWithImmediate, 300);
    pair.pass(pair.a);
    expect(pair.b.user.arrivals).toEqual([]);
    expect(pair.b.user.writes).toBe(1);
    pair.b.user.receives.push(0);
    post(pair, 2, writeWithImmediate, 300);
    pair.pass(pair.a);
    expect(pair.b.user.arrivals[0]?.message).toMatchObject({
      written: true,
      lengthBytes: 300,
      hasImmediate: true,
      immediateLo: 2,
    });
  });

  it('fails the queue pair of the receiver when a message is longer than its receive', () => {
    const pair = pairOf();
    pair.b.user.receives.push(299);
    post(pair, 0, send, 300);
    pair.pass(pair.a);
    expect(pair.b.failure?.by).toBe('us');
    expect(pair.a.failure).toBeUndefined();
    expect(pair.b.user.arrivals).toEqual([]);
  });

  it('fails on unsupported opcodes, and on memory that is gone', () => {
    const pair = pairOf();
    post(pair, 0, readRequest, 4);
    expect(pair.a.pollAll(0)).toEqual([]);
    expect(pair.a.failure?.by).toBe('us');
    const other = pairOf();
    other.a.user.refusals = { gather: AccessRefusal.memoryLost };
    post(other, 0, send, 4);
    expect(other.a.pollAll(0)).toEqual([]);
    expect(other.a.failure?.by).toBe('us');
  });
});
