/**
 * Reads XDR (RFC 4506). Every item takes a multiple of four octets; roundup octets are not looked
 * at, since senders differ in what they leave there (RFC 5666 §3.7).
 *
 * A reader also knows of items that are not in its octets: those that the peer moved by RDMA. Its
 * `bulk` methods ask a `BulkSource` for them, and its `position` counts the stream as if they were
 * there (RFC 8166 §3.4.5).
 */
import { decodeText } from '../../contract/ipc-value.ts';

/** Octets are not the XDR of what was asked for. */
export class XdrError extends Error {
  override readonly name = 'XdrError';
}

/** Gives the octets of items that were taken out of an XDR stream. */
export interface BulkSource {
  /**
   * The octets of the item at `position` of the unreduced stream, or undefined when it is in the
   * stream. `lengthBytes` is the item's length by the stream, undefined where the stream does not
   * tell. Throws `XdrError` when the item was moved but its length is another.
   */
  take(position: number, lengthBytes: number | undefined): Uint8Array | undefined;
  /** Throws `XdrError` when an item was moved that nobody took. */
  finish(): void;
}

/**
 * What RDMA_MSGP does to variable-length opaque items of more than `thresholdBytes` octets: octets
 * between their count and their content make the content start at a multiple of `alignBytes`,
 * counted from the start of the RPC message (RFC 5666 §3.9, which leaves the base open).
 */
export interface OpaquePadding {
  readonly alignBytes: number;
  readonly thresholdBytes: number;
}

/** Octets of padding before an item of `lengthBytes` that follows `writtenBytes` octets. */
export function paddingBytes(
  padding: OpaquePadding | undefined,
  writtenBytes: number,
  lengthBytes: number,
): number {
  // RPCR-3.9-03 "Exceeds", as the decoder's rule has it. An alignment of 0 aligns nothing.
  if (padding === undefined || padding.alignBytes === 0) return 0;
  if (lengthBytes <= padding.thresholdBytes) return 0;
  return (padding.alignBytes - (writtenBytes % padding.alignBytes)) % padding.alignBytes;
}

/** `lengthBytes` with its roundup: the next multiple of 4 (RFC 4506 §3). */
export function roundup(lengthBytes: number): number {
  return lengthBytes + (-lengthBytes & 3);
}

/**
 * A cursor over an XDR stream. Every method throws `XdrError` where the octets end too early or a
 * value is not allowed. Octets that it returns are views: they live as long as what was given to
 * the constructor.
 */
export class XdrReader {
  readonly #octets: Uint8Array;
  readonly #fields: DataView;
  readonly #bulk: BulkSource | undefined;
  #at = 0;
  /** How much further the unreduced stream is than `#at`. */
  #moved: number;
  #bulkLeft = Number.POSITIVE_INFINITY;
  #padding: OpaquePadding | undefined;

  /** `startPosition` is the position of the first octet in the message that it is a part of. */
  constructor(octets: Uint8Array, bulk?: BulkSource, startPosition = 0) {
    this.#octets = octets;
    this.#fields = new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
    this.#bulk = bulk;
    this.#moved = startPosition;
  }

  /** Octets up to here in the unreduced stream. */
  get position(): number {
    return this.#at + this.#moved;
  }

  /** Octets of the stream that are left, moved items not counted. */
  get remainingBytes(): number {
    return this.#octets.length - this.#at;
  }

  /**
   * Lets only the next `count` bulk items be outside of the stream, as the binding of a procedure
   * says; further ones are read from the stream. Without this call all may be.
   */
  limitBulk(count: number): void {
    this.#bulkLeft = count;
  }

  /** From here on, variable-length opaque items are padded as RDMA_MSGP has it. */
  expectPadding(padding: OpaquePadding): void {
    this.#padding = padding;
  }

  /** An unsigned integer (RFC 4506 §4.2). */
  uint32(): number {
    return this.#fields.getUint32(this.#skip(4));
  }

  /** An integer, or an enumeration whose values the caller checks (RFC 4506 §4.1, §4.3). */
  int32(): number {
    return this.#fields.getInt32(this.#skip(4));
  }

  /** A boolean; only 0 and 1 are values (RFC 4506 §4.4). */
  bool(): boolean {
    const value = this.uint32();
    if (value > 1) throw new XdrError(`${value} is no boolean`);
    return value === 1;
  }

  /** An unsigned hyper integer (RFC 4506 §4.5). */
  uint64(): bigint {
    return this.#fields.getBigUint64(this.#skip(8));
  }

