/**
 * Reads XDR (RFC 4506). Every item takes a multiple of 4 bytes; roundup bytes are ignored, since
 * senders differ in their content (RFC 5666 §3.7).
 *
 * A reader also handles items that are not in its bytes because the peer moved them by RDMA. Its
 * `bulk` methods get them from a `BulkSource`, and its `position` counts the stream as if they were
 * there (RFC 8166 §3.4.5).
 */
import { decodeText } from '#contract/protocol/ipc-value';

/** The bytes are not valid XDR of the requested type. */
export class XdrError extends Error {
  /** Stable code. */
  readonly code = 'badXdr';

  override get name(): string {
    return 'XdrError';
  }
}

/** Provides the bytes of items that were moved out of an XDR stream. */
export interface BulkSource {
  /**
   * The bytes of the item at `position` of the unreduced stream, or undefined if it is in the
   * stream. `lengthBytes` is the item's length according to the stream; undefined if the stream
   * does not contain it. Throws `XdrError` if the item was moved with another length.
   */
  take(position: number, lengthBytes: number | undefined): Uint8Array | undefined;
  /** Throws `XdrError` if a moved item was never taken. */
  finish(): void;
}

/**
 * RDMA_MSGP padding of variable-length opaque items longer than `thresholdBytes`: padding between
 * count and content aligns the content to a multiple of `alignBytes`, counted from the start of the
 * RPC message (RFC 5666 §3.9, which leaves the base open).
 */
export interface OpaquePadding {
  /** Content starts at a multiple of this; 0 disables alignment. */
  readonly alignBytes: number;
  /** Only items longer than this are padded. */
  readonly thresholdBytes: number;
}

/** Bytes of padding before an item of `lengthBytes` after `writtenBytes` bytes. */
export function paddingBytes(
  padding: OpaquePadding | undefined,
  writtenBytes: number,
  lengthBytes: number,
): number {
  // RPCR-3.9-03 "Exceeds", as in the decoder's rule. An alignment of 0 disables alignment.
  if (padding === undefined || padding.alignBytes === 0) return 0;
  if (lengthBytes <= padding.thresholdBytes) return 0;
  return (padding.alignBytes - (writtenBytes % padding.alignBytes)) % padding.alignBytes;
}

/** `lengthBytes` rounded up to a multiple of 4 (RFC 4506 §3). */
export function roundup(lengthBytes: number): number {
  return lengthBytes + (-lengthBytes & 3);
}

