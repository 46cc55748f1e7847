import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { QPType } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { PacketOperation, Service } from '#daemon/roce/wire/opcode';
import { parsed, TransportPair } from '#test/support/transport-pair';

const { send, sendWithImmediate, write } = OutboundKind;
const ADDRESS = { dgid: new Uint8Array(16).fill(9) };
const QKEY = 0x1111;

function pairOf(): TransportPair {
  return new TransportPair({}, { type: QPType.ud, qpn: 0x77, portMtuBytes: 1024 });
}

function post(
  pair: TransportPair,
  id: number,
  length: number,
  fields: { kind?: OutboundKind; qkey?: number; immediateLo?: number } = {},
): void {
  const payload = Uint8Array.from({ length }, (_, index) => index + id);
  const message = { kind: send, address: ADDRESS, remoteQpn: 0x55, qkey: QKEY, ...fields };
  pair.a.user.work.push({ id, message, payload });
}

describe('UD', () => {
  it('sends one packet to the address of the work request, which completes at once', () => {
    const pair = pairOf();
    post(pair, 0, 1024);
    const bytes = pair.a.poll(0);
    expect(parsed(bytes)).toMatchObject({
      opcode: Service.ud | PacketOperation.sendOnly,
      destQpn: 0x55,
      sourceQpn: 0x77,
      qkey: QKEY,
      psn: 100,
      payloadLength: 1024,
    });
    expect(pair.a.wire.destination).toBe(ADDRESS);
    expect(pair.a.user.done).toHaveLength(1);
    expect(pair.a.poll(0)).toBeUndefined();
  });

  it('delivers the GRH, the payload and the sender', () => {
    const pair = pairOf();
    pair.b.user.receives.push(100, 100);
    post(pair, 5, 4);
    post(pair, 0, 0, { kind: sendWithImmediate, immediateLo: 0xffff_fffe });
    pair.pass(pair.a);
    const [first, second] = pair.b.user.arrivals;
    expect(first?.bytes.length).toBe(44);
    expect([...(first?.bytes.subarray(0, 2) ?? [])]).toEqual([0xa0, 0xa1]);
    expect([...(first?.bytes.subarray(39) ?? [])]).toEqual([0xc7, 5, 6, 7, 8]);
    expect(first?.message).toMatchObject({ lengthBytes: 44, sourceQpn: 0x77, hasImmediate: false });
    expect(second?.message).toMatchObject({
      lengthBytes: 40,
      hasImmediate: true,
      immediateLo: 0xffff_fffe,
    });
    expect(pair.b.pollAll(0)).toEqual([]);
  });

  it('drops datagrams with another Q_Key, or without a receive', () => {
    const pair = pairOf();
    post(pair, 0, 4);
    pair.pass(pair.a);
    pair.b.user.receives.push(100);
    post(pair, 1, 4, { qkey: QKEY + 1 });
    pair.pass(pair.a);
    expect(pair.b.user.receives).toHaveLength(1);
    // With its upper bit, a Q_Key stands for the sender's own.
    post(pair, 2, 4, { qkey: 0x8000_0005 });
    pair.pass(pair.a);
    expect(pair.b.user.arrivals).toHaveLength(1);
    expect(pair.b.failure).toBeUndefined();
    expect(pair.a.user.done).toHaveLength(3);
  });

  it('completes an oversized datagram without a packet', () => {
    const pair = pairOf();
    for (let id = 0; id < 200; id += 1) post(pair, id, 1025);
    post(pair, 200, 1);
    // A queue of only such datagrams does not block the host, and is not forgotten.
    let polls = 0;
    let bytes = pair.a.poll(0);
    for (; bytes === undefined; bytes = pair.a.poll(0)) {
      expect(pair.a.user.done.length).toBeLessThan(200);
      expect(pair.a.wire.nextDeadline()).toBe(0);
      pair.a.deadline(0);
      polls += 1;
    }
    expect(polls).toBeGreaterThan(1);
    expect(parsed(bytes).payloadLength).toBe(1);
    expect(pair.a.wire.nextDeadline()).toBe(NEVER);
    expect(pair.a.failure).toBeUndefined();
  });

  it('fails the queue pair of the receiver when GRH and payload are longer than the receive', () => {
    const pair = pairOf();
    pair.b.user.receives.push(43);
    post(pair, 0, 4);
    pair.pass(pair.a);
    expect(pair.b.failure?.by).toBe('us');
    expect(pair.b.user.arrivals).toEqual([]);
  });

  it('fails on unsupported opcodes', () => {
    const pair = pairOf();
    post(pair, 0, 4, { kind: write });
    expect(pair.a.pollAll(0)).toEqual([]);
    expect(pair.a.failure?.by).toBe('us');
  });
});
