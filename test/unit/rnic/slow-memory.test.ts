import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, Notify, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, AsyncEventType, QPState } from '#contract/verbs/enums';
import { NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { MEMORY_ADDRESS, SlowBacking, WatchedBacking } from '#test/support/test-memory';

let rig: NicRig;
let slow: SlowBacking;

beforeEach(() => {
  rig = new NicRig({
    access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
    backing: (bytes) => {
      slow = new SlowBacking(bytes);
      return slow;
    },
  });
});

describe('memory that must be fetched', () => {
  it('delays a Send until its bytes arrive, then continues', () => {
    rig.memory.set([4, 5], 0);
    rig.send({ opcode: SQOpcode.send, wrId: 1, sges: [rig.piece(0, 2)] });
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expect(rig.stream.sent).toEqual([]);
    slow.fetch();
    expect(rig.stream.sent.map(({ payload }) => payload)).toEqual([[4, 5], []]);
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0]);
  });

  it('makes the engine wait for a read source, and pumps when it arrives', () => {
    let pumps = 0;
    rig.stream.pump = () => {
      pumps += 1;
    };
    expect(rig.qp.prepareReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS, 4)).toBe(false);
    slow.fetch();
    expect(pumps).toBe(1);
    expect(rig.qp.prepareReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS, 4)).toBe(true);
  });

  it('leaves a refused source to the following gather', () => {
    expect(rig.qp.prepareReadSource(0xbad, 0, MEMORY_ADDRESS, 4)).toBe(true);
    expect(rig.qp.gatherReadSource(0xbad, 0, MEMORY_ADDRESS, 4, new Uint8Array(4), 0)).not.toBe(0);
  });
});

describe('completions after slow writes', () => {
  it('are reported when the data are in place, with their notification', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.recvCompletions.arm(Notify.any);
    rig.receive([7]);
    expect(rig.recvCompletions.poll()).toEqual([]);
    expect(rig.effects()).toEqual([]);
    slow.settle();
    expect(rig.memory[0]).toBe(7);
    expectOutcome(rig.recvCompletions, [1, 0]);
    expect(rig.effects()).toMatchObject([{ type: 'completion' }, { type: 'transmit' }]);
  });

  it('keep their order, and hold back later ones', () => {
    rig.receives.post(1, []);
    rig.receives.post(2, []);
    rig.write(rig.mr.rkey, BigInt(MEMORY_ADDRESS), [9]);
    rig.receive([]);
    rig.send({ opcode: SQOpcode.send, wrId: 3 });
    slow.pendingWrites = 1;
    slow.fetch();
    expect(rig.recvCompletions.poll()).toEqual([]);
    slow.settle();
    rig.receive([]);
    expectOutcome(rig.recvCompletions, [1, 0], [2, 0]);
    expectOutcome(rig.sendCompletions, [3, 0]);
  });

  it('are reported by the next completion when the owner was quicker than its report', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.receive([7]);
    slow.pendingWrites = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expectOutcome(rig.recvCompletions, [1, 0]);
    expectOutcome(rig.sendCompletions, [2, 0]);
  });

  it('are flushed with a destroyed QP: nothing is reported later', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.receive([7]);
    rig.receives.post(2, [rig.piece(0, 8)]);
    rig.qp.close(0);
    expectOutcome(rig.recvCompletions, [1, CQEStatus.wrFlushErr], [2, CQEStatus.wrFlushErr]);
    slow.settle();
    expectOutcome(rig.recvCompletions);
  });

  it('are dropped with the work of a QP that is reset', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.receive([7]);
    rig.qp.modify(QPState.ERR, 0);
    rig.qp.modify(QPState.RESET, 0);
    slow.settle();
    expectOutcome(rig.recvCompletions);
  });
});

