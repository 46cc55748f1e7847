/** Queues that a client makes as deep as possible: one call handles a share of them. */
import { describe, expect, it } from 'vitest';
import { AsyncEventType, QPState, QPType, WCStatus } from '#contract/verbs/enums';
import type { NicEffect } from '#daemon/rnic/effect';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { TURN_ELEMENTS_MAX } from '#daemon/rnic/rings/ring';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { IndexRingClient } from '#test/support/index-ring-client';
import { NicRig, NO_MESSAGE } from '#test/support/nic-rig';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo, modify } from '#test/support/program-steps';
import { queueSizes } from '#test/support/queue-sizes';

const { RESET, RTS, ERR } = QPState;
/** Elements of a queue; its ring has one slot more. */
const DEPTH = 8191;
const flushed = WCStatus.wrFlushErr;

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** A queue pair whose client marks elements as posted only by the index. */
class DeepRig extends ProgramRig {
  readonly cq: CQ;
  readonly qp: QP;
  readonly sends: IndexRingClient;
  readonly receives: IndexRingClient;
  readonly completions: IndexRingClient;

  constructor(cqe: number, srq?: (rig: ProgramRig) => SRQ) {
    super();
    this.cq = this.nic.createCQ({ cqe, kind: 'indices', ring, tag: undefined });
    const shared = srq?.(this);
    const { qp, rings } = this.another(shared);
    this.qp = qp;
    this.sends = new IndexRingClient(rings[0] ?? new Uint8Array());
    this.receives = new IndexRingClient(shared?.ring ?? rings[1] ?? new Uint8Array());
    this.completions = new IndexRingClient(this.cq.ring);
  }

  /** One more queue pair, and its rings. */
  another(shared?: SRQ): { readonly qp: QP; readonly rings: readonly Uint8Array[] } {
    const rings: Uint8Array[] = [];
    const qp = this.createQP(QPType.rc, {
      kind: 'indices',
      sendCQ: this.cq,
      recvCQ: this.cq,
      srq: shared,
      capabilities: queueSizes(DEPTH, shared === undefined ? DEPTH : 0),
      ring: (bytes) => {
        rings.push(new Uint8Array(bytes));
        return rings.at(-1) ?? new Uint8Array();
      },
    });
    bringTo(qp, RTS);
    this.effects();
    return { qp, rings };
  }

  /** The device's notifications of its host since the last call. */
  effects(): NicEffect[] {
    const effects: NicEffect[] = [];
    for (let effect = this.nic.pollEffect(); effect; effect = this.nic.pollEffect()) {
      effects.push(effect);
    }
    return effects;
  }

  /** Marks `count` elements of a ring as posted, numbered from `first`. */
  post(queue: IndexRingClient, count: number, first = 0): void {
    for (let index = 0; index < count; index += 1) {
      queue.view.setBigUint64(queue.slot(queue.producer + index), BigInt(first + index), true);
    }
    queue.producer = (queue.producer + count) & queue.mask;
  }

  /** Types of the effects since the last call. */
  notified(): string[] {
    return this.effects().map(({ type }) => type);
  }

  /** Runs turns until the queue pair requests no more; returns their number. */
  resume(): number {
    let turns = 0;
    while (this.notified().includes('resume')) {
      turns += 1;
      this.qp.doorbell(0);
    }
    return turns;
  }
}

