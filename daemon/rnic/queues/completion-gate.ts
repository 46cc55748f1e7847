/**
 * Holds completions back until their data is in the owner's memory, as a completion promises.
 *
 * Segments that a backing gathers into one transfer are written (`settle`) before anything
 * succeeds: a receive that is complete in the meantime waits for it. Where writes take time (agent
 * tier, or copies of lent payload), a completion waits for them, and later ones wait for it. If the
 * memory is gone, every later completion fails, and the QP enters the error state.
 */
import { assert } from '#base/assert';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { type Cause, MEMORY_GONE } from '../failure-cause.ts';
import { KeptPieces, type PieceKind } from '../memory/kept-pieces.ts';
import type { LentSource, LentTaker } from '../memory/lent-payload.ts';
import type { Copier, CopyEnd, Lender, MemoryBacking } from '../memory/memory-backing.ts';
import { countCompletion, type NicCounters } from '../nic-counters.ts';
import { CompletionRecord } from '../rings/completion-writer.ts';
import type { CQ } from './completion-queue.ts';
import { PlacedCopies } from './placed-copies.ts';

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

interface HeldCompletion {
  cq: CQ;
  readonly completion: CompletionRecord;
  /** False for one that the program gets only if it fails: its work request is unsignalled. */
  reported: boolean;
  /** Unwritten pieces that precede it. */
  pieces: number;
  /** Copies of lent payload that precede it, of all since the queue pair was made. */
  copies: number;
}

/** A piece that did not reach its memory. */
interface LostPiece {
  /** Pieces that precede it. */
  readonly index: number;
  readonly kind: PieceKind;
}

export interface GateUser {
  readonly qpn: number;
  found: Cause | undefined;
  /** Data of the peer is accepted. */
  readonly receiving: boolean;
  /** Asks for a call of `release` once memory is ready. */
  awaitWrites(): void;
  /** Accepted data did not reach its memory. `kind` is undefined if a completion reports the loss. */
  handleLoss(kind: PieceKind | undefined): void;
  /** The completion of the oldest ended receive was written to its queue, or lost. */
  handleReported(): void;
  /** A receive could not complete: its completion queue is full. */
  handleFullQueue(): void;
  /** Called with each completion in error before it is written. */
  handleFailed(completion: CompletionRecord): void;
}

/** Shared by gates that never waited; all stay empty. */
const NONE_WRITING = new Set<MemoryBacking>();
const NO_COPIES = new PlacedCopies();
const NONE_HELD: HeldCompletion[] = [];

/** Scratch for every gate: refilled for each report. */
const COMPLETION = new CompletionRecord();

export class CompletionGate implements LentTaker {
  /** Backings that this QP wrote to and that had writes pending at the last check. */
  #writing: Set<MemoryBacking> = NONE_WRITING;
  #writeLost = false;
  /** Kind of the data placed from now on. */
  kind: PieceKind = 'write';
  /** Segments were written before the input ended: finished work may wait for a call of `retire`. */
  settledEarly = false;
  /** The backing that buffers segments of this QP, if any. */
  #keeper: MemoryBacking | undefined = undefined;
  #pieces: KeptPieces | undefined = undefined;
  /** `#heldCount` wait from `#heldFirst` on; the rest are kept for reuse. */
  #held = NONE_HELD;
  #heldFirst = 0;
  #heldCount = 0;
  /** Some are being written. */
  #releasing = false;
  /** True if a waiting completion promises data. Cached: a search for each report is too slow. */
  #holdsData = false;
  /** Shared until a copy is ordered: most queue pairs are idle. */
  #copies = NO_COPIES;
  /** Set once the program is about to get back payload that may still be read. */
  #lender: Lender | undefined = undefined;
  readonly #user: GateUser;
  readonly #counters: NicCounters;
  /** Payload that the input may stand for. */
  lent: LentSource;

  constructor(user: GateUser, counters: NicCounters, lent: LentSource) {
    this.#user = user;
    this.#counters = counters;
    this.lent = lent;
  }

  /** Copies after which nothing is unconfirmed. */
  get copiesSettled(): number {
    return this.#writing.size > 0 || this.#writeLost ? 0 : this.#copies.done;
  }

  /** Copies ordered since the queue pair was made. */
  get copiesOrdered(): number {
    return this.#copies.ordered;
  }

  /** Fill in before each `report` or `reportLoss`, except for `qpn`. */
  get completion(): CompletionRecord {
    return COMPLETION;
  }

