/** CRC-32 over parts of one buffer. */
import { SlotViews } from '#base/crc';
import { type Crc32, tableCrc32 } from '#daemon/roce/wire/crc32';
import { fastestCrc32 } from './crc32-engine.ts';

/** Up to this many bytes the table is faster than a native call. V8 inlines only a constant of this file. */
const TABLE_MAX_BYTES = 128;
/** Chosen with the first buffer. */
let fastest: Crc32 | undefined;

export class SlotCrc {
  readonly #bytes: Uint8Array;
  readonly #views: SlotViews;
  readonly #crc32: Crc32;

  constructor(bytes: Uint8Array, slots: number) {
    fastest ??= fastestCrc32();
    this.#crc32 = fastest;
    this.#bytes = bytes;
    this.#views = new SlotViews(bytes, slots);
  }

  /** CRC-32 of `[start, end)`, in `slot`; `initial` is the result for the preceding bytes. */
  crcOf(slot: number, start: number, end: number, initial: number): number {
    if (end - start <= TABLE_MAX_BYTES) {
      return tableCrc32(this.#bytes, start, end, initial);
    }
    return this.#crc32(this.#views.of(slot, start, end), initial);
  }
}
