/** Real queue pairs of two devices, joined by real transports: the port from both of its sides. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import { PACKET_BYTES_MAX, type PacketWire } from '#daemon/roce/transport/packet-wire';
import { makeWire } from '#daemon/roce/transport/transport';
import { Packet, parsePacket } from '#daemon/roce/wire/packet';
import {
  CompletionConsumer,
  ReceiveProducer,
  SendProducer,
  type SqeFields,
} from '#test/support/flag-ring-client';
import { expectOutcome } from '#test/support/outcomes';
import { ProgramRig } from '#test/support/program-rig';
import { MASKS, modify } from '#test/support/program-steps';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { success, wrFlushErr } = CQEStatus;
const GRH = new Uint8Array(40);
const PSN = 0xff_fffe;

/** A device with one queue pair. */
class Node {
  readonly rig: ProgramRig;
  readonly qp: QP;
  readonly sends: SendProducer;
  readonly receives: ReceiveProducer;
  readonly sent: CompletionConsumer;
  readonly received: CompletionConsumer;
  wire: PacketWire | undefined = undefined;
  /** Loses every packet that the device sends. */
  deaf = false;
  readonly #buffer = new Uint8Array(PACKET_BYTES_MAX);
  readonly #packet = new Packet();

  constructor(type: QPType, values: Partial<QPModification>) {
    this.rig = new ProgramRig((qp) => {
      this.wire = makeWire(qp, { type, qpn: qp.qpn, portMtuBytes: 1024 });
      return this.wire;
    });
    this.qp = this.rig.createQP(type, { sqSigAll: true });
    this.sends = new SendProducer(this.qp);
    this.receives = new ReceiveProducer(this.qp.ring, this.qp.rqOffset, this.qp.rqCount);
    this.sent = new CompletionConsumer(this.qp.sendCQ);
    this.received = new CompletionConsumer(this.qp.recvCQ);
    const [init, rtr, rts] = MASKS[type];
    const attributes = { rqPsn: PSN, sqPsn: PSN, pathMtu: 1, ...values };
    modify(this.qp, QPState.INIT, init, attributes);
    modify(this.qp, QPState.RTR, rtr, attributes);
    modify(this.qp, QPState.RTS, rts, attributes);
  }

  post(wrId: number, opcode: number, length: number, fields: Partial<SqeFields> = {}): void {
    this.sends.post({ opcode, wrId, sges: [this.piece(0, length)], ...fields });
    this.qp.doorbell(0);
  }

  receive(wrId: number, length: number): void {
    this.receives.post(wrId, [this.piece(2048, length)]);
  }

  piece(offset: number, length: number): { addr: number; length: number; lkey: number } {
    return { addr: MEMORY_ADDRESS + offset, length, lkey: this.rig.mr.lkey };
  }

