/**
 * What a peer does to registered memory: Writes, read sources, atomics. Each access is checked
 * anew, so that a right revoked between two segments of a message is gone for the second.
 */
import { Access } from '../../verbs-api/contract/enums.ts';
import { type AtomicAccess, Fault } from '../engine/placement.ts';
import { ATOMIC_WORD_BYTES, performAtomic } from './atomic-operation.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { MemoryBacking } from './memory-backing.ts';
import { checkRemote, MemoryTarget, type MemoryUser } from './memory-check.ts';
import type { NicCounters } from './nic-counters.ts';
import type { StagTable } from './stag-table.ts';

/** What is needed of the device. */
export interface PeerAccessHost {
  readonly stags: StagTable;
  readonly counters: NicCounters;
  /** Room for the word of an atomic, shared by all queue pairs. */
  readonly word: Uint8Array;
  readonly wordView: DataView;
}

/** The memory side of one queue pair. */
export class PeerAccess {
  private readonly host: PeerAccessHost;
  private readonly user: MemoryUser;
  private readonly gate: CompletionGate;
  private readonly target = new MemoryTarget();

  /** `gate` gets each backing whose writes take time. */
  constructor(host: PeerAccessHost, user: MemoryUser, gate: CompletionGate) {
    this.host = host;
    this.user = user;
    this.gate = gate;
  }

  /** Checks one access; after `none`, `target` says where it goes. */
  check(stag: number, toHi: number, toLo: number, length: number, right: number): Fault {
    const { stags, counters } = this.host;
    const fault = checkRemote(stags, this.user, stag, toHi, toLo, length, right, this.target);
    if (fault !== Fault.none) counters.faults += 1;
    return fault;
  }

  /** Writes into memory that has been checked. */
  write(
    backing: MemoryBacking,
    offset: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): Fault {
    if (!backing.write(offset, octets, start, length)) return Fault.memoryLost;
    if (backing.pendingWrites > 0) this.gate.wrote(backing);
    this.host.counters.placedBytes += length;
    return Fault.none;
  }

  /** The same for octets that stay as they are until the stream's input ends. */
  place(
    backing: MemoryBacking,
    offset: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): Fault {
    if (backing.writeLater === undefined) return this.write(backing, offset, octets, start, length);
    if (!this.gate.keeping(backing)) return Fault.memoryLost;
    if (!backing.writeLater(offset, octets, start, length)) return Fault.memoryLost;
    this.host.counters.placedBytes += length;
    return Fault.none;
  }

  /** See `StreamUser.placeWrite`. */
  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): Fault {
    const fault = this.check(stag, toHi, toLo, length, Access.remoteWrite);
    if (fault !== Fault.none) return fault;
    const { entry, offset } = this.target;
    return this.place(entry.backing, offset, octets, start, length);
  }

  /** True when the source can be gathered now; a fault is told by the gathering that follows. */
  prepareSource(stag: number, toHi: number, toLo: number, length: number): boolean {
    if (this.check(stag, toHi, toLo, length, Access.remoteRead) !== Fault.none) return true;
    const { entry, offset } = this.target;
    return entry.backing.prepareRead(offset, length);
  }

  /** See `StreamUser.gatherReadSource`. */
  gatherSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    octets: Uint8Array,
    start: number,
  ): Fault {
    // SEC-6.2.2-01: the right may have been revoked after the first octets left.
    const fault = this.check(stag, toHi, toLo, length, Access.remoteRead);
    if (fault !== Fault.none) return fault;
    const { entry, offset } = this.target;
    if (!entry.backing.read(offset, length, octets, start)) {
      return entry.backing.ownerGone === true ? Fault.ownerGone : Fault.memoryLost;
    }
    this.host.counters.gatheredBytes += length;
    return Fault.none;
  }

  // RDMAPX-5-01, RDMAPX-5.3-01: a device does one thing at a time, so no other atomic of it can
  // touch the word between the read and the write.
  /** See `StreamUser.executeAtomic`. */
  executeAtomic(access: AtomicAccess): Fault {
    const { stag, toHi, toLo } = access;
    const fault = this.check(stag, toHi, toLo, ATOMIC_WORD_BYTES, Access.remoteAtomic);
    if (fault !== Fault.none) return fault;
    const { entry, offset } = this.target;
    // RDMAPX-5.2.1-05, RDMAPX-8.2-02: the memory's address has to be aligned, not the TO.
    const address = entry.address + (offset - entry.backingOffset);
    if (address % ATOMIC_WORD_BYTES !== 0) {
      this.host.counters.faults += 1;
      return Fault.misaligned;
    }
    const { word, wordView } = this.host;
    if (!entry.backing.read(offset, ATOMIC_WORD_BYTES, word, 0)) return Fault.memoryLost;
    if (!performAtomic(access, wordView)) return Fault.access;
    this.host.counters.atomics += 1;
    return this.write(entry.backing, offset, word, 0, ATOMIC_WORD_BYTES);
  }
}