  get heldCount(): number {
    return this.#heldCount;
  }

  /** True while segments are buffered: nothing may succeed before they are written. */
  get keeps(): boolean {
    return this.#keeper !== undefined;
  }

  /** True while writes to memory are unconfirmed. */
  get waits(): boolean {
    return this.#writing.size > 0 || this.copying || this.#reading() || this.#writeLost;
  }

  #reading(): boolean {
    return this.#lender !== undefined && this.#lender.lent > 0;
  }

  /** True while copies of this connection into memory are not over. */
  get placing(): boolean {
    const { pending, ordered, abandoned } = this.#copies;
    return pending && ordered !== abandoned;
  }

  /** True while copies into memory are not over. */
  get copying(): boolean {
    return this.#copies.pending;
  }

  // RDMAP-7.1-02: detects the loss of a Write even if nothing follows it.
  /** Records a backing whose writes take time. */
  wrote(backing: MemoryBacking): void {
    if (this.#writing === NONE_WRITING) this.#writing = new Set();
    this.#writing.add(backing);
    this.#user.awaitWrites();
  }

  /**
   * Buffers a segment of `kind` in `backing`, after writing segments buffered in another one, in
   * stream order. Returns false if those were lost or the memory of this one is gone.
   */
  keep(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): boolean {
    if (this.lent.covers(bytes, start)) return this.#borrow(backing, offset, bytes, start, length);
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

  /** Orders copies of lent payload, after writing buffered segments. */
  #borrow(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): boolean {
    this.settledEarly ||= this.#keeper !== undefined;
    // To settle may end the queue pair.
    if (!this.settle() || !this.#user.receiving) return false;
    // Part may be ordered even if the rest cannot be.
    this.#user.awaitWrites();
    return this.lent.copyTo(backing, offset, bytes, start, length, this);
  }

  /** Completions wait from now on until the lender's payload is no longer read. */
  awaitLent(lender: Lender): void {
    this.#lender = lender;
    this.#user.awaitWrites();
  }

  copyOrdered(copier: Copier): void {
    if (this.#copies === NO_COPIES) this.#copies = new PlacedCopies();
    this.#copies.ordered += 1;
    this.#copies.copiers.add(copier);
  }

  copied(end: CopyEnd): void {
    const copies = this.#copies;
    const abandoned = copies.done < copies.abandoned;
    if (!abandoned && (end === 'unread' || copies.unread > 0)) {
      copies.unread += 1;
      if (!this.#user.receiving) this.endReceiving();
      return;
    }
    copies.done += 1;
    if (end === 'lost' && !abandoned && !this.#writeLost) {
      copies.lost = copies.done;
      this.#writeLost = true;
    }
    if (!copies.pending) copies.copiers.clear();
  }

  /** No more data arrives: messages whose payload could not be read never will. */
  endReceiving(): void {
    if (this.#copies.unread === 0) return;
    for (let index = this.#heldFirst; index < this.#heldEnd(); index += 1) {
      const { completion: one, copies } = this.#held[index] as HeldCompletion;
      if (copies > this.#copies.done && one.opcode === SQOpcode.receive) flushInstead(one);
    }
    this.#copies.endUnread();
    if (!this.release()) this.#user.awaitWrites();
  }

  /** The program withdraws rights: it gets no answer until the copies that they allowed are over. */
  conclude(): void {
    if (!this.copying) return;
    for (const copier of this.#copies.copiers) copier.conclude(this);
  }

  // RDMAP-5.2.2-04, RDMAP-5.5-04, RDMAP-5.5-05: only data that is in place may be reported.
  /** Writes all buffered segments. Returns false, with the queue pair failed, if memory is gone. */
  settle(): boolean {
    const keeper = this.#keeper;
    if (keeper === undefined) return true;
    const lost = this.#writeKept(keeper);
    const reported = lost !== undefined && this.#failHeld(lost);
    this.#forgetPieces();
    if (this.#heldCount > 0 && !this.release()) this.#user.awaitWrites();
    if (lost !== undefined) this.#user.handleLoss(reported ? undefined : lost.kind);
    return lost === undefined;
  }

  /**
   * The pieces are written: completions that still wait for slow memory do not wait for later
   * pieces.
   */
  #forgetPieces(): void {
    this.#pieces?.clear();
    // Completions held since earlier pieces, possibly many, already have a count of 0.
    for (let index = this.#heldEnd() - 1; index >= this.#heldFirst; index -= 1) {
      const held = this.#held[index] as HeldCompletion;
      if (held.pieces === 0) break;
      held.pieces = 0;
    }
  }

  /** Returns the first lost piece, if any. */
  #writeKept(keeper: MemoryBacking): LostPiece | undefined {
    this.#keeper = undefined;
    if (keeper.flush?.(this) !== false || this.#pieces === undefined) return;
    const index = this.#pieces.writeEach(keeper);
    const kind = this.#pieces.kindOf(index);
    return kind === undefined ? undefined : { index, kind };
  }

  /**
   * Writes `completion` to `cq`, now or once the data before it is in place. False if `cq` is full.
   */
  report(cq: CQ): boolean {
    COMPLETION.qpn = this.#user.qpn;
    if (this.#keeper === undefined && !this.waits && this.#heldCount === 0 && !this.#releasing) {
      return this.#push(cq, COMPLETION);
    }
    if (this.#keeper !== undefined) this.#keep(cq, true);
    else this.#hold(cq, true);
    return true;
  }

  /** Counts `count` flushed work requests as lost after a completion found `cq` full. */
  lose(cq: CQ, count: number): void {
    this.#counters.completions += count;
    this.#counters.flushes += count;
    cq.lose(count);
  }

  /** True once the number of waiting completions requires a flush to pause. */
  get full(): boolean {
    return this.#heldCount >= HELD_FLUSHED_MAX;
  }

  /**
   * Like `report`, for unsignalled work: its completion is written only if its data is lost. Only
   * the first one that promises data reports the error, so at most one is held.
   */
  reportLoss(cq: CQ): void {
    if (!this.waits || this.#holdsData || !promisesData(COMPLETION)) return;
    COMPLETION.qpn = this.#user.qpn;
    this.#hold(cq, false);
  }

  #hold(cq: CQ, reported: boolean): void {
    this.#keep(cq, reported);
    if (!this.release()) this.#user.awaitWrites();
  }

  #keep(cq: CQ, reported: boolean): void {
    if (this.#held === NONE_HELD) this.#held = [];
    let held = this.#held[this.#heldEnd()];
    if (held === undefined) {
      held = { cq, completion: new CompletionRecord(), reported, pieces: 0, copies: 0 };
      this.#held.push(held);
    }
    held.cq = cq;
    held.reported = reported;
    held.pieces = this.#keeper === undefined ? 0 : (this.#pieces?.count ?? 0);
    held.copies = this.#copies.ordered;
    held.completion.copy(COMPLETION);
    this.#heldCount += 1;
    this.#holdsData ||= promisesData(COMPLETION);
  }

  #oldest(): HeldCompletion {
    return this.#held[this.#heldFirst] as HeldCompletion;
  }

  /** Index after the last waiting completion. */
  #heldEnd(): number {
    return this.#heldFirst + this.#heldCount;
  }

  #push(cq: CQ, completion: CompletionRecord): boolean {
    countCompletion(this.#counters, completion.status);
    if (completion.status !== CQEStatus.success) this.#user.handleFailed(completion);
    const pushed = cq.push(completion);
    if (completion.opcode === SQOpcode.receive) {
      this.#user.handleReported();
      if (!pushed) this.#user.handleFullQueue();
    }
    return pushed;
  }

  /** True while the memory of this QP accepts no more writes: see `MemoryBacking.congested`. */
  get congested(): boolean {
    if (this.#writing.size === 0) return false;
    for (const backing of this.#writing) {
      if (backing.pendingWrites > 0 && backing.congested === true) return true;
    }
    return false;
  }

  /** Throws `InvariantError` when a completion waits for nothing. */
  assertInvariants(): void {
    const waits = this.waits || this.#keeper !== undefined || this.#releasing;
    assert(this.#heldCount === 0 || waits, 'held completions without a pending write');
    const pieces = this.#pieces?.count ?? 0;
    assert(pieces === 0 || this.#keeper !== undefined, 'pieces without a backing');
  }

  #stillWriting(): boolean {
    for (const backing of this.#writing) {
      if (backing.pendingWrites > 0) continue;
      this.#writing.delete(backing);
      if (backing.writeLost !== true) continue;
      this.#writeLost = true;
      // All that waits is affected.
      this.#copies.lost = 0;
    }
    return this.#writing.size > 0;
  }

  /** Writes the waiting completions whose data is in place, as far as is known. Returns true if none waits. */
  release(): boolean {
    if (this.#releasing) return false;
    if (this.#keeper !== undefined || this.#stillWriting() || this.#reading()) return false;
    if (this.#copies.unread > 0) this.#advanceSends();
    const lost = this.#writeLost;
    this.#writeLost = false;
    if (lost) {
      this.#releaseUpTo(this.#copies.lost - 1);
      this.#failHeld(undefined);
    }
    // A full completion queue ends the queue pair meanwhile, so that others need no longer wait.
    do this.#releaseUpTo(this.#copies.done);
    while (this.#heldCount > 0 && this.#oldest().copies <= this.#copies.done);
    if (this.#heldCount === 0) this.#holdNone();
    if (lost) this.#user.handleLoss(undefined);
    return !this.copying;
  }

  /** Payload could not be read: receives may wait for it for ever, but sends, which do not depend on it, must not. */
  #advanceSends(): void {
    const waiting = this.#held.slice(this.#heldFirst, this.#heldEnd());
    const sends = waiting.filter(({ completion }) => completion.opcode !== SQOpcode.receive);
    if (sends.length === 0) return;
    for (const send of sends) send.copies = 0;
    const receives = waiting.filter(({ completion }) => completion.opcode === SQOpcode.receive);
    this.#held.splice(this.#heldFirst, waiting.length, ...sends, ...receives);
  }

  /** Writes the completions that wait for at most this many copies. */
  #releaseUpTo(copiesMax: number): void {
    // A completion that finds its queue full fails the queue pair, which then reports others.
    this.#releasing = true;
    while (this.#heldCount > 0) {
      const { cq, completion, reported, copies } = this.#oldest();
      if (copies > copiesMax) break;
      this.#heldFirst += 1;
      this.#heldCount -= 1;
      if (reported || completion.status !== CQEStatus.success) this.#push(cq, completion);
    }
    this.#releasing = false;
    if (this.#heldFirst === 0) return;
    this.#compact();
    this.#holdsData = false;
    for (let index = 0; index < this.#heldCount; index += 1) {
      this.#holdsData ||= promisesData((this.#held[index] as HeldCompletion).completion);
    }
  }

  /** Makes the entries of written completions reusable. */
  #compact(): void {
    if (this.#heldCount > 0) {
      const used = this.#held.splice(0, this.#heldFirst);
      for (const held of used) this.#held.push(held);
    }
    this.#heldFirst = 0;
    if (this.#held.length > HELD_KEPT_MAX)
      this.#held.length = Math.max(HELD_KEPT_MAX, this.#heldCount);
  }

  /**
   * Ends all waiting because the queue pair closes or resets. With `flush`, waiting completions are
   * written as flushed, since it is unknown whether their data is in place; otherwise they are dropped.
   */
  end(flush: boolean): void {
    this.#keeper?.flush?.(this);
    this.#keeper = undefined;
    this.#pieces?.clear();
    this.#writing.clear();
    for (const copier of this.#copies.copiers) copier.abandon(this);
    this.#copies.endUnread();
    this.#copies.abandoned = this.#copies.ordered;
    this.#lender = undefined;
    this.#writeLost = false;
    if (flush) {
      for (let index = this.#heldFirst; index < this.#heldEnd(); index += 1) {
        const { completion: one, reported } = this.#held[index] as HeldCompletion;
        if (reported) flushInstead(one);
      }
      this.#releaseUpTo(Number.POSITIVE_INFINITY);
    }
    this.#holdNone();
  }

  #holdNone(): void {
    this.#heldCount = 0;
    this.#holdsData = false;
  }

  /**
   * Fails completions after a lost piece, or all of them if it is unknown which piece was lost. The first
   * one that promises data reports the memory error, unless no receive lost data; the others
   * are flushed. Returns true if one reports it.
   */
  #failHeld(lost: LostPiece | undefined): boolean {
    let blamed = false;
    this.#user.found = MEMORY_GONE;
    this.#holdsData = false;
    const blames = lost === undefined || lost.kind === 'receive';
    for (let index = this.#heldFirst; index < this.#heldEnd(); index += 1) {
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

function flushInstead(completion: CompletionRecord): void {
  if (completion.status !== CQEStatus.success) return;
  completion.status = CQEStatus.wrFlushErr;
  completion.lengthBytes = 0;
}

/** True for work that writes to the program's memory. */
function promisesData({ status, opcode, lengthBytes }: CompletionRecord): boolean {
  return status === CQEStatus.success && lengthBytes > 0 && DATA_OPCODES.has(opcode);
}
