/**
 * The scatter/gather list of one work request: resolved once, then used byte by byte.
 *
 * One object serves all work requests of a queue. A region can be deregistered while its bytes are
 * in use, so every copy checks that it still exists. A receive may name memory that its queue must
 * not access, as long as no message reaches it; each copy then checks its own part.
 */
import { SGE_BYTES } from '#contract/protocol/queue-layout';
import { namedRange, type RefusedPiece } from '../failure-cause.ts';
import type { PayloadReader } from '../memory/deferred-reads.ts';
import type { Copier, MemoryBacking } from '../memory/memory-backing.ts';
import { MemoryTarget } from '../memory/memory-check.ts';
import type { PD } from '../memory/protection-domain.ts';
import { advanceHi, advanceLo } from '../memory/region-address.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from '../memory/stag-table.ts';
import { AccessRefusal } from '../wire-port.ts';

export interface WriteNotes {
  /** Bytes were written to a backing with slow writes. */
  wrote(backing: MemoryBacking): void;
  /** Makes `backing` buffer bytes until they are settled: see `CompletionGate.keep`. */
  keep(
    backing: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): boolean;
}

const NO_NUMBERS = new Float64Array(0);
const NO_WORDS = new Uint32Array(0);
const NO_ENTRIES: StagEntry[] = [];

/** Pieces of registered memory, as many as a ring element holds. */
export class ScatterList {
  /** Bytes of all pieces; may exceed 2^32. */
  lengthBytes = 0;
  /** The last piece that was refused, if any. */
  refused: RefusedPiece | undefined = undefined;
  #pieces = 0;
  /** Maximum number of pieces. */
  readonly max: number;
  /** `max` entries, allocated with the first piece: an idle queue pair has two lists and uses neither. */
  #lengths = NO_NUMBERS;
  #offsets = NO_NUMBERS;
  /** `NO_ENTRY` for a piece of a receive that its queue may not access as a whole. */
  #entries: StagEntry[] = NO_ENTRIES;
  readonly #target: MemoryTarget;
  /** The SGE fields of such a piece. */
  #lkeys = NO_WORDS;
  #addressesHi = NO_WORDS;
  #addressesLo = NO_WORDS;

  constructor(table: StagTable, max: number) {
    this.max = max;
    this.#target = new MemoryTarget(table);
  }

  clear(): void {
    this.lengthBytes = 0;
    this.#pieces = 0;
  }