/** The word of 32 bits at `at`, which must be inside `bytes`. */
export function wordAt(bytes: Uint8Array, at: number): number {
  // A DataView for a message of a few words would cost more than reading them.
  const high = ((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16);
  return (high | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0;
}

const NO_BYTES = new Uint8Array(0);

/**
 * A cursor over an XDR stream. Every method throws `XdrError` if the bytes end too early or a value
 * is not allowed. Returned bytes are views and live as long as the bytes passed to the constructor.
 */
export class XdrReader {
  readonly #bytes: Uint8Array;
  /** Made for the first item that is not a word. */
  #fields: DataView | undefined;
  readonly #bulk: BulkSource | undefined;
  #at = 0;
  /** Offset of the unreduced stream ahead of `#at`. */
  #moved: number;
  #bulkLeft = Number.POSITIVE_INFINITY;
  #padding: OpaquePadding | undefined;

  /** `startPosition`: the position of the first byte in its message. */
  constructor(bytes: Uint8Array, bulk?: BulkSource, startPosition = 0) {
    this.#bytes = bytes;
    this.#bulk = bulk;
    this.#moved = startPosition;
  }

  /** The current position in the unreduced stream. */
  get position(): number {
    return this.#at + this.#moved;
  }

  /** Remaining bytes of the stream, not counting moved items. */
  get remainingBytes(): number {
    return this.#bytes.length - this.#at;
  }

  /**
   * Allows only the next `count` bulk items to be outside the stream, as a procedure's binding
   * specifies; later ones are read from the stream. Without this call, all may be outside.
   */
  limitBulk(count: number): void {
    this.#bulkLeft = count;
  }

  /** From here on, variable-length opaque items are padded as in RDMA_MSGP. */
  expectPadding(padding: OpaquePadding): void {
    this.#padding = padding;
  }

  /** An unsigned integer (RFC 4506 §4.2). */
  uint32(): number {
    return wordAt(this.#bytes, this.#skip(4));
  }

  /** An integer, or an enumeration whose values the caller checks (RFC 4506 §4.1, §4.3). */
  int32(): number {
    return wordAt(this.#bytes, this.#skip(4)) | 0;
  }

  /** A boolean; only 0 and 1 are valid (RFC 4506 §4.4). */
  bool(): boolean {
    const value = this.uint32();
    if (value > 1) throw new XdrError(`${value} is not a boolean`);
    return value === 1;
  }

  /** An unsigned hyper integer (RFC 4506 §4.5). */
  uint64(): bigint {
    return this.#wide().getBigUint64(this.#skip(8));
  }

  /** A hyper integer (RFC 4506 §4.5). */
  int64(): bigint {
    return this.#wide().getBigInt64(this.#skip(8));
  }

  /** A single-precision number (RFC 4506 §4.6). */
  float32(): number {
    return this.#wide().getFloat32(this.#skip(4));
  }

  /** A double-precision number (RFC 4506 §4.7). */
  float64(): number {
    return this.#wide().getFloat64(this.#skip(8));
  }

  /** Fixed-length opaque data (RFC 4506 §4.9), also for 16-byte quadruples. Returns a view. */
  opaqueFixed(lengthBytes: number): Uint8Array {
    const start = this.#skip(roundup(lengthBytes));
    if (lengthBytes === 0) return NO_BYTES;
    return this.#bytes.subarray(start, start + lengthBytes);
  }

  /** Variable-length opaque data of at most `maxBytes` (RFC 4506 §4.10). Returns a view. */
  opaque(maxBytes: number): Uint8Array {
    const lengthBytes = this.count(maxBytes);
    this.#skipPadding(lengthBytes);
    return this.opaqueFixed(lengthBytes);
  }

  /** A string of at most `maxBytes` bytes of UTF-8 (RFC 4506 §4.11). */
  string(maxBytes: number): string {
    const bytes = this.opaque(maxBytes);
    try {
      return decodeText(bytes);
    } catch {
      throw new XdrError('a string is not UTF-8');
    }
  }

  /** A count of at most `max`. */
  count(max: number): number {
    const value = this.uint32();
    if (value > max) throw new XdrError(`count ${value} exceeds ${max}`);
    return value;
  }

  /** A variable-length array of at most `maxCount` elements (RFC 4506 §4.13). */
  array<T>(maxCount: number, decode: (reader: XdrReader) => T): T[] {
    const count = this.count(maxCount);
    // Only the caller's limit bounds the number of elements of 0 bytes: they would pass with a
    // count of 2^32.
    const elements: T[] = [];
    for (let i = 0; i < count; i++) elements.push(decode(this));
    return elements;
  }

  /** Optional data (RFC 4506 §4.19). */
  optional<T>(decode: (reader: XdrReader) => T): T | undefined {
    return this.bool() ? decode(this) : undefined;
  }

  /** A linked list of optional data (RFC 4506 §4.19), of at most `maxCount` elements. */
  chain<T>(maxCount: number, decode: (reader: XdrReader) => T): T[] {
    const elements: T[] = [];
    while (this.bool()) {
      if (elements.length === maxCount)
        throw new XdrError(`the list has more than ${maxCount} elements`);
      elements.push(decode(this));
    }
    return elements;
  }

  /**
   * Variable-length opaque data that may travel as a chunk if the binding allows it. Returns a view of the
   * stream or of the memory RDMA placed it in.
   */
  bulk(maxBytes: number): Uint8Array {
    const lengthBytes = this.count(maxBytes);
    this.#skipPadding(lengthBytes);
    return this.bulkFixed(lengthBytes);
  }

  /** Opaque data of a known length that may travel as a chunk: see `bulk`. */
  bulkFixed(lengthBytes: number): Uint8Array {
    const bytes = this.#take(lengthBytes);
    if (bytes === undefined) return this.opaqueFixed(lengthBytes);
    this.#moved += roundup(lengthBytes);
    return bytes;
  }

  /**
   * A variable-length array whose elements may travel together as a chunk; the count stays in the
   * stream (RFC 8166 §3.4.4.1). The elements must not contain bulk items.
   */
  bulkArray<T>(maxCount: number, decode: (reader: XdrReader) => T): T[] {
    const count = this.count(maxCount);
    const bytes = this.#take(undefined);
    const reader = bytes === undefined ? this : new XdrReader(bytes);
    const elements: T[] = [];
    for (let i = 0; i < count; i++) elements.push(decode(reader));
    if (bytes !== undefined) {
      reader.finish();
      this.#moved += roundup(bytes.length);
    }
    return elements;
  }

  /** Finishes reading. Throws `XdrError` if bytes or moved items are left over. */
  finish(): void {
    if (this.remainingBytes > 0) {
      throw new XdrError(`${this.remainingBytes} bytes are left over`);
    }
    this.#bulk?.finish();
  }

  /** A view of the remaining bytes; does not advance. */
  rest(): Uint8Array {
    return this.#bytes.subarray(this.#at);
  }

  #wide(): DataView {
    const bytes = this.#bytes;
    this.#fields ??= new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return this.#fields;
  }

  #skipPadding(lengthBytes: number): void {
    if (this.#padding === undefined) return;
    const sizeBytes = paddingBytes(this.#padding, this.#at, lengthBytes);
    this.#skip(sizeBytes);
    // Positions do not count padding.
    this.#moved -= sizeBytes;
  }

  #take(lengthBytes: number | undefined): Uint8Array | undefined {
    if (this.#bulk === undefined || this.#bulkLeft === 0) return undefined;
    this.#bulkLeft -= 1;
    return this.#bulk.take(this.position, lengthBytes);
  }

  #skip(sizeBytes: number): number {
    const start = this.#at;
    if (sizeBytes > this.#bytes.length - start) {
      throw new XdrError(`${sizeBytes} bytes at ${start} leave ${this.#bytes.length}`);
    }
    this.#at = start + sizeBytes;
    return start;
  }
}
