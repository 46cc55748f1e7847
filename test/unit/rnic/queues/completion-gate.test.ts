import { describe, expect, it } from 'vitest';
import { CQEStatus, Notify, SQOpcode } from '#contract/protocol/queue-layout';
import { LentPayload } from '#daemon/rnic/memory/lent-payload';
import { NicCounters } from '#daemon/rnic/nic-counters';
import { CompletionGate } from '#daemon/rnic/queues/completion-gate';
import { CQ } from '#daemon/rnic/queues/completion-queue';
import type { CompletionRecord } from '#daemon/rnic/rings/completion-writer';
import { SlowBacking } from '#test/support/test-memory';

/** Completions that wait, and those after them. */
const HELD = 100_000;
const LATER = 500;
/** Runs, of which the cheapest counts: one without a garbage collection. */
const RUNS = 3;

type Written = [wrId: number, status: CQEStatus][];

/** A completion queue that collects what is written to it, up to `room`. */
function queueOf(written: Written, room: number): CQ {
  const writer = {
    count: room,
    bytes: new Uint8Array(),
    write: ({ wrIdLo, status }: CompletionRecord) => {
      if (written.length >= room) return false;
      written.push([wrIdLo, status]);
      return true;
    },
    armed: () => Notify.none,
    disarm: () => undefined,
    untaken: () => ({ count: 0, successes: 0 }),
  };
  return new CQ({ writer, tag: undefined }, { push: () => undefined }, () => undefined);
}

/** A gate whose completion queue has room for `room`; each completion that finds it full reports two flushed ones. */
function copyingGate(room: number) {
  const written: Written = [];
  const cq = queueOf(written, room);
  let full = 0;
  let losses = 0;
  const user = {
    qpn: 1,
    awaitWrites: () => undefined,
    handleLoss: () => {
      losses += 1;
    },
    handleReported: () => undefined,
    handleFullQueue: () => {
      full += 1;
      if (full > 1) return;
      receive(100, CQEStatus.wrFlushErr);
      receive(101, CQEStatus.wrFlushErr);
    },
    found: undefined,
    receiving: true,
    handleFailed: () => undefined,
  };
  const copier = { hasten: () => undefined, abandon: () => undefined, conclude: () => undefined };
  const gate = new CompletionGate(user, new NicCounters(), new LentPayload());
  const receive = (wrId: number, status: CQEStatus = CQEStatus.success): void => {
    gate.completion.opcode = SQOpcode.receive;
    gate.completion.status = status;
    gate.completion.wrIdLo = wrId;
    gate.completion.lengthBytes = 4;
    gate.report(cq);
  };
  /** Receives that wait for one copy each. */
  const copies = (count: number): void => {
    times(count, (wrId) => {
      gate.copyOrdered(copier);
      receive(wrId);
    });
  };
  const counts = () => ({ lost: cq.lost, losses, full });
  return { gate, user, written, copies, counts };
}

/** A gate before memory that has a write pending, and what its completion queue gets. */
function waitingGate() {
  const written: Written = [];
  const cq = queueOf(written, Number.POSITIVE_INFINITY);
  const user = {
    qpn: 1,
    awaitWrites: () => undefined,
    handleLoss: () => undefined,
    handleReported: () => undefined,
    handleFullQueue: () => undefined,
    found: undefined,
    receiving: true,
    handleFailed: () => undefined,
  };
  const gate = new CompletionGate(user, new NicCounters(), new LentPayload());
  const memory = new SlowBacking(new Uint8Array(8));
  memory.write(0, new Uint8Array(1), 0, 1);
  gate.wrote(memory);
  const fill = (opcode: SQOpcode, wrId: number): void => {
    gate.completion.opcode = opcode;
    gate.completion.status = CQEStatus.success;
    gate.completion.wrIdLo = wrId;
    gate.completion.lengthBytes = 4;
  };
  const send = (wrId: number): void => {
    fill(SQOpcode.send, wrId);
    gate.report(cq);
  };
  /** Reports an unsignalled Read. */
  const read = (wrId: number): void => {
    fill(SQOpcode.read, wrId);
    gate.reportLoss(cq);
  };
  return { gate, memory, written, send, read };
}

function times(count: number, run: (wrId: number) => void): void {
  for (let wrId = 0; wrId < count; wrId += 1) run(wrId);
}

