/**
 * STags: a 24-bit index and an 8-bit key, and the memory that each names.
 *
 * An index is drawn at random (RFC 5040 §8.1.1 item 8). After its release it rests for a while, so a
 * slow peer's stale STag does not reach the memory of another user.
 */
import { assert } from '#base/assert';
import type { Random32 } from '#base/random';
import { VerbsError } from '#contract/verbs/errors';
import { type MemoryBacking, ViewBacking } from './memory-backing.ts';
import { PD } from './protection-domain.ts';

/** Number of STag indices of a device; index 0 is never assigned. */
const INDEX_COUNT = 2 ** 24;
/** With key 0, this index reads 0x90000, which siw's provider takes for an error mark. */
const SIW_ERROR_INDEX = 0x900;
/** Released indices that rest before reuse. */
const QUARANTINE_COUNT = 4096;

/** The memory of an STag: a region, or a window onto a region. */
export class StagEntry {
  /** Current value: index and key. */
  stag: number;
  readonly pd: PD;
  readonly isWindow: boolean;
  /** False once deregistered; work in progress that uses the entry then fails. */
  alive = true;
  /** True while peers may use it: not invalidated, and bound if it is a window. */
  remoteValid = false;
  /** Bits of `Access`. */
  access = 0;
  /** The only QP whose stream may use it; 0: all of the protection domain. */
  qpn = 0;
  /** Tagged Offset of the first byte. */
  toHi = 0;
  toLo = 0;
  /** Local address of the first byte, as SGEs use it. */
  addressHi = 0;
  addressLo = 0;
  lengthBytes = 0;
  backing: MemoryBacking = NO_BACKING;
  /** Offset of the first byte in `backing`. */
  backingOffset = 0;
  /** Windows bound to this region. */
  windows = 0;
  /** True once a work request or a peer has been permitted an access. */
  used = false;

  constructor(stag: number, pd: PD, isWindow: boolean) {
    this.stag = stag;
    this.pd = pd;
    this.isWindow = isWindow;
  }

  /** Throws `InvariantError` when its fields are impossible. */
  assertInvariants(): void {
    assert(this.windows >= 0, 'windows < 0');
    assert(!this.isWindow || this.windows === 0, 'window bound to a window');
    assert(this.alive || this.windows === 0, 'windows bound to a deregistered region');
    assert(this.alive || !this.remoteValid, 'deregistered region is remotely valid');
  }
}

const NO_BACKING: MemoryBacking = new ViewBacking(new Uint8Array(0));

/** Stands for a missing entry, so arrays of entries keep one shape. */
export const NO_ENTRY: StagEntry = new StagEntry(0, new PD(() => undefined), false);
NO_ENTRY.alive = false;

export class StagTable {
  readonly #entries = new Map<number, StagEntry>();
  /** The last entry found: consecutive messages mostly name the same memory. */
  #found: StagEntry = NO_ENTRY;
  readonly #random: Random32;
  readonly #resting = new Set<number>();
  readonly #restingOrder = new Uint32Array(QUARANTINE_COUNT);
  #restingNext = 0;

  constructor(random: Random32) {
    this.#random = random;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Makes an entry with a fresh index. If `key` is undefined, the device chooses. */
  add(pd: PD, isWindow: boolean, key: number | undefined): StagEntry {
    // RDMAP-8.1.1-02: values are sparse in all 32 bits and drawn at random.
    const index = this.#freshIndex();
    const lowByte = key ?? this.#random() & 0xff;
    const entry = new StagEntry(((index << 8) | lowByte) >>> 0, pd, isWindow);
    this.#entries.set(index, entry);
    return entry;
  }

  #freshIndex(): number {
    // Registrations use only a small part of the indices, so a few draws find a free one.
    for (let draw = 0; draw < 10_000; draw += 1) {
      const index = this.#random() >>> 8;
      if (index === 0 || index === SIW_ERROR_INDEX) continue;
      if (!this.#entries.has(index) && !this.#resting.has(index)) return index;
    }
    throw new VerbsError('ENOMEM', `no free STag: ${this.#entries.size} of ${INDEX_COUNT} in use`);
  }

  /** The entry of exactly this STag, key included. */
  find(stag: number): StagEntry | undefined {
    const found = this.#found;
    // An entry keeps its STag for life.
    if (found.stag === stag && found.alive) return found;
    const entry = this.#entries.get(stag >>> 8);
    if (entry === undefined || entry.stag !== stag) return undefined;
    this.#found = entry;
    return entry;
  }

  /** The entry of this STag's index, whatever its key: binds change the key. */
  findIndex(stag: number): StagEntry | undefined {
    return this.#entries.get(stag >>> 8);
  }

  /** Checks every entry. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const [index, entry] of this.#entries) {
      assert(entry.stag >>> 8 === index, 'STag filed under another index');
      assert(entry.alive, 'STag in use of deregistered memory');
      assert(!this.#resting.has(index), 'STag in use is quarantined');
      entry.assertInvariants();
    }
    assert(this.#resting.size <= QUARANTINE_COUNT, 'too many quarantined STags');
  }

  values(): Iterable<StagEntry> {
    return this.#entries.values();
  }

  /** Removes the entry; its index rests. */
  remove(entry: StagEntry): void {
    // SEC-6.1.1-05: a released index is not reused soon.
    const index = entry.stag >>> 8;
    this.#entries.delete(index);
    if (this.#found === entry) this.#found = NO_ENTRY;
    entry.alive = false;
    entry.remoteValid = false;
    const slot = this.#restingNext % QUARANTINE_COUNT;
    if (this.#restingNext >= QUARANTINE_COUNT) this.#resting.delete(this.#restingOrder[slot] ?? 0);
    this.#restingOrder[slot] = index;
    this.#resting.add(index);
    this.#restingNext += 1;
  }
}
