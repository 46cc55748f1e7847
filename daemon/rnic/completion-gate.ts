/**
 * Holds completions back until their data is in the owner's memory, as a completion promises.
 *
 * Segments that a backing gathers into one transfer are written (`settle`) before anything
 * succeeds. Where writes take time (agent tier), a completion waits for them, and later ones wait
 * behind it. If the memory turns out to be gone, nothing that waited for it succeeds, and the queue
 * pair fails.
 */
import { CQEStatus, SQOpcode } from '../../verbs-api/contract/protocol/queue-layout.ts';
import { assert } from '../invariants/assert.ts';
import type { CQ } from './completion-queue.ts';
import { Completion } from './completion-writer.ts';
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

/** A waiting completion. */
interface HeldCompletion {
  readonly cq: CQ;
  readonly completion: Completion;
  /** False for one that the program gets only if it fails: its work request is unsignalled. */
  readonly reported: boolean;
}

/** The queue pair of a gate. */
export interface GateUser {
  readonly qpn: number;
  /** Asks for a call of `release` once memory is ready. */
  awaitWrites(): void;
  /**
   * Accepted data did not reach its memory. `response` is true when data of a Read Response may be
   * part of it.
   */
  handleLoss(response: boolean): void;
}

/** The gate that a queue pair's completions pass through. */
export class CompletionGate {
  /** Fill in before each `tell`, except for `qpn`. */
  readonly completion = new Completion();
  /** Backings that this QP wrote to and that had writes pending at the last check. */
  readonly #writing = new Set<MemoryBacking>();
  #writeLost = false;
  /** The backing that holds unwritten segments for this QP, if any. */
  #keeper: MemoryBacking | undefined = undefined;
  /** True while unwritten segments include some of a Read Response. */
  #keepsResponse = false;
  readonly #held: HeldCompletion[] = [];
  readonly #user: GateUser;
  readonly #counters: NicCounters;

  constructor(user: GateUser, counters: NicCounters) {
    this.#user = user;
    this.#counters = counters;
    this.completion.qpn = user.qpn;
  }

  /** Completions that wait. */
  get heldCount(): number {
    return this.#held.length;
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
    this.#writing.add(backing);
    this.#user.awaitWrites();
  }

  /** The placed segment belongs to a Read Response. */
  placedResponse(): void {
    this.#keepsResponse = this.#keeper !== undefined;
  }

  /**
   * `backing` holds segments from here on. Those of another backing are written first, in stream
   * order. Returns false when they were lost.
   */
  keeping(backing: MemoryBacking): boolean {
    if (this.#keeper === backing) return true;
    if (!this.settle()) return false;
    this.#keeper = backing;
    return true;
  }

  // RDMAP-5.2.2-04, RDMAP-5.5-04, RDMAP-5.5-05: only data that is in place may be reported.
  /** Writes all held segments. False when memory was gone; the queue pair has then failed. */
  settle(): boolean {
    const keeper = this.#keeper;
    const keepsResponse = this.#keepsResponse;
    if (keeper === undefined) return true;
    this.#keeper = undefined;
    this.#keepsResponse = false;
    if (keeper.flush?.() !== false) return true;
    this.#user.handleLoss(keepsResponse);
    return false;
  }

  /** Writes `completion` to `cq`, now or once the data before it is in place. */
  report(cq: CQ): void {
    const { completion } = this;
    assert(
      this.#keeper === undefined || completion.status !== CQEStatus.success,
      'nothing succeeds while segments are kept',
    );
    if (this.#writing.size === 0) this.#push(cq, completion);
    else this.#hold(cq, true);
  }

  /**
   * The same for unsignalled work, whose completion is written only if its data turns out to be
   * lost. Only the first one that promises data can be blamed, so at most one such is held.
   */
  reportLoss(cq: CQ): void {
    if (this.#writing.size === 0 || !promisesData(this.completion)) return;
    if (this.#held.some(({ completion }) => promisesData(completion))) return;
    this.#hold(cq, false);
  }

  #hold(cq: CQ, reported: boolean): void {
    const completion = Object.assign(new Completion(), this.completion);
    this.#held.push({ cq, completion, reported });
    if (!this.release()) this.#user.awaitWrites();
  }

  #push(cq: CQ, completion: Completion): void {
    countCompletion(this.#counters, completion.status);
    cq.push(completion);
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
    assert(this.#held.length === 0 || this.#writing.size > 0, 'a completion waits for a write');
    assert(!this.#keepsResponse || this.#keeper !== undefined, 'a response is kept by a backing');
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
    if (this.#stillWriting()) return false;
    const lost = this.#writeLost;
    this.#writeLost = false;
    if (lost) this.#failHeld();
    for (const { cq, completion, reported } of this.#held) {
      if (reported || completion.status !== CQEStatus.success) this.#push(cq, completion);
    }
    this.#held.length = 0;
    if (lost) this.#user.handleLoss(false);
    return true;
  }

  /**
   * The queue pair closes or resets: nothing waits any longer. `told`: waiting completions are
   * written as flushed, since no one knows whether their data is in place; otherwise they are
   * dropped.
   */
  end(told: boolean): void {
    this.#writing.clear();
    this.#writeLost = false;
    if (told) {
      for (const { completion: one, reported } of this.#held) {
        if (one.status !== CQEStatus.success || !reported) continue;
        one.status = CQEStatus.wrFlushErr;
        one.lengthBytes = 0;
      }
      this.release();
    }
    this.#held.length = 0;
  }

  /**
   * No one knows which writes failed: the first completion that promises data reports the memory
   * error, the others are flushed.
   */
  #failHeld(): void {
    let blamed = false;
    for (const { completion: one } of this.#held) {
      if (one.status !== CQEStatus.success) continue;
      const promises = promisesData(one);
      one.status = promises && !blamed ? CQEStatus.locProtErr : CQEStatus.wrFlushErr;
      one.lengthBytes = 0;
      blamed ||= promises;
    }
  }
}

/** True for work that brings data into the program's memory. */
function promisesData({ status, opcode, lengthBytes }: Completion): boolean {
  return status === CQEStatus.success && lengthBytes > 0 && DATA_OPCODES.has(opcode);
}