  /**
   * Reads `count` SGEs (at most `max`) at `position` and checks them; `write` requires
   * LOCAL_WRITE. Empty pieces are skipped unchecked. Each field is read once. Stops at the first
   * refusal, unless `lenient`: then `scatter` reports it.
   */
  resolve(
    pd: PD,
    view: DataView,
    position: number,
    count: number,
    write: boolean,
    lenient = false,
  ): AccessRefusal {
    this.clear();
    if (this.#entries === NO_ENTRIES) this.#make();
    const target = this.#target;
    for (let index = 0; index < count; index += 1) {
      const sge = position + index * SGE_BYTES;
      const length = view.getUint32(sge + 8, true);
      if (length === 0) continue;
      const addressLo = view.getUint32(sge, true);
      const addressHi = view.getUint32(sge + 4, true);
      const lkey = view.getUint32(sge + 12, true);
      const refusal = target.checkLocal(pd, lkey, addressHi, addressLo, length, write);
      if (refusal !== AccessRefusal.none) {
        if (!lenient) {
          const range = namedRange(lkey, addressHi, addressLo, length);
          this.refused = { index, refusal, range };
          return refusal;
        }
        target.entry = NO_ENTRY;
        this.#lkeys[this.#pieces] = lkey;
        this.#addressesHi[this.#pieces] = addressHi;
        this.#addressesLo[this.#pieces] = addressLo;
      }
      this.#lengths[this.#pieces] = length;
      this.#offsets[this.#pieces] = target.offset;
      this.#entries[this.#pieces] = target.entry;
      this.#pieces += 1;
      this.lengthBytes += length;
    }
    return AccessRefusal.none;
  }

  /** The first piece's entry, for work requests with a single piece. */
  get firstEntry(): StagEntry {
    return this.#entries[0] ?? NO_ENTRY;
  }

  get scattered(): boolean {
    return this.#pieces > 1;
  }

  /** The first piece's offset in its backing. */
  get firstOffset(): number {
    return this.#offsets[0] ?? 0;
  }

  /** True if `length` bytes from `offset` can be copied out now; otherwise starts to fetch them. */
  prepare(offset: number, length: number): boolean {
    let ready = true;
    let skip = offset;
    let left = length;
    for (let index = 0; index < this.#pieces && left > 0; index += 1) {
      const pieceBytes = this.#lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, left);
      const entry = this.#entries[index] ?? NO_ENTRY;
      // Do not fetch bytes of a deregistered region: copying them will fail.
      if (entry.alive && !entry.backing.prepareRead((this.#offsets[index] ?? 0) + skip, size)) {
        ready = false;
      }
      left -= size;
      skip = 0;
    }
    return ready;
  }

  /** The one that copies all `length` bytes from `offset` straight into other memory, if there is one. */
  copier(offset: number, length: number): Copier | undefined {
    let skip = offset;
    let left = length;
    let copier: Copier | undefined;
    for (let index = 0; index < this.#pieces && left > 0; index += 1) {
      const pieceBytes = this.#lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const { alive, backing } = this.#entries[index] ?? NO_ENTRY;
      const own = alive ? backing.lender : undefined;
      if (own === undefined || (copier !== undefined && own !== copier)) return undefined;
      copier = own;
      left -= pieceBytes - skip;
      skip = 0;
    }
    return copier;
  }

  /** Prepared bytes will not be copied out. */
  abandon(): void {
    for (let index = 0; index < this.#pieces; index += 1) {
      const { backing, alive } = this.#entries[index] ?? NO_ENTRY;
      if (alive) backing.abandonRead?.(this.#offsets[index] ?? 0, this.#lengths[index] ?? 0);
    }
  }

  /** Copies `length` bytes from `offset` into `target`, at once or through `reader`. */
  gather(
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    reader?: PayloadReader,
  ): AccessRefusal {
    let skip = offset;
    let done = 0;
    for (let index = 0; index < this.#pieces && done < length; index += 1) {
      const pieceBytes = this.#lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, length - done);
      const entry = this.#entries[index] ?? NO_ENTRY;
      if (!entry.alive) return AccessRefusal.stagInvalid;
      const from = (this.#offsets[index] ?? 0) + skip;
      const { backing } = entry;
      const at = targetStart + done;
      const copied =
        reader === undefined
          ? backing.read(from, size, target, at)
          : reader.read(backing, from, size, target, at);
      if (!copied) return AccessRefusal.memoryLost;
      done += size;
      skip = 0;
    }
    return done === length ? AccessRefusal.none : AccessRefusal.bounds;
  }

  /**
   * Copies `length` bytes from `bytes` at `start` into the pieces at `offset`, in ascending order.
   * `pd` must be that of `resolve`.
   */
  scatter(
    pd: PD,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    notes: WriteNotes,
  ): AccessRefusal {
    let skip = offset;
    let done = 0;
    for (let index = 0; index < this.#pieces && done < length; index += 1) {
      const pieceBytes = this.#lengths[index] ?? 0;
      if (skip >= pieceBytes) {
        skip -= pieceBytes;
        continue;
      }
      const size = Math.min(pieceBytes - skip, length - done);
      let entry = this.#entries[index] ?? NO_ENTRY;
      let to = (this.#offsets[index] ?? 0) + skip;
      if (entry === NO_ENTRY) {
        if (!this.#locate(pd, index, skip, size)) return AccessRefusal.receiveInvalid;
        entry = this.#target.entry;
        to = this.#target.offset;
      }
      if (!entry.alive) return AccessRefusal.memoryLost;
      if (!put(entry.backing, to, bytes, start + done, size, notes))
        return AccessRefusal.memoryLost;
      done += size;
      skip = 0;
    }
    return done === length ? AccessRefusal.none : AccessRefusal.messageTooLong;
  }

  #make(): void {
    const { max } = this;
    this.#lengths = new Float64Array(max);
    this.#offsets = new Float64Array(max);
    this.#entries = new Array<StagEntry>(max).fill(NO_ENTRY);
    this.#lkeys = new Uint32Array(max);
    this.#addressesHi = new Uint32Array(max);
    this.#addressesLo = new Uint32Array(max);
  }

  /**
   * Points `target` at a part of a piece that may not be accessed as a whole. Returns false if the
   * part may not be accessed either.
   */
  #locate(pd: PD, index: number, skip: number, size: number): boolean {
    const lkey = this.#lkeys[index] ?? 0;
    const hi = this.#addressesHi[index] ?? 0;
    const lo = this.#addressesLo[index] ?? 0;
    const [partHi, partLo] = [advanceHi(hi, lo, skip), advanceLo(lo, skip)];
    const refusal = this.#target.checkLocal(pd, lkey, partHi, partLo, size, true);
    if (refusal === AccessRefusal.none) return true;
    const range = namedRange(lkey, hi, lo, this.#lengths[index] ?? 0);
    this.refused = { index, refusal, range };
    return false;
  }
}

/** Copies into one backing, now or when the copies are settled. */
function put(
  backing: MemoryBacking,
  offset: number,
  bytes: Uint8Array,
  start: number,
  length: number,
  notes: WriteNotes,
): boolean {
  if (backing.writeLater !== undefined) return notes.keep(backing, offset, bytes, start, length);
  if (!backing.write(offset, bytes, start, length)) return false;
  if (backing.pendingWrites > 0) notes.wrote(backing);
  return true;
}
