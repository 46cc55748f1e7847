/**
 * Holds completions back until their data is in the owner's memory, as a completion promises.
 *
 * Segments that a backing gathers into one transfer are written (`settle`) before anything
 * succeeds: a receive that is complete meanwhile waits for that. Where writes take time (agent
 * tier), a completion waits for them, and later ones wait for it. If the memory is gone, every later
 * completion fails, and the QP enters the error state.
 */
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { assert } from '../invariants/assert.ts';
import type { CQ } from './completion-queue.ts';
import { Completion } from './completion-writer.ts';
import { type Cause, MEMORY_GONE } from './failure-cause.ts';
import { KeptPieces, type PieceKind } from './kept-pieces.ts';
import type { MemoryBacking } from './memory-backing.ts';
import { countCompletion, type NicCounters } from './nic-counters.ts';

/** Operations whose completion promises that data is in the program's memory. */
const DATA_OPCODES: ReadonlySet<number> = new Set([
  SQOpcode.receive,
  SQOpcode.read,
  SQOpcode.readLocalInv,
  SQOpcode.fetchAndAdd,
  SQOpcode.compAndSwap,
]);

/** Entries of waiting completions that are kept for reuse. */
const HELD_KEPT_MAX = 256;

/** Waiting completions at which a flush pauses: they will be written in one turn. */
const HELD_FLUSHED_MAX = 4096;

/** A waiting completion. */
interface HeldCompletion {
  cq: CQ;
  readonly completion: Completion;
  /** False for one that the program gets only if it fails: its work request is unsignalled. */
  reported: boolean;
  /** Unwritten pieces before it. */
  pieces: number;
}

/** A piece that did not reach its memory. */
interface LostPiece {
  /** Pieces before it. */
  readonly index: number;
  readonly kind: PieceKind;
}

/** The queue pair of a gate. */
export interface GateUser {
  readonly qpn: number;
  found: Cause | undefined;
  /** Asks for a call of `release` once memory is ready. */
  awaitWrites(): void;
  /** Accepted data did not reach its memory. What it was, unless a completion says so. */
  handleLoss(kind: PieceKind | undefined): void;
  /** The oldest receive that was given back and not reported is in its completion queue, or lost. */
  handleReported(): void;
  /** The completion of a receive found its queue full. */
  handleFullQueue(): void;
  /** A completion in error, before it is in its queue. */
  handleFailed(completion: Completion): void;
}

/** Of gates that never waited; both stay empty. */
const NONE_WRITING = new Set<MemoryBacking>();
const NONE_HELD: HeldCompletion[] = [];

/** Filled in for each report of any gate: none lasts longer than its call. */
const COMPLETION = new Completion();

/** The gate that a queue pair's completions pass through. */
export class CompletionGate {
  /** Backings that this QP wrote to and that had writes pending at the last check. */
  #writing: Set<MemoryBacking> = NONE_WRITING;
  #writeLost = false;
  /** What is placed from here on. */
  kind: PieceKind = 'write';
  /** The backing that holds unwritten segments for this QP, if any, and what they are. */
  #keeper: MemoryBacking | undefined = undefined;
  #pieces: KeptPieces | undefined = undefined;
  /** The first `#heldCount` wait; the others are kept to be used again. */
  #held = NONE_HELD;
  #heldCount = 0;
  /** True if a waiting completion promises data. Cached, since searching takes too long for each report. */
  #holdsData = false;
  readonly #user: GateUser;
  readonly #counters: NicCounters;

  constructor(user: GateUser, counters: NicCounters) {
    this.#user = user;
    this.#counters = counters;
  }

  /** Fill in before each `report` or `reportLoss`, except for `qpn`. */
  get completion(): Completion {
    return COMPLETION;
  }

  /** Completions that wait. */
  get heldCount(): number {
    return this.#heldCount;
  }

  /** True while segments are unwritten: nothing succeeds before they are written. */
  get keeps(): boolean {
    return this.#keeper !== undefined;
  }

  /** True while memory that was written to has not confirmed it. */
  get waits(): boolean {
    return this.#writing.size > 0;
  }

