/** The checksum of SCTP packets (RFC 9260 appendix A) in the slots of a batch. Caches views. */
import { type Crc32c, tableCrc32c } from '#daemon/iwarp/wire/crc32c';
import { CHECKSUM_AT } from './packet-gate.ts';

/** Up to this length the table is faster than a native call. */
const TABLE_MAX_BYTES = 128;
const NO_BYTES = new Uint8Array(0);

export class PacketCrc {
  readonly #bytes: Uint8Array;
  readonly #fields: DataView;
  readonly #crc32c: Crc32c;
  /** By slot: the view of the last packet. */
  readonly #views: Uint8Array[];

  constructor(bytes: Uint8Array, slots: number, crc32c: Crc32c) {
    this.#bytes = bytes;
    this.#fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#crc32c = crc32c;
    this.#views = Array.from({ length: slots }, () => NO_BYTES);
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
    if (length <= TABLE_MAX_BYTES) return tableCrc32c(this.#bytes, start, start + length);
    let view = this.#views[slot] as Uint8Array;
    if (view.length !== length) {
      view = this.#bytes.subarray(start, start + length);
      this.#views[slot] = view;
    }
    return this.#crc32c(view);
  }
}