describe('data that did not reach its memory', () => {
  /** Reads into the slow memory, up to the arrival of the response. */
  function readInto(wrId: number, flags?: number): void {
    rig.send({
      opcode: SQOpcode.read,
      wrId,
      rkey: 7,
      sges: [rig.piece(0, 4)],
      ...(flags === undefined ? {} : { flags }),
    });
    rig.qp.placeReadResponse(rig.mr.lkey, 0, MEMORY_ADDRESS, Uint8Array.of(1, 2, 3, 4), 0, 4);
    rig.qp.readCompleted();
  }

  it('fails the first work that brought data, and flushes what waited after it', () => {
    readInto(1);
    readInto(2);
    rig.send({ opcode: SQOpcode.send, wrId: 3 });
    slow.lose();
    expectOutcome(
      rig.sendCompletions,
      [1, CQEStatus.locProtErr],
      [2, CQEStatus.wrFlushErr],
      [3, CQEStatus.wrFlushErr],
    );
    expect(rig.nic.counters).toMatchObject({ completions: 3, failures: 1, flushes: 2 });
  });

  it('fails an unsignalled Read that brought it, not the work that waited for the Read', () => {
    readInto(1, 0);
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expectOutcome(rig.sendCompletions);
    slow.lose();
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr], [2, CQEStatus.wrFlushErr]);
    expect(rig.qp.state).toBe(QPState.ERR);
  });

  it('fails an atomic that brought it', () => {
    rig.send({ opcode: SQOpcode.fetchAndAdd, wrId: 1, rkey: 7, sges: [rig.piece(0, 8)] });
    rig.qp.atomicCompleted(0, 5);
    slow.lose();
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr]);
  });

  it('completes no unsignalled work if its data arrived or its QP is destroyed', () => {
    readInto(1, 0);
    readInto(2, 0);
    rig.send({ opcode: SQOpcode.send, wrId: 3 });
    slow.settle();
    expectOutcome(rig.sendCompletions, [3, 0]);
    readInto(4, 0);
    rig.qp.close(0);
    slow.lose();
    expectOutcome(rig.sendCompletions);
    expect(rig.nic.counters.completions).toBe(1);
  });
});

describe('a QP in error', () => {
  it('completes on destruction the work posted since its last flush', () => {
    rig.qp.modify(QPState.ERR, 0);
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.qp.close(0);
    expectOutcome(rig.recvCompletions, [1, CQEStatus.wrFlushErr]);
  });
});

describe('the order of reports to the stream', () => {
  it('reports a failure found inside the engine only after the engine returns', () => {
    const rig = new NicRig();
    rig.sends.post({ opcode: 99, wrId: 1 });
    // The engine pumps without a call here, as it does after received bytes.
    rig.stream.pump();
    expect(rig.qp.state).toBe(QPState.ERR);
    expect(rig.stream.calls).toEqual([]);
    expect(rig.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.qpFatal },
      { type: 'failed', work: { wrId: 1n } },
      { type: 'disconnect' },
    ]);
    expect(rig.stream.calls).toHaveLength(1);
  });
});

describe('a client that keeps posting while its queue is processed', () => {
  it('is flushed a ring at a time, and again in a later turn', () => {
    const rig = new NicRig({ cqe: 256, sqCount: 4 });
    const watched = new WatchedBacking(rig.memory);
    const mr = rig.register(rig.pd, { backing: watched });
    // While a write is pending, each completion asks the memory; the client posts meanwhile.
    watched.pending = 1;
    rig.write(mr.rkey, BigInt(MEMORY_ADDRESS), [1]);
    let posted = 0;
    watched.onAsked = () => {
      if (rig.sends.full) return;
      posted += 1;
      rig.sends.post({ opcode: SQOpcode.send, wrId: posted });
    };
    rig.sends.post({ opcode: SQOpcode.send, wrId: 0 });
    rig.qp.modify(QPState.ERR, 0);
    expect(posted).toBeGreaterThanOrEqual(4);
    expect(posted).toBeLessThan(20);
    expect(rig.effects().map(({ type }) => type)).toEqual(['abort', 'resume']);
    watched.onAsked = () => undefined;
    watched.pending = 0;
    watched.onReady?.();
    rig.effects();
    rig.qp.doorbell(0);
    expect(rig.effects()).toEqual([]);
    const notified = rig.sendCompletions.poll().map(({ wrId }) => wrId);
    expect(notified).toEqual(Array.from({ length: posted + 1 }, (_, wrId) => wrId));
  });
});
