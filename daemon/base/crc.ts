/**
 * Reflected CRCs of 32 bits over ranges of bytes. Initial value and final XOR are 0xFFFFFFFF, as in CRC32C
 * and in the CRC-32 of Ethernet.
 *
 * A short range is computed here, in place, eight bytes a step (slicing by eight). A native call is
 * faster for a long one, but needs a view. Each polynomial has separate functions, since V8 then
 * knows the tables.
 */

/**
 * Computes the CRC of `bytes`, which it only reads. `initial` is the result for the preceding bytes (default
 * 0: none). Returns an unsigned 32-bit number. Native implementations are injected as this type.
 */
export type Crc = (bytes: Uint8Array, initial?: number) => number;

/** The tables of one polynomial: entry `k * 256 + n` is the CRC of byte n followed by k zeros. */
type CrcSlices = Int32Array;

const SLICES = 8;

/** The tables of a polynomial, given with its bits reversed (bit 0 is the highest power). */
export function slicesOf(reflectedPolynomial: number): CrcSlices {
  const slices = new Int32Array(SLICES * 256);
  for (let n = 0; n < 256; n++) {
    let crc = n;
    for (let bit = 0; bit < 8; bit++) {
      crc = (crc & 1) === 1 ? (crc >>> 1) ^ reflectedPolynomial : crc >>> 1;
    }
    slices[n] = crc;
  }
  for (let i = 256; i < slices.length; i++) {
    const shorter = slices[i - 256] as number;
    slices[i] = (shorter >>> 8) ^ (slices[shorter & 0xff] as number);
  }
  return slices;
}

/**
 * The CRC of `bytes[start, end)`, read in place, without a view. `initial` is the result for the
 * preceding bytes, 0 for none. Returns an unsigned 32-bit number. Throws `RangeError` when the
 * range extends past `bytes`.
 */
export function slicedCrc(
  slices: CrcSlices,
  bytes: Uint8Array,
  start: number,
  end: number,
  initial: number,
): number {
  if (start < 0 || end < start || end > bytes.length) {
    throw new RangeError(`range ${start}..${end} extends past a buffer of ${bytes.length} bytes`);
  }
  // Every `as number` below reads bytes[at..at + 7] with at + 8 <= end <= bytes.length, or a table
  // entry whose index is a slice's base plus 8 bits.
  let crc = ~initial;
  let at = start;
  for (; at + 8 <= end; at += 8) {
    const low =
      crc ^
      ((bytes[at] as number) |
        ((bytes[at + 1] as number) << 8) |
        ((bytes[at + 2] as number) << 16) |
        ((bytes[at + 3] as number) << 24));
    crc =
      (slices[1792 + (low & 0xff)] as number) ^
      (slices[1536 + ((low >>> 8) & 0xff)] as number) ^
      (slices[1280 + ((low >>> 16) & 0xff)] as number) ^
      (slices[1024 + (low >>> 24)] as number) ^
      (slices[768 + (bytes[at + 4] as number)] as number) ^
      (slices[512 + (bytes[at + 5] as number)] as number) ^
      (slices[256 + (bytes[at + 6] as number)] as number) ^
      (slices[bytes[at + 7] as number] as number);
  }
  for (; at < end; at++) {
    crc = (crc >>> 8) ^ (slices[(crc ^ (bytes[at] as number)) & 0xff] as number);
  }
  return ~crc >>> 0;
}

/** True if an implementation agrees with another, on a view at an odd offset and in parts. */
export function agrees(native: Crc, reference: Crc): boolean {
  const bytes = Uint8Array.from({ length: 1000 }, (_, index) => (index * 31) & 0xff);
  const view = bytes.subarray(3, 990);
  const parts = native(view.subarray(501), native(view.subarray(0, 501)));
  const expected = reference(view);
  return native(view) === expected && parts === expected;
}

const NO_BYTES = new Uint8Array(0);

/** Views of ranges in the slots of one buffer, kept for native calls. */
export class SlotViews {
  readonly #bytes: Uint8Array;
  /** By slot: the view of its last range, which the other two describe. */
  readonly #views: Uint8Array[];
  readonly #starts: Uint32Array;
  readonly #ends: Uint32Array;

  constructor(bytes: Uint8Array, slots: number) {
    this.#bytes = bytes;
    this.#views = new Array<Uint8Array>(slots).fill(NO_BYTES);
    this.#starts = new Uint32Array(slots);
    this.#ends = new Uint32Array(slots);
  }

  /** A view of `[start, end)`, which is in `slot`. */
  of(slot: number, start: number, end: number): Uint8Array {
    if (this.#ends[slot] !== end || this.#starts[slot] !== start) {
      this.#views[slot] = this.#bytes.subarray(start, end);
      this.#starts[slot] = start;
      this.#ends[slot] = end;
    }
    return this.#views[slot] as Uint8Array;
  }
}