  /** A hyper integer (RFC 4506 §4.5). */
  int64(): bigint {
    return this.#fields.getBigInt64(this.#skip(8));
  }

  /** A single-precision number (RFC 4506 §4.6). */
  float32(): number {
    return this.#fields.getFloat32(this.#skip(4));
  }

  /** A double-precision number (RFC 4506 §4.7). */
  float64(): number {
    return this.#fields.getFloat64(this.#skip(8));
  }

  /** Fixed-length opaque data (RFC 4506 §4.9); a quadruple is one of 16 octets. A view. */
  opaqueFixed(lengthBytes: number): Uint8Array {
    const start = this.#skip(roundup(lengthBytes));
    return this.#octets.subarray(start, start + lengthBytes);
  }

  /** Variable-length opaque data of at most `maxBytes` (RFC 4506 §4.10). A view. */
  opaque(maxBytes: number): Uint8Array {
    const lengthBytes = this.count(maxBytes);
    this.#skipPadding(lengthBytes);
    return this.opaqueFixed(lengthBytes);
  }

  /** A string of at most `maxBytes` octets of UTF-8 (RFC 4506 §4.11). */
  string(maxBytes: number): string {
    const octets = this.opaque(maxBytes);
    try {
      return decodeText(octets);
    } catch {
      throw new XdrError('a string is not UTF-8');
    }
  }

  /** A count of at most `max`. */
  count(max: number): number {
    const value = this.uint32();
    if (value > max) throw new XdrError(`a count of ${value} is above ${max}`);
    return value;
  }

  /** A variable-length array of at most `maxCount` elements (RFC 4506 §4.13). */
  array<T>(maxCount: number, decode: (reader: XdrReader) => T): T[] {
    const count = this.count(maxCount);
    // Elements of no octets would let a count of 2^32 pass, so the caller's bound is what holds.
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
      if (elements.length === maxCount) throw new XdrError(`a list of more than ${maxCount}`);
      elements.push(decode(this));
    }
    return elements;
  }

  /**
   * Variable-length opaque data that the binding lets travel as a chunk. A view of the stream or of
   * the memory that RDMA placed it in.
   */
  bulk(maxBytes: number): Uint8Array {
    const lengthBytes = this.count(maxBytes);
    this.#skipPadding(lengthBytes);
    return this.bulkFixed(lengthBytes);
  }

  /** Opaque data of a known length that the binding lets travel as a chunk: see `bulk`. */
  bulkFixed(lengthBytes: number): Uint8Array {
    const octets = this.#take(lengthBytes);
    if (octets === undefined) return this.opaqueFixed(lengthBytes);
    this.#moved += roundup(lengthBytes);
    return octets;
  }

  /**
   * A variable-length array whose elements the binding lets travel together as a chunk: the count
   * stays in the stream (RFC 8166 §3.4.4.1). The elements themselves hold no bulk items.
   */
  bulkArray<T>(maxCount: number, decode: (reader: XdrReader) => T): T[] {
    const count = this.count(maxCount);
    const octets = this.#take(undefined);
    const reader = octets === undefined ? this : new XdrReader(octets);
    const elements: T[] = [];
    for (let i = 0; i < count; i++) elements.push(decode(reader));
    if (octets !== undefined) {
      reader.finish();
      this.#moved += roundup(octets.length);
    }
    return elements;
  }

  /** Ends the reading. Throws `XdrError` when octets or moved items are left over. */
  finish(): void {
    if (this.remainingBytes > 0) {
      throw new XdrError(`${this.remainingBytes} octets are left over`);
    }
    this.#bulk?.finish();
  }

  /** The octets from here to the end of the stream, as a view, without passing over them. */
  rest(): Uint8Array {
    return this.#octets.subarray(this.#at);
  }

  #skipPadding(lengthBytes: number): void {
    const sizeBytes = paddingBytes(this.#padding, this.#at, lengthBytes);
    this.#skip(sizeBytes);
    // Padding is no part of the stream that positions count.
    this.#moved -= sizeBytes;
  }

  #take(lengthBytes: number | undefined): Uint8Array | undefined {
    if (this.#bulk === undefined || this.#bulkLeft === 0) return undefined;
    this.#bulkLeft -= 1;
    return this.#bulk.take(this.position, lengthBytes);
  }

  #skip(sizeBytes: number): number {
    const start = this.#at;
    if (sizeBytes > this.#octets.length - start) {
      throw new XdrError(`${sizeBytes} octets at ${start} leave ${this.#octets.length}`);
    }
    this.#at = start + sizeBytes;
    return start;
  }
}
