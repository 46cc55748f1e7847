/**
 * A peer's accesses to registered memory: Writes, read sources, atomics. Each segment is checked, so
 * a right revoked in the middle of a message applies to the rest of it.
 */
import { Access } from '#contract/verbs/enums';
import { type CauseHolder, MEMORY_GONE, namedRange, refusedAccess } from '../failure-cause.ts';
import type { NicCounters } from '../nic-counters.ts';
import type { CompletionGate } from '../queues/completion-gate.ts';
import { AccessRefusal, type AtomicAccess } from '../wire-port.ts';
import { ATOMIC_WORD_BYTES, performAtomic } from './atomic-operation.ts';
import type { DeferredReads } from './deferred-reads.ts';
import type { MemoryBacking } from './memory-backing.ts';
import { MemoryTarget, type MemoryUser } from './memory-check.ts';
import type { StagTable } from './stag-table.ts';

export interface PeerAccessHost {
  readonly stags: StagTable;
  readonly counters: NicCounters;
  /** Scratch for the operand of an atomic, shared by all queue pairs. */
  readonly word: Uint8Array;
  readonly wordView: DataView;
}

/** The memory side of one queue pair. */
export class PeerAccess {
  readonly #host: PeerAccessHost;
  readonly #user: MemoryUser & CauseHolder;
  readonly #gate: CompletionGate;
  readonly #target: MemoryTarget;
  readonly #deferred: DeferredReads;

  /** `gate` tracks memory whose writes are slow; `deferred` fetches deferred reads. */
  constructor(
    host: PeerAccessHost,
    user: MemoryUser & CauseHolder,
    gate: CompletionGate,
    deferred: DeferredReads,
  ) {
    this.#deferred = deferred;
    this.#host = host;
    this.#user = user;
    this.#gate = gate;
    this.#target = new MemoryTarget(host.stags);
  }

  /** Checks one access; if it returns `none`, `target` holds the location. */
  check(stag: number, toHi: number, toLo: number, length: number, right: number): AccessRefusal {
    const { counters } = this.#host;
    const refusal = this.#target.checkRemote(this.#user, stag, toHi, toLo, length, right);
    if (refusal !== AccessRefusal.none) {
      counters.accessErrors += 1;
      this.refuse(stag, toHi, toLo, length, right, refusal);
    }
    return refusal;
  }

  /** Records why the queue pair refuses an access. */
  refuse(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    right: number,
    refusal: AccessRefusal,
  ): void {
    const range = namedRange(stag, toHi, toLo, length);
    this.#user.found = refusedAccess(this.#host.stags, this.#user, range, right, refusal);
  }

  checkSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    const refusal = this.check(stag, toHi, toLo, length, Access.remoteRead);
    if (refusal !== AccessRefusal.none) return refusal;
    const { entry, offset } = this.#target;
    // Bytes fetched before the request may be older than data that the peer has seen since.
    entry.backing.abandonRead?.(offset, length);
    return refusal;
  }

  /** Writes into checked memory. */
  write(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    if (!backing.write(offset, bytes, start, length)) return this.#lost();
    if (backing.pendingWrites > 0) this.#gate.wrote(backing);
    this.#host.counters.placedBytes += length;
    return AccessRefusal.none;
  }

  /** Like `write`, for bytes that stay unchanged until the stream's input ends. */
  place(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    if (backing.writeLater === undefined) return this.write(backing, offset, bytes, start, length);
    if (!this.#gate.keep(backing, offset, bytes, start, length)) return this.#lost();
    this.#host.counters.placedBytes += length;
    return AccessRefusal.none;
  }

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    const refusal = this.check(stag, toHi, toLo, length, Access.remoteWrite);
    if (refusal !== AccessRefusal.none) return refusal;
    const { entry, offset } = this.#target;
    this.#gate.kind = 'write';
    return this.place(entry.backing, offset, bytes, start, length);
  }

  /** True if the source can be gathered now; `gather…` then reports any refusal. */
  prepareSource(stag: number, toHi: number, toLo: number, length: number): boolean {
    if (this.check(stag, toHi, toLo, length, Access.remoteRead) !== AccessRefusal.none) return true;
    const { entry, offset } = this.#target;
    return entry.backing.prepareRead(offset, length);
  }

  gatherSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    bytes: Uint8Array,
    start: number,
  ): AccessRefusal {
    // SEC-6.2.2-01: the right may have been revoked after the first bytes were sent.
    const refusal = this.check(stag, toHi, toLo, length, Access.remoteRead);
    if (refusal !== AccessRefusal.none) return refusal;
    const { backing } = this.#target.entry;
    return this.#gathered(backing, length, backing.read(this.#target.offset, length, bytes, start));
  }

  gatherSourceLater(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    bytes: Uint8Array,
    start: number,
  ): AccessRefusal {
    const refusal = this.check(stag, toHi, toLo, length, Access.remoteRead);
    if (refusal !== AccessRefusal.none) return refusal;
    const { backing } = this.#target.entry;
    const { offset } = this.#target;
    const read = this.#deferred.read(backing, offset, length, bytes, start);
    return this.#gathered(backing, length, read);
  }

  #lost(refusal: AccessRefusal = AccessRefusal.memoryLost): AccessRefusal {
    this.#user.found = MEMORY_GONE;
    return refusal;
  }

  #gathered(backing: MemoryBacking, length: number, read: boolean): AccessRefusal {
    if (!read)
      return backing.ownerGone === true ? this.#lost(AccessRefusal.ownerGone) : this.#lost();
    this.#host.counters.gatheredBytes += length;
    return AccessRefusal.none;
  }

  // RDMAPX-5-01, RDMAPX-5.3-01: a device does one thing at a time, so no other atomic of the device
  // can touch the word between the read and the write.
  executeAtomic(access: AtomicAccess): AccessRefusal {
    const { stag, toHi, toLo } = access;
    const refusal = this.check(stag, toHi, toLo, ATOMIC_WORD_BYTES, Access.remoteAtomic);
    if (refusal !== AccessRefusal.none) return refusal;
    const { entry, offset } = this.#target;
    // RDMAPX-5.2.1-05, RDMAPX-8.2-02: the memory's address must be aligned, not the TO.
    const low = entry.addressLo + (offset - entry.backingOffset);
    if (low % ATOMIC_WORD_BYTES !== 0) {
      this.#host.counters.accessErrors += 1;
      this.refuse(
        stag,
        toHi,
        toLo,
        ATOMIC_WORD_BYTES,
        Access.remoteAtomic,
        AccessRefusal.misaligned,
      );
      return AccessRefusal.misaligned;
    }
    const { word, wordView } = this.#host;
    if (!entry.backing.read(offset, ATOMIC_WORD_BYTES, word, 0)) return this.#lost();
    if (!performAtomic(access, wordView)) return AccessRefusal.access;
    this.#host.counters.atomics += 1;
    return this.write(entry.backing, offset, word, 0, ATOMIC_WORD_BYTES);
  }
}
