/**
 * RPC messages on a stream (RFC 5531 §11): each is a record of one or more fragments, each with a
 * word ahead that holds its length and, in the highest bit, whether it is the last.
 */
import { emitPayload, type Payload } from '../../verbs-api/rpcrdma/core/xdr-writer.ts';

const LAST_FRAGMENT = 0x8000_0000;
const HEADER_BYTES = 4;

/** A record of one fragment. */
export function emitRecord(payload: Payload): Uint8Array {
  const record = new Uint8Array(HEADER_BYTES + payload.lengthBytes);
  new DataView(record.buffer).setUint32(0, (LAST_FRAGMENT | payload.lengthBytes) >>> 0);
  emitPayload(payload, record, HEADER_BYTES);
  return record;
}

/** Puts records together from what a stream brings. */
export class RecordAssembler {
  readonly #recordMaxBytes: number;
  #stream = Buffer.alloc(0);
  #fragments: Buffer[] = [];
  #recordBytes = 0;

  /** `recordMaxBytes`: octets of a record at most. */
  constructor(recordMaxBytes: number) {
    this.#recordMaxBytes = recordMaxBytes;
  }

  /** Takes octets; the records that are whole now, or undefined when one is too long. */
  handle(octets: Buffer): readonly Buffer[] | undefined {
    this.#stream = Buffer.concat([this.#stream, octets]);
    const records: Buffer[] = [];
    while (this.#stream.length >= HEADER_BYTES) {
      const word = this.#stream.readUInt32BE(0);
      const lengthBytes = (word & ~LAST_FRAGMENT) >>> 0;
      // Checked before the octets are there: a length costs nothing to claim. Empty fragments
      // count too, or they could come for ever.
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
