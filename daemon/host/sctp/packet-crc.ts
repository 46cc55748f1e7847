/** The checksum of SCTP packets (RFC 9260 appendix A) in the slots of a batch. */
import { SlotViews } from '#base/crc';
import { type Crc32c, tableCrc32c } from '#daemon/iwarp/wire/crc32c';
import { CHECKSUM_AT } from './packet-gate.ts';

/** Up to this many bytes the table is faster than a native call. V8 inlines only a constant of this file. */
const TABLE_MAX_BYTES = 128;

export class PacketCrc {
  readonly #bytes: Uint8Array;
  readonly #fields: DataView;
  readonly #crc32c: Crc32c;
  readonly #views: SlotViews;

  constructor(bytes: Uint8Array, slots: number, crc32c: Crc32c) {
    this.#bytes = bytes;
    this.#fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#crc32c = crc32c;
    this.#views = new SlotViews(bytes, slots);
  }

  /** Writes the checksum of a packet. The field must be zero. */
  write(slot: number, start: number, length: number): void {
    this.#fields.setUint32(start + CHECKSUM_AT, this.#of(slot, start, length), true);
  }

  /** True if the checksum is valid. Zeroes the field. */
  check(slot: number, start: number, length: number): boolean {
    const sent = this.#fields.getUint32(start + CHECKSUM_AT, true);
    this.#fields.setUint32(start + CHECKSUM_AT, 0);
    return this.#of(slot, start, length) === sent;
  }

  #of(slot: number, start: number, length: number): number {
    const end = start + length;
    if (length <= TABLE_MAX_BYTES) return tableCrc32c(this.#bytes, start, end);
    return this.#crc32c(this.#views.of(slot, start, end));
  }
}