/** Processor time of `run`, in microseconds. */
function cost(run: () => void): number {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

/** The cheapest of several runs, each of which starts over; `run` returns its cost. */
function leastOf(run: () => number): number {
  return Math.min(...Array.from({ length: RUNS }, run));
}

describe('after many completions that wait for memory', () => {
  /** The cost of visiting each waiting completion for each new one. */
  const visits = () => {
    const held = Array.from({ length: HELD }, (_, pieces) => ({ pieces }));
    let unwritten = 0;
    const took = cost(() =>
      times(LATER, () => {
        for (const { pieces } of held) if (pieces === 0) unwritten += 1;
      }),
    );
    expect(unwritten).toBe(LATER);
    return took;
  };

  it('unsignalled work is not compared with each of them', () => {
    const unsignalled = leastOf(() => {
      const { gate, send, read } = waitingGate();
      times(HELD, send);
      const took = cost(() => times(LATER, read));
      expect(gate.heldCount).toBe(HELD + 1);
      return took;
    });
    expect(unsignalled).toBeLessThan(visits() / 4);
  });

  it('data for other memory does not visit each of them', () => {
    const settled = leastOf(() => {
      const { gate, send } = waitingGate();
      const other = new SlowBacking(new Uint8Array(8));
      Object.assign(other, { writeLater: () => true, flush: () => true });
      times(HELD, send);
      const took = cost(() =>
        times(LATER, (wrId) => {
          gate.keep(other, 0, new Uint8Array(1), 0, 1);
          send(wrId);
          gate.settle();
        }),
      );
      expect(gate.heldCount).toBe(HELD + LATER);
      return took;
    });
    expect(settled).toBeLessThan(visits() / 4);
  });
});

describe('unsignalled work whose memory is lost', () => {
  it('is blamed for a loss once, and again after each opening', () => {
    const { gate, memory, written, send, read } = waitingGate();
    for (const lost of [true, false, true]) {
      send(1);
      read(2);
      read(3);
      memory.pendingWrites = 0;
      memory.writeLost = lost;
      expect(gate.release()).toBe(true);
      memory.pendingWrites = 1;
      gate.wrote(memory);
    }
    const failed = [
      [1, CQEStatus.wrFlushErr],
      [2, CQEStatus.locProtErr],
    ];
    expect(written).toEqual([...failed, [1, CQEStatus.success], ...failed]);
  });
});

describe('completions that wait for copies', () => {
  const { success, wrFlushErr, locProtErr } = CQEStatus;

  it('are written once the copies before them are over', () => {
    const { gate, written, copies } = copyingGate(8);
    copies(3);
    gate.copied('placed');
    expect([gate.release(), written]).toEqual([false, [[0, success]]]);
    gate.copied('placed');
    gate.copied('placed');
    expect([gate.release(), written.length, gate.heldCount]).toEqual([true, 3, 0]);
  });

  it('are written or lost once each if their queue is full, which flushes more', () => {
    const { gate, written, copies, counts } = copyingGate(2);
    copies(4);
    times(3, () => gate.copied('placed'));
    gate.release();
    expect(written.map(([wrId]) => wrId)).toEqual([0, 1]);
    // The flushed ones wait for the last copy, and so does the last receive.
    expect([counts().lost, gate.heldCount]).toEqual([1, 3]);
    gate.copied('placed');
    expect(gate.release()).toBe(true);
    expect([counts().lost, counts().losses, gate.heldCount]).toEqual([4, 0, 0]);
  });

  it('succeed before a lost copy, and fail from it on', () => {
    const { gate, written, copies, counts } = copyingGate(8);
    copies(4);
    for (const end of ['placed', 'lost', 'placed', 'placed'] as const) gate.copied(end);
    expect(gate.release()).toBe(true);
    expect(written).toEqual([
      [0, success],
      [1, locProtErr],
      [2, wrFlushErr],
      [3, wrFlushErr],
    ]);
    expect(counts().losses).toBe(1);
  });

  it('wait for payload that could not be read until no more data arrives', () => {
    const { gate, user, written, copies, counts } = copyingGate(8);
    copies(3);
    for (const end of ['placed', 'unread', 'placed'] as const) gate.copied(end);
    expect([gate.release(), written]).toEqual([false, [[0, success]]]);
    user.receiving = false;
    gate.endReceiving();
    expect(written.slice(1)).toEqual([
      [1, wrFlushErr],
      [2, wrFlushErr],
    ]);
    expect([counts().losses, gate.waits]).toEqual([0, false]);
  });
});