describe('a deep queue pair in error', () => {
  it('flushes a share of each queue at once, and the rest in turns that it requests', () => {
    const rig = new DeepRig(2 * DEPTH);
    rig.post(rig.sends, DEPTH);
    rig.post(rig.receives, DEPTH, 100_000);
    modify(rig.qp, ERR);
    const first = rig.completions.outcome();
    expect(first).toHaveLength(2 * TURN_ELEMENTS_MAX);
    expect(first.slice(0, 2)).toEqual([
      [0, flushed],
      [1, flushed],
    ]);
    expect(rig.resume()).toBe(7);
    const all = [...first, ...rig.completions.outcome()].map(([wrId]) => wrId);
    const inOrder = Array.from({ length: DEPTH }, (_, index) => index);
    expect(all.filter((wrId) => wrId < 100_000)).toEqual(inOrder);
    expect(all.filter((wrId) => wrId >= 100_000).map((wrId) => wrId - 100_000)).toEqual(inOrder);
    expect([rig.sends.consumer, rig.receives.consumer]).toEqual([DEPTH, DEPTH]);
  });

  it('goes to RESET meanwhile, and keeps later posts', () => {
    const rig = new DeepRig(2 * DEPTH);
    rig.post(rig.sends, DEPTH);
    modify(rig.qp, ERR);
    expect(rig.completions.outcome()).toHaveLength(TURN_ELEMENTS_MAX);
    modify(rig.qp, RESET);
    expect(rig.sends.consumer).toBe(DEPTH);
    rig.qp.doorbell(0);
    bringTo(rig.qp, RTS);
    rig.post(rig.sends, 3, 50_000);
    modify(rig.qp, ERR);
    rig.resume();
    expect(rig.completions.outcome()).toEqual([50_000, 50_001, 50_002].map((id) => [id, flushed]));
  });

  it('is destroyed meanwhile: a turn that it requested finds nothing', () => {
    const rig = new DeepRig(2 * DEPTH);
    rig.post(rig.sends, DEPTH);
    modify(rig.qp, ERR);
    rig.qp.close(0);
    const notified = rig.completions.outcome().length;
    rig.qp.doorbell(0);
    expect(rig.completions.outcome()).toEqual([]);
    expect(notified).toBe(TURN_ELEMENTS_MAX);
    rig.nic.assertDeepInvariants();
  });

  it('counts at once the completions that a full queue loses, and reports one loss of each queue', () => {
    const rig = new DeepRig(15);
    rig.post(rig.sends, DEPTH);
    rig.post(rig.receives, DEPTH);
    modify(rig.qp, ERR);
    const events = rig.effects().filter(({ type }) => type === 'async');
    expect(events).toHaveLength(2);
    expect(events[0]).toMatchObject({ event: AsyncEventType.cqErr, object: rig.cq });
    expect(rig.completions.outcome()).toHaveLength(15);
    expect(rig.cq.lost).toBe(2 * DEPTH - 15);
    expect(rig.nic.counters).toMatchObject({ completions: 2 * DEPTH, flushes: 2 * DEPTH });
    expect([rig.sends.consumer, rig.receives.consumer]).toEqual([DEPTH, DEPTH]);
    expect(rig.receives.shown).toBe(DEPTH);
    // There is room again.
    rig.post(rig.sends, 1, 7);
    rig.qp.doorbell(0);
    expect(rig.completions.outcome()).toEqual([[7, flushed]]);
  });

  it('is one of the few with later receives flushed in one turn', () => {
    const rig = new DeepRig(8 * DEPTH);
    const others = Array.from({ length: 5 }, () => rig.another());
    for (const { qp, rings } of others) {
      modify(qp, ERR);
      rig.post(new IndexRingClient(rings[1] ?? new Uint8Array()), 1000);
    }
    rig.effects();
    expect(rig.nic.flushErrored(0)).toBe(5);
    expect(rig.completions.outcome()).toHaveLength(4000);
    expect(rig.effects()).toEqual([{ type: 'resume', qp: others[4]?.qp }]);
    others[4]?.qp.doorbell(0);
    expect(rig.completions.outcome()).toHaveLength(1000);
  });

  it('does the same in rings with flags', () => {
    const rig = new NicRig({ sqCount: 4096, cqe: 8192 });
    for (let wrId = 0; wrId < 4096; wrId += 1) rig.sends.post({ opcode: 1, wrId });
    rig.qp.modify(ERR, 0);
    expect(rig.sendCompletions.poll()).toHaveLength(TURN_ELEMENTS_MAX);
    expect(rig.effects().map(({ type }) => type)).toContain('resume');
    for (let turn = 0; turn < 3; turn += 1) rig.qp.doorbell(0);
    const rest = rig.sendCompletions.poll().map(({ wrId }) => wrId);
    expect(rest).toEqual(Array.from({ length: 3072 }, (_, index) => index + 1024));
  });
});

describe('a shared receive queue that is resized while receives are posted', () => {
  const shared = ({ nic, pd }: ProgramRig): SRQ =>
    nic.createSRQ(pd, { maxWr: DEPTH, maxSge: 1, srqLimit: 0, ring, tag: 0, kind: 'indices' });

  const take = (rig: DeepRig): number => {
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.none);
    rig.qp.completeReceive(NO_MESSAGE);
    return rig.completions.poll()?.wrId ?? -1;
  };

  it('takes them from the old ring, and releases it with the last one', () => {
    const rig = new DeepRig(63, shared);
    const { srq } = rig.qp;
    if (srq === undefined) throw new Error('no shared queue');
    const released: string[] = [];
    rig.post(rig.receives, 3, 1);
    srq.resize(100, ring, () => released.push('first'));
    const second = new IndexRingClient(srq.ring);
    expect([second.mask, second.producer, second.consumer]).toEqual([127, 3, 0]);
    rig.post(second, 2, 4);
    expect(take(rig)).toBe(1);
    expect(second.consumer).toBe(1);
    srq.resize(50, ring, () => released.push('second'));
    const third = new IndexRingClient(srq.ring);
    expect([third.mask, third.producer, third.consumer]).toEqual([63, 4, 0]);
    rig.post(third, 1, 6);
    expect(released).toEqual([]);
    expect([take(rig), take(rig)]).toEqual([2, 3]);
    expect(released).toEqual(['first']);
    expect(() => srq.resize(2, ring)).toThrow('holds 3 receives');
    expect([take(rig), take(rig)]).toEqual([4, 5]);
    expect(released).toEqual(['first', 'second']);
    expect(take(rig)).toBe(6);
    expect([third.producer, third.consumer]).toEqual([5, 5]);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.noBuffer);
    rig.post(third, 1, 7);
    expect(take(rig)).toBe(7);
  });

  it('releases empty rings at once, and the others when it is destroyed', () => {
    const rig = new DeepRig(63, shared);
    const { srq } = rig.qp;
    const released: string[] = [];
    srq?.resize(100, ring, () => released.push('empty'));
    expect(released).toEqual(['empty']);
    rig.post(new IndexRingClient(srq?.ring ?? new Uint8Array()), 2);
    srq?.resize(200, ring, () => released.push('posted'));
    expect(released).toEqual(['empty']);
    rig.qp.close(0);
    srq?.close();
    expect(released).toEqual(['empty', 'posted']);
  });

  it('does not copy posted receives, however many there are', () => {
    const rig = new DeepRig(63, shared);
    const { srq } = rig.qp;
    rig.receives.producer = rig.receives.mask - 1;
    let bytesOfRing = new Uint8Array();
    srq?.resize(DEPTH, (bytes) => {
      bytesOfRing = new Uint8Array(bytes).fill(0xa5);
      return bytesOfRing;
    });
    expect(bytesOfRing.subarray(384).every((byte) => byte === 0xa5)).toBe(true);
  });
});
