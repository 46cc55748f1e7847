/**
 * RPC messages on a stream (RFC 5531 §11): each is a record of one or more fragments. A word ahead
 * of each fragment holds its length and, in the highest bit, whether it is the last.
 */
import { emitPayload, type Payload } from '#verbs-api/rpcrdma/core/xdr-writer';

const LAST_FRAGMENT = 0x8000_0000;
const HEADER_BYTES = 4;

/** Encodes a message as a record of one fragment. */
export function emitRecord(payload: Payload): Uint8Array {
  const record = new Uint8Array(HEADER_BYTES + payload.lengthBytes);
  new DataView(record.buffer).setUint32(0, (LAST_FRAGMENT | payload.lengthBytes) >>> 0);
  emitPayload(payload, record, HEADER_BYTES);
  return record;
}

/** Reassembles records from a stream. */
export class RecordAssembler {
  readonly #recordMaxBytes: number;
  #stream = Buffer.alloc(0);
  #fragments: Buffer[] = [];
  #recordBytes = 0;

  /** `recordMaxBytes`: maximum bytes of a record. */
  constructor(recordMaxBytes: number) {
    this.#recordMaxBytes = recordMaxBytes;
  }

  /** Takes bytes; returns the records now complete, or undefined if one is too long. */
  handle(bytes: Buffer): readonly Buffer[] | undefined {
    this.#stream = Buffer.concat([this.#stream, bytes]);
    const records: Buffer[] = [];
    while (this.#stream.length >= HEADER_BYTES) {
      const word = this.#stream.readUInt32BE(0);
      const lengthBytes = (word & ~LAST_FRAGMENT) >>> 0;
      // Checked before the bytes arrive: claiming a length is free. Empty fragments count too, or a
      // peer could send them forever.
      if (this.#recordBytes + lengthBytes + HEADER_BYTES > this.#recordMaxBytes) return undefined;
      if (this.#stream.length < HEADER_BYTES + lengthBytes) break;
      this.#fragments.push(this.#stream.subarray(HEADER_BYTES, HEADER_BYTES + lengthBytes));
      this.#recordBytes += HEADER_BYTES + lengthBytes;
      this.#stream = this.#stream.subarray(HEADER_BYTES + lengthBytes);
      if (word >= LAST_FRAGMENT) {
        records.push(Buffer.concat(this.#fragments));
        this.#fragments = [];
        this.#recordBytes = 0;
      }
    }
    return records;
  }
}
