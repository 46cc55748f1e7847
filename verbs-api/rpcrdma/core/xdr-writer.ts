/**
 * Writes XDR (RFC 4506). Items that may travel as chunks are kept aside as views: the sender decides,
 * once the message size is known, whether they go in the stream or by RDMA (RFC 8166 §3.4.2).
 */
import { encodeText } from '#contract/protocol/ipc-value';
import { type OpaquePadding, paddingBytes, roundup } from './xdr-reader.ts';

/** An item that may travel outside the stream. */
export interface BulkItem {
  /** Offset of the item in the reduced stream. */
  readonly at: number;
  /** Offset of the item in the unreduced stream: the Position of its read chunk. */
  readonly position: number;
  /** The item without roundup; a view of the codec's input. */
  readonly bytes: Uint8Array;
}

/** An encoded message: its stream without bulk items, and the bulk items. */
export interface Payload {
  /** The reduced stream. Owned by the writer and valid until its `reset`. */
  readonly stream: Uint8Array;
  /** In stream order. */
  readonly items: readonly BulkItem[];
  /** Bytes of the unreduced stream. */
  readonly lengthBytes: number;
}

/** Up to here a loop is faster than a view and `set`. */
const LOOP_MAX_BYTES = 64;

/** Copies all of `bytes` into `target` at `at`. RangeError if it is too short. */
function copyInto(target: Uint8Array, at: number, bytes: Uint8Array, lengthBytes: number): void {
  if (lengthBytes > LOOP_MAX_BYTES) {
    target.set(lengthBytes === bytes.length ? bytes : bytes.subarray(0, lengthBytes), at);
    return;
  }
  const end = at + lengthBytes;
  if (end > target.length) throw new RangeError(`${end} bytes in a buffer of ${target.length}`);
  for (let i = 0; i < lengthBytes; i++) target[at + i] = bytes[i] ?? 0;
}

/**
 * Writes the unreduced stream of a payload, including bulk items and their roundup, into `target`
 * at `at`. RangeError if `target` is too short.
 */
export function emitPayload(payload: Payload, target: Uint8Array, at: number): void {
  const { stream } = payload;
  if (payload.items.length === 0) {
    copyInto(target, at, stream, stream.length);
    return;
  }
  let from = 0;
  let to = at;
  for (const item of payload.items) {
    target.set(stream.subarray(from, item.at), to);
    to += item.at - from;
    from = item.at;
    target.set(item.bytes, to);
    const end = to + roundup(item.bytes.length);
    if (end > target.length) throw new RangeError(`${end} bytes in a buffer of ${target.length}`);
    target.fill(0, to + item.bytes.length, end);
    to = end;
  }
  target.set(stream.subarray(from), to);
}

const FIRST_BYTES = 512;
const NO_ITEMS: readonly BulkItem[] = [];

/** Encodes messages one after another; its memory grows to the largest. */
export class XdrWriter {
  #bytes = new Uint8Array(FIRST_BYTES);
  #fields = new DataView(this.#bytes.buffer);
  #at = 0;
  #moved = 0;
  #items: BulkItem[] | undefined;
  #bulkLeft = Number.POSITIVE_INFINITY;
  #padding: OpaquePadding | undefined;
  /** The last view handed out: messages of one kind have one length. */
  #stream = this.#bytes.subarray(0, 0);

  /** Bytes written so far, including bulk items. */
  get position(): number {
    return this.#at + this.#moved;
  }

  /** Starts the next message, reusing the memory. */
  reset(): void {
    this.#at = 0;
    this.#moved = 0;
    this.#items = undefined;
    this.#bulkLeft = Number.POSITIVE_INFINITY;
    this.#padding = undefined;
  }

  /**
   * Keeps only the next `count` bulk items aside, as a procedure's binding specifies; later ones
   * are written to the stream. Without this call, and after `reset`, all are kept aside.
   */
  limitBulk(count: number): void {
    this.#bulkLeft = count;
  }