  // RDMAP-7.1-02: the loss of a Write with nothing behind it is detected, too.
  /** Records a backing whose writes take time. */
  wrote(backing: MemoryBacking): void {
    if (this.#writing === NONE_WRITING) this.#writing = new Set();
    this.#writing.add(backing);
    this.#user.awaitWrites();
  }

  /**
   * Has `backing` keep a segment, of `kind`. Those of another backing are written first, in stream
   * order. Returns false when they were lost, or when the memory of this one is gone.
   */
  keep(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): boolean {
    this.#pieces ??= new KeptPieces();
    const pieces = this.#pieces;
    if (this.#keeper !== backing || pieces.full) {
      if (!this.settle()) return false;
      this.#keeper = backing;
    }
    if (backing.writeLater?.(offset, bytes, start, length, this) !== true) return false;
    pieces.add(this.kind, offset, bytes, start, length);
    return true;
  }

  // RDMAP-5.2.2-04, RDMAP-5.5-04, RDMAP-5.5-05: only data that is in place may be reported.
  /** Writes all held segments. False when memory was gone; the queue pair has then failed. */
  settle(): boolean {
    const keeper = this.#keeper;
    if (keeper === undefined) return true;
    const lost = this.#writeKept(keeper);
    const told = lost !== undefined && this.#failHeld(lost);
    this.#forgetPieces();
    if (this.#heldCount > 0 && !this.release()) this.#user.awaitWrites();
    if (lost !== undefined) this.#user.handleLoss(told ? undefined : lost.kind);
    return lost === undefined;
  }

  /** What still waits, for memory that takes its time, waits for no piece: those to come are others. */
  #forgetPieces(): void {
    this.#pieces?.clear();
    // Those that wait since earlier pieces, of which there may be many, wait for none of these.
    for (let index = this.#heldCount - 1; index >= 0; index -= 1) {
      const held = this.#held[index] as HeldCompletion;
      if (held.pieces === 0) break;
      held.pieces = 0;
    }
  }

  /** Returns the first piece that is lost, if any. */
  #writeKept(keeper: MemoryBacking): LostPiece | undefined {
    this.#keeper = undefined;
    if (keeper.flush?.(this) !== false || this.#pieces === undefined) return;
    const index = this.#pieces.writeEach(keeper);
    const kind = this.#pieces.kindOf(index);
    return kind === undefined ? undefined : { index, kind };
  }

  /**
   * Writes `completion` to `cq`, now or once the data before it is in place. False if the queue was full.
   */
  report(cq: CQ): boolean {
    COMPLETION.qpn = this.#user.qpn;
    if (this.#keeper === undefined && this.#writing.size === 0) return this.#push(cq, COMPLETION);
    if (this.#keeper !== undefined) this.#keep(cq, true);
    else this.#hold(cq, true);
    return true;
  }

  /** Counts `count` flushed work requests after one whose completion found `cq` full. */
  lose(cq: CQ, count: number): void {
    this.#counters.completions += count;
    this.#counters.flushes += count;
    cq.lose(count);
  }

  /** True while enough completions wait that a flush must pause. */
  get full(): boolean {
    return this.#heldCount >= HELD_FLUSHED_MAX;
  }

  /**
   * The same for unsignalled work, whose completion is written only if its data turns out to be
   * lost. Only the first one that promises data can be blamed, so at most one such is held.
   */
  reportLoss(cq: CQ): void {
    if (this.#writing.size === 0 || this.#holdsData || !promisesData(COMPLETION)) return;
    COMPLETION.qpn = this.#user.qpn;
    this.#hold(cq, false);
  }

  #hold(cq: CQ, reported: boolean): void {
    this.#keep(cq, reported);
    if (!this.release()) this.#user.awaitWrites();
  }

  #keep(cq: CQ, reported: boolean): void {
    if (this.#held === NONE_HELD) this.#held = [];
    let held = this.#held[this.#heldCount];
    if (held === undefined) {
      held = { cq, completion: new Completion(), reported, pieces: 0 };
      this.#held.push(held);
    }
    held.cq = cq;
    held.reported = reported;
    held.pieces = this.#keeper === undefined ? 0 : (this.#pieces?.count ?? 0);
    held.completion.copy(COMPLETION);
    this.#heldCount += 1;
    this.#holdsData ||= promisesData(COMPLETION);
  }

  #push(cq: CQ, completion: Completion): boolean {
    countCompletion(this.#counters, completion.status);
    if (completion.status !== CQEStatus.success) this.#user.handleFailed(completion);
    const pushed = cq.push(completion);
    if (completion.opcode === SQOpcode.receive) {
      this.#user.handleReported();
      if (!pushed) this.#user.handleFullQueue();
    }
    return pushed;
  }

  /** True while memory that this QP writes to accepts no more: see `MemoryBacking.congested`. */
  get congested(): boolean {
    if (this.#writing.size === 0) return false;
    for (const backing of this.#writing) {
      if (backing.pendingWrites > 0 && backing.congested === true) return true;
    }
    return false;
  }

  /** Throws `InvariantError` when a completion waits for nothing. */
  assertInvariants(): void {
    const waits = this.#writing.size > 0 || this.#keeper !== undefined;
    assert(this.#heldCount === 0 || waits, 'a completion waits for a write');
    const pieces = this.#pieces?.count ?? 0;
    assert(pieces === 0 || this.#keeper !== undefined, 'pieces are kept by a backing');
  }

  #stillWriting(): boolean {
    for (const backing of this.#writing) {
      if (backing.pendingWrites > 0) continue;
      this.#writing.delete(backing);
      if (backing.writeLost === true) this.#writeLost = true;
    }
    return this.#writing.size > 0;
  }

  /** Writes the waiting completions if no write is pending any more. True when the gate is open. */
  release(): boolean {
    if (this.#keeper !== undefined || this.#stillWriting()) return false;
    const lost = this.#writeLost;
    this.#writeLost = false;
    if (lost) this.#failHeld(undefined);
    for (let index = 0; index < this.#heldCount; index += 1) {
      const { cq, completion, reported } = this.#held[index] as HeldCompletion;
      if (reported || completion.status !== CQEStatus.success) this.#push(cq, completion);
    }
    this.#holdNone();
    if (this.#held.length > HELD_KEPT_MAX) this.#held.length = HELD_KEPT_MAX;
    if (lost) this.#user.handleLoss(undefined);
    return true;
  }

  /**
   * The queue pair closes or resets: nothing waits any longer. `told`: waiting completions are
   * written as flushed, since no one knows whether their data is in place; otherwise they are
   * dropped.
   */
  end(told: boolean): void {
    this.#keeper?.flush?.(this);
    this.#keeper = undefined;
    this.#pieces?.clear();
    this.#writing.clear();
    this.#writeLost = false;
    if (told) {
      for (let index = 0; index < this.#heldCount; index += 1) {
        const { completion: one, reported } = this.#held[index] as HeldCompletion;
        if (one.status !== CQEStatus.success || !reported) continue;
        one.status = CQEStatus.wrFlushErr;
        one.lengthBytes = 0;
      }
      this.release();
    }
    this.#holdNone();
  }

  #holdNone(): void {
    this.#heldCount = 0;
    this.#holdsData = false;
  }

  /**
   * Fails what waits behind a lost piece, or all if no one knows what was lost. The first completion
   * that promises data reports the memory error, unless what was lost is not a receive's; the others
   * are flushed. Returns true if one reports it.
   */
  #failHeld(lost: LostPiece | undefined): boolean {
    let blamed = false;
    this.#user.found = MEMORY_GONE;
    this.#holdsData = false;
    const blames = lost === undefined || lost.kind === 'receive';
    for (let index = 0; index < this.#heldCount; index += 1) {
      const { completion: one, pieces } = this.#held[index] as HeldCompletion;
      if (one.status !== CQEStatus.success) continue;
      if (lost !== undefined && pieces <= lost.index) {
        this.#holdsData ||= promisesData(one);
        continue;
      }
      const blame: boolean = blames && !blamed && promisesData(one);
      one.status = blame ? CQEStatus.locProtErr : CQEStatus.wrFlushErr;
      one.lengthBytes = 0;
      blamed ||= blame;
    }
    return blamed;
  }
}

/** True for work that brings data into the program's memory. */
function promisesData({ status, opcode, lengthBytes }: Completion): boolean {
  return status === CQEStatus.success && lengthBytes > 0 && DATA_OPCODES.has(opcode);
}
