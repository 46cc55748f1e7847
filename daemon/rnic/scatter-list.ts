/**
 * The scatter/gather list of one work request: resolved once, then used octet by octet.
 *
 * One object serves all work requests of a queue in turn. A region can be deregistered while its
 * octets are under way, so every copy looks again whether it still lives.
 */

import { SGE_BYTES, SGE_MAX } from '../../verbs-api/contract/queue-layout.ts';
import { Fault } from '../engine/placement.ts';
import type { MemoryBacking } from './memory-backing.ts';
import { checkLocal, MemoryTarget } from './memory-check.ts';
import type { PD } from './protection-domain.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from './stag-table.ts';

/** Up to six pieces of registered memory. */
export class ScatterList {
  /** Octets of all pieces together; may pass 2^32. */
  lengthBytes = 0;
  private pieces = 0;
  private readonly lengths = new Float64Array(SGE_MAX);
  private readonly offsets = new Float64Array(SGE_MAX);
  private readonly entries: StagEntry[] = new Array<StagEntry>(SGE_MAX).fill(NO_ENTRY);
  private readonly target = new MemoryTarget();

  clear(): void {
    this.lengthBytes = 0;
    this.pieces = 0;
  }

  /**
   * Reads `count` SGEs (at most `SGE_MAX`) at `position` and checks them; `write` asks for
   * LOCAL_WRITE. Pieces of no octets are left out unchecked. Each field is read once.
   */
  resolve(
    table: StagTable,
    pd: PD,
    view: DataView,
    position: number,
    count: number,
    write: boolean,
  ): Fault {
    this.clear();
    const { target } = this;
    for (let index = 0; index < count; index += 1) {
      const sge = position + index * SGE_BYTES;
      const length = view.getUint32(sge + 8, true);
      if (length === 0) continue;
      const addressLo = view.getUint32(sge, true);
      const addressHi = view.getUint32(sge + 4, true);
      const lkey = view.getUint32(sge + 12, true);
      const fault = checkLocal(table, pd, lkey, addressHi, addressLo, length, write, target);
      if (fault !== Fault.none) return fault;
      this.lengths[this.pieces] = length;
      this.offsets[this.pieces] = target.offset;
      this.entries[this.pieces] = target.entry;
      this.pieces += 1;
      this.lengthBytes += length;
    }
    return Fault.none;
  }

  /** The first piece's entry, for work requests that have but one piece. */
  get firstEntry(): StagEntry {
    return this.entries[0] ?? NO_ENTRY;
  }

  /** The first piece's position in its backing. */
  get firstOffset(): number {
    return this.offsets[0] ?? 0;
  }

  /** True when `length` octets from `offset` on can be copied out now; starts fetches otherwise. */
  prepare(offset: number, length: number): boolean {
    let ready = true;
    let skip = offset;
    let left = length;
    for (let index = 0; index < this.pieces && left > 0; index += 1) {
      const pieceBytes = this.lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, left);
      const entry = this.entries[index] ?? NO_ENTRY;
      // Octets of a dead region need no fetch: copying them is what fails.
      if (entry.alive && !entry.backing.prepareRead((this.offsets[index] ?? 0) + skip, size)) {
        ready = false;
      }
      left -= size;
      skip = 0;
    }
    return ready;
  }

  /** Copies `length` octets from `offset` on into `target`. */
  gather(offset: number, length: number, target: Uint8Array, targetStart: number): Fault {
    let skip = offset;
    let done = 0;
    for (let index = 0; index < this.pieces && done < length; index += 1) {
      const pieceBytes = this.lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, length - done);
      const entry = this.entries[index] ?? NO_ENTRY;
      if (!entry.alive) return Fault.stagInvalid;
      const from = (this.offsets[index] ?? 0) + skip;
      if (!entry.backing.read(from, size, target, targetStart + done)) return Fault.memoryLost;
      done += size;
      skip = 0;
    }
    return done === length ? Fault.none : Fault.bounds;
  }

  /**
   * Copies `length` octets from `octets` at `start` into the pieces at `offset`, in ascending
   * order. `written` gets each backing whose writes take time.
   */
  scatter(
    offset: number,
    octets: Uint8Array,
    start: number,
    length: number,
    written: (backing: MemoryBacking) => void,
  ): Fault {
    let skip = offset;
    let done = 0;
    for (let index = 0; index < this.pieces && done < length; index += 1) {
      const pieceBytes = this.lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, length - done);
      const entry = this.entries[index] ?? NO_ENTRY;
      if (!entry.alive) return Fault.memoryLost;
      const to = (this.offsets[index] ?? 0) + skip;
      if (!entry.backing.write(to, octets, start + done, size)) return Fault.memoryLost;
      if (entry.backing.pendingWrites > 0) written(entry.backing);
      done += size;
      skip = 0;
    }
    return done === length ? Fault.none : Fault.messageTooLong;
  }
}