  poll(now: number): Uint8Array | undefined {
    const polled = this.wire?.pollPacket(this.#buffer, 0, now) ?? 0;
    const length = this.wire?.endPolling() === true ? polled : 0;
    this.settle(now);
    return length === 0 || this.deaf ? undefined : this.#buffer.slice(0, length);
  }

  handle(bytes: Uint8Array, now: number): void {
    parsePacket(bytes, 0, bytes.length, this.#packet);
    this.wire?.handlePacket(this.#packet, bytes, now, GRH);
    this.wire?.handleInputEnd(now);
    this.settle(now);
  }

  /** Does the host's work after each call. */
  settle(now: number): void {
    const failed = this.wire?.pollFailure();
    if (failed !== undefined) this.qp.terminated(failed.by, failed.failure, now);
    this.events.push(...this.rig.asyncEvents());
    this.qp.assertInvariants();
  }
  readonly events: AsyncEventType[] = [];
}

/** Two nodes, and the time. */
class Two {
  readonly a: Node;
  readonly b: Node;
  now = 0;

  constructor(
    values: Partial<QPModification> = {},
    ofB: Partial<QPModification> = {},
    type: QPType = QPType.rc,
  ) {
    this.a = new Node(type, values);
    this.b = new Node(type, { ...values, ...ofB });
    for (let index = 0; index < 2048; index += 1) this.a.rig.memory[index] = index * 5;
  }

  /** Delivers packets and advances time until idle, or for this many deadlines. */
  run(deadlines = 50): void {
    for (let left = deadlines; ; left -= 1) {
      this.#exchange();
      const next = Math.min(this.#next(this.a), this.#next(this.b));
      if (left === 0 || !Number.isFinite(next)) return;
      this.now = Math.max(this.now, next);
      for (const node of [this.a, this.b]) {
        if (this.#next(node) <= this.now) node.wire?.handleDeadline(this.now);
        node.settle(this.now);
      }
    }
  }

  #next({ wire }: Node): number {
    return wire?.nextDeadline() ?? Number.POSITIVE_INFINITY;
  }

  #exchange(): void {
    for (let idle = 0; idle < 3; ) {
      const fromA = this.a.poll(this.now);
      if (fromA !== undefined) this.b.handle(fromA, this.now);
      const fromB = this.b.poll(this.now);
      if (fromB !== undefined) this.a.handle(fromB, this.now);
      idle = fromA === undefined && fromB === undefined ? idle + 1 : 0;
    }
  }
}

describe('two queue pairs of RC', () => {
  it('send, write, read and do atomics, and complete in order', () => {
    const two = new Two({ accessFlags: 15 });
    const { a, b } = two;
    const remote = { rkey: b.rig.mr.rkey, raddr: BigInt(MEMORY_ADDRESS) };
    b.receive(7, 1000);
    a.post(1, SQOpcode.send, 700);
    a.post(2, SQOpcode.write, 600, remote);
    a.post(3, SQOpcode.read, 600, { ...remote, sges: [a.piece(3000, 600)] });
    const word = {
      sges: [a.piece(4000, 8)],
      rkey: b.rig.mr.rkey,
      raddr: BigInt(MEMORY_ADDRESS + 3200),
    };
    a.post(4, SQOpcode.fetchAndAdd, 8, { ...word, operand: 5n });
    a.post(5, SQOpcode.send, 0);
    two.run(0);
    expectOutcome(a.sent, [1, success], [2, success], [3, success], [4, success]);
    b.receive(8, 0);
    two.run();
    expectOutcome(a.sent, [5, success]);
    expectOutcome(b.received, [7, success], [8, success]);
    expect(b.rig.memory.subarray(2048, 2748)).toEqual(a.rig.memory.subarray(0, 700));
    expect(b.rig.memory.subarray(0, 600)).toEqual(a.rig.memory.subarray(0, 600));
    expect(a.rig.memory.subarray(3000, 3600)).toEqual(a.rig.memory.subarray(0, 600));
    expect(a.qp.state).toBe(QPState.RTS);
    expect(a.qp.queryPath()).toMatchObject({ sqPsn: 9 });
    expect(b.qp.queryPath()).toMatchObject({ rqPsn: 9 });
  });

  it('answer requests before the one that they refuse', () => {
    const two = new Two();
    const { a, b } = two;
    const remote = { rkey: b.rig.mr.rkey, raddr: BigInt(MEMORY_ADDRESS) };
    a.post(1, SQOpcode.read, 600, remote);
    // The queue pair does not permit atomics.
    a.post(2, SQOpcode.fetchAndAdd, 8, { ...remote, operand: 5n });
    two.run();
    expectOutcome(a.sent, [1, success], [2, CQEStatus.remInvReqErr]);
  });

  it('complete work only once the peer has it', () => {
    const two = new Two({ rnrRetry: 7 });
    two.a.post(1, SQOpcode.send, 10);
    two.run(20);
    expectOutcome(two.a.sent);
    two.b.receive(2, 10);
    two.run();
    expectOutcome(two.a.sent, [1, success]);
  });

  it('give up after rnr_retry retries without a posted receive', () => {
    const two = new Two({ rnrRetry: 2 });
    two.a.post(1, SQOpcode.send, 10);
    two.a.post(2, SQOpcode.send, 10);
    two.run();
    expectOutcome(two.a.sent, [1, CQEStatus.rnrRetryExcErr], [2, wrFlushErr]);
    expect(two.a.qp.state).toBe(QPState.ERR);
    expect(two.b.qp.state).toBe(QPState.RTS);
  });

  it('give up on a peer that does not answer', () => {
    const two = new Two({ retryCnt: 2 });
    two.b.deaf = true;
    two.a.post(1, SQOpcode.write, 10, { rkey: 1, raddr: 1n });
    two.a.post(2, SQOpcode.send, 10);
    two.run();
    expectOutcome(two.a.sent, [1, CQEStatus.retryExcErr], [2, wrFlushErr]);
    expect(two.a.qp.state).toBe(QPState.ERR);
    // Three tries of 4.096 microseconds times 2^12.
    expect(two.now).toBeCloseTo(3 * 4.096 * 2 ** 12);
  });

  it('fail both when the peer may not access the memory', () => {
    for (const opcode of [SQOpcode.write, SQOpcode.read]) {
      const two = new Two();
      two.b.receive(5, 10);
      two.a.post(1, opcode, 10, { rkey: two.b.rig.mr.rkey, raddr: BigInt(MEMORY_ADDRESS + 4090) });
      two.a.post(2, SQOpcode.send, 1);
      two.run();
      expectOutcome(two.a.sent, [1, CQEStatus.remAccessErr], [2, wrFlushErr]);
      expectOutcome(two.b.received, [5, wrFlushErr]);
      expect(two.b.qp.state).toBe(QPState.ERR);
      expect(two.b.events).toContain(AsyncEventType.qpAccessErr);
    }
  });

  it('fail with an invalid request if the queue pair does not permit it', () => {
    const two = new Two({}, { accessFlags: Access.localWrite });
    two.a.post(1, SQOpcode.write, 10, { rkey: two.b.rig.mr.rkey, raddr: BigInt(MEMORY_ADDRESS) });
    two.run();
    expectOutcome(two.a.sent, [1, CQEStatus.remInvReqErr]);
    expect(two.b.qp.state).toBe(QPState.ERR);
  });

  it('fail with a remote operational error when a Send is longer than its receive', () => {
    const two = new Two();
    two.b.receive(5, 9);
    two.b.receive(6, 9);
    two.a.post(1, SQOpcode.send, 10);
    two.run();
    expectOutcome(two.a.sent, [1, CQEStatus.remOpErr]);
    const [[id, status] = [], other] = two.b.received.outcome();
    expect([id, status === success || status === wrFlushErr]).toEqual([5, false]);
    expect(other).toEqual([6, wrFlushErr]);
    expect(two.b.qp.state).toBe(QPState.ERR);
  });

  it('drain in SQD: started work is acknowledged first', () => {
    const two = new Two({ rnrRetry: 7 });
    two.a.post(1, SQOpcode.send, 10);
    two.run(3);
    modify(two.a.qp, QPState.SQD);
    expect(two.a.qp.queryPath().draining).toBe(true);
    two.b.receive(2, 10);
    two.run();
    expectOutcome(two.a.sent, [1, success]);
    expect(two.a.events).toContain(AsyncEventType.sqDrained);
    expect(two.a.qp.queryPath().draining).toBe(false);
  });
});

describe('two queue pairs of UC', () => {
  it('complete at once, whether the peer has it or not', () => {
    const two = new Two({}, {}, QPType.uc);
    two.a.post(1, SQOpcode.send, 700);
    two.run();
    two.b.receive(5, 700);
    two.a.post(2, SQOpcode.send, 700);
    two.run();
    expectOutcome(two.a.sent, [1, success], [2, success]);
    expectOutcome(two.b.received, [5, success]);
    expect(two.b.rig.memory.subarray(2048, 2748)).toEqual(two.a.rig.memory.subarray(0, 700));
  });
});