  /** The message written since `reset`. */
  payload(): Payload {
    if (this.#stream.length !== this.#at) this.#stream = this.#bytes.subarray(0, this.#at);
    return {
      stream: this.#stream,
      items: this.#items ?? NO_ITEMS,
      lengthBytes: this.position,
    };
  }

  /** Copies the stream to the start of `target`. Returns its bytes; RangeError if it is too short. */
  copyTo(target: Uint8Array): number {
    copyInto(target, 0, this.#bytes, this.#at);
    return this.#at;
  }

  /**
   * Pads variable-length opaque items for RDMA_MSGP until `reset`, and keeps no bulk items aside:
   * such a message must go inline.
   */
  pad(padding: OpaquePadding): void {
    this.#padding = padding;
    this.#bulkLeft = 0;
  }

  /** An unsigned integer (RFC 4506 §4.2); the low 32 bits of `value`. */
  uint32(value: number): void {
    const at = this.#grow(4);
    this.#fields.setUint32(at, value);
  }

  /** An integer or an enumeration (RFC 4506 §4.1, §4.3). */
  int32(value: number): void {
    const at = this.#grow(4);
    this.#fields.setInt32(at, value);
  }

  /** A boolean (RFC 4506 §4.4). */
  bool(value: boolean): void {
    this.uint32(value ? 1 : 0);
  }

  /** An unsigned hyper integer (RFC 4506 §4.5); the low 64 bits of `value`. */
  uint64(value: number | bigint): void {
    const at = this.#grow(8);
    this.#fields.setBigUint64(at, BigInt(value));
  }

  /** A hyper integer (RFC 4506 §4.5). */
  int64(value: number | bigint): void {
    const at = this.#grow(8);
    this.#fields.setBigInt64(at, BigInt(value));
  }

  /** A single-precision number (RFC 4506 §4.6). */
  float32(value: number): void {
    const at = this.#grow(4);
    this.#fields.setFloat32(at, value);
  }

  /** A double-precision number (RFC 4506 §4.7). */
  float64(value: number): void {
    const at = this.#grow(8);
    this.#fields.setFloat64(at, value);
  }

  /** Fixed-length opaque data with its roundup (RFC 4506 §4.9). Copies. */
  opaqueFixed(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const start = this.#grow(roundup(bytes.length));
    this.#bytes.set(bytes, start);
    this.#bytes.fill(0, start + bytes.length, this.#at);
  }

  /** Variable-length opaque data (RFC 4506 §4.10). Copies. */
  opaque(bytes: Uint8Array): void {
    this.uint32(bytes.length);
    this.#writePadding(bytes.length);
    this.opaqueFixed(bytes);
  }

  /** A string as UTF-8 (RFC 4506 §4.11). */
  string(text: string): void {
    this.opaque(encodeText(text));
  }

  /** A variable-length array (RFC 4506 §4.13). */
  array<T>(elements: readonly T[], encode: (writer: XdrWriter, element: T) => void): void {
    this.uint32(elements.length);
    for (const element of elements) encode(this, element);
  }

  /** Optional data (RFC 4506 §4.19); undefined means absent. */
  optional<T>(value: T | undefined, encode: (writer: XdrWriter, value: T) => void): void {
    this.bool(value !== undefined);
    if (value !== undefined) encode(this, value);
  }

  /** A linked list of optional data (RFC 4506 §4.19). */
  chain<T>(elements: Iterable<T>, encode: (writer: XdrWriter, element: T) => void): void {
    for (const element of elements) {
      this.bool(true);
      encode(this, element);
    }
    this.bool(false);
  }

  /**
   * Variable-length opaque data that may travel as a chunk if the binding allows it. Not copied: `bytes`
   * must not change until the call or reply was sent.
   */
  bulk(bytes: Uint8Array): void {
    this.uint32(bytes.length);
    this.#writePadding(bytes.length);
    this.bulkFixed(bytes);
  }

  /** Opaque data of a known length that may travel as a chunk: see `bulk`. */
  bulkFixed(bytes: Uint8Array): void {
    if (this.#bulkLeft === 0) {
      this.opaqueFixed(bytes);
      return;
    }
    this.#bulkLeft -= 1;
    this.#items ??= [];
    this.#items.push({ at: this.#at, position: this.position, bytes });
    this.#moved += roundup(bytes.length);
  }

  /**
   * A variable-length array whose elements may travel together as a chunk; the count stays in the
   * stream (RFC 8166 §3.4.4.1). The elements must not contain bulk items.
   */
  bulkArray<T>(elements: readonly T[], encode: (writer: XdrWriter, element: T) => void): void {
    this.uint32(elements.length);
    const writer = new XdrWriter();
    for (const element of elements) encode(writer, element);
    this.bulkFixed(writer.payload().stream);
  }

  #writePadding(lengthBytes: number): void {
    if (this.#padding === undefined) return;
    const sizeBytes = paddingBytes(this.#padding, this.#at, lengthBytes);
    const start = this.#grow(sizeBytes);
    this.#bytes.fill(0, start, start + sizeBytes);
  }

  #grow(sizeBytes: number): number {
    const start = this.#at;
    const end = start + sizeBytes;
    if (end > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(end, this.#bytes.length * 2));
      larger.set(this.#bytes);
      this.#bytes = larger;
      this.#fields = new DataView(larger.buffer);
      this.#stream = larger.subarray(0, 0);
    }
    this.#at = end;
    return start;
  }
}
