/**
 * What stands between a queue pair's data and its completions, which promise that the data are in
 * the owner's memory.
 *
 * Segments that a backing keeps for one transfer of many are written before a completion is told.
 * Where writes take time (agent tier), the completion waits for them, and those behind it with it.
 */
import type { CQEStatus } from '../../verbs-api/contract/queue-layout.ts';
import type { CQ } from './completion-queue.ts';
import type { MemoryBacking } from './memory-backing.ts';

/** A completion that waits. */
interface HeldCompletion {
  readonly cq: CQ;
  readonly wrIdLo: number;
  readonly wrIdHi: number;
  readonly opcode: number;
  readonly status: CQEStatus;
  readonly bytes: number;
  readonly flags: number;
  readonly immediateHi: number;
  readonly immediateLo: number;
  readonly solicited: boolean;
}

/** What a queue pair's completions pass through. */
export class CompletionGate {
  readonly qpn: number;
  /** Backings that this QP wrote to and that had writes pending when last seen. */
  private readonly writing = new Set<MemoryBacking>();
  /** The backing that keeps segments for this QP, if one does. */
  private keeper: MemoryBacking | undefined = undefined;
  private keptLost = false;
  private readonly held: HeldCompletion[] = [];
  private readonly onShut: () => void;

  /** `onShut` asks for a call of `release` once memory is ready. */
  constructor(qpn: number, onShut: () => void) {
    this.qpn = qpn;
    this.onShut = onShut;
  }

  /** Notes a backing whose writes take time. */
  wrote(backing: MemoryBacking): void {
    this.writing.add(backing);
  }

  /**
   * Notes that `backing` keeps segments from here on; those of another one go first, in the order
   * of the stream. False when these were lost.
   */
  keeping(backing: MemoryBacking): boolean {
    if (this.keeper === backing) return true;
    const settled = this.settle();
    this.keeper = backing;
    return settled;
  }

  /** Has everything kept written. False, once, when memory was gone. */
  settle(): boolean {
    const { keeper } = this;
    if (keeper !== undefined) {
      this.keeper = undefined;
      if (keeper.flush?.() === false) this.keptLost = true;
    }
    const lost = this.keptLost;
    this.keptLost = false;
    return !lost;
  }

  /** Writes the completion to its queue, now or when the data before it are in place. */
  tell(
    cq: CQ,
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus,
    bytes: number,
    flags: number,
    immediateHi: number,
    immediateLo: number,
    solicited: boolean,
  ): void {
    // The stream hears of the loss when its input ends.
    if (this.keeper !== undefined) this.keptLost = !this.settle();
    // What was held goes first, so that the order stays.
    if (this.writing.size === 0 || this.release()) {
      cq.push(
        wrIdLo,
        wrIdHi,
        opcode,
        status,
        bytes,
        this.qpn,
        flags,
        immediateHi,
        immediateLo,
        solicited,
      );
      return;
    }
    this.held.push({
      cq,
      wrIdLo,
      wrIdHi,
      opcode,
      status,
      bytes,
      flags,
      immediateHi,
      immediateLo,
      solicited,
    });
    this.onShut();
  }

  private stillWriting(): boolean {
    for (const backing of this.writing) {
      if (backing.pendingWrites === 0) this.writing.delete(backing);
    }
    return this.writing.size > 0;
  }

  /** Tells what waited if nothing is being written any more. True when the gate is open. */
  release(): boolean {
    if (this.stillWriting()) return false;
    for (const one of this.held) {
      one.cq.push(
        one.wrIdLo,
        one.wrIdHi,
        one.opcode,
        one.status,
        one.bytes,
        this.qpn,
        one.flags,
        one.immediateHi,
        one.immediateLo,
        one.solicited,
      );
    }
    this.held.length = 0;
    return true;
  }
}
