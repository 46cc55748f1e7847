/** CRC-32 over parts of one buffer. Caches the views that the native call needs. */
import { type Crc32, tableCrc32 } from '#daemon/roce/wire/crc32';
import { fastestCrc32 } from './crc32-engine.ts';

/** Up to this length the table is faster than a native call. */
const TABLE_MAX_BYTES = 128;
const NO_BYTES = new Uint8Array(0);

export class SlotCrc {
  readonly #bytes: Uint8Array;
  readonly #crc32: Crc32;
  /** By slot: the view of the last range. */
  readonly #views: Uint8Array[];

  constructor(bytes: Uint8Array, slots: number) {
    this.#bytes = bytes;
    this.#crc32 = fastestCrc32();
    this.#views = Array.from({ length: slots }, () => NO_BYTES);
  }

  /** CRC-32 of `[start, end)`, in `slot`; `initial` is the result for the preceding bytes. */
  crcOf(slot: number, start: number, end: number, initial: number): number {
    const length = end - start;
    if (length <= TABLE_MAX_BYTES) return tableCrc32(this.#bytes, start, end, initial);
    let view = this.#views[slot] as Uint8Array;
    if (view.length !== length || view.byteOffset !== this.#bytes.byteOffset + start) {
      view = this.#bytes.subarray(start, end);
      this.#views[slot] = view;
    }
    return this.#crc32(view, initial);
  }
}
