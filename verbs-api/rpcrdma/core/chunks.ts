/**
 * Interprets chunk lists: which segments form a chunk, whether a list is valid, how data is laid
 * out over it, and where a decoder finds its content (RFC 8166 §3.4, RFC 5666 §3.4 to §3.7).
 */
import type { ReadSegment, Segment, WriteChunk } from './transport-header.ts';
import { type BulkSource, roundup, XdrError } from './xdr-reader.ts';

/** A read chunk: the segments of one position. */
export interface ReadChunk {
  readonly position: number;
  readonly segments: readonly Segment[];
  readonly lengthBytes: number;
}

/** Limits on what a peer may request. */
export interface ChunkLimits {
  /** Maximum segments per chunk. */
  readonly segmentsMax: number;
  /** Maximum bytes of all read chunks of one call. */
  readonly readBytesMax: number;
}

/**
 * The chunks of a read list in order of position; a position-zero chunk comes first. Returns an
 * error text when the list is invalid or exceeds `limits`.
 */
export function readChunksOf(
  list: readonly ReadSegment[],
  limits: ChunkLimits,
): readonly ReadChunk[] | string {
  const chunks: { position: number; segments: Segment[]; lengthBytes: number }[] = [];
  let totalBytes = 0;
  for (const { position, ...segment } of list) {
    // RPCR2-3.4.5-01 XDR items start at multiples of 4 bytes.
    if (position % 4 !== 0) return `position ${position} is not a multiple of 4`;
    totalBytes += segment.lengthBytes;
    if (totalBytes > limits.readBytesMax) return `read chunks of more than ${limits.readBytesMax}`;
    const last = chunks.at(-1);
    if (last?.position === position) {
      // RPCR2-3.4.5-02 Segments of one position are one chunk, in the order of the list.
      if (last.segments.length === limits.segmentsMax) return 'a chunk of too many segments';
      last.segments.push(segment);
      last.lengthBytes += segment.lengthBytes;
      continue;
    }
    // Rejects a list out of order and a position that recurs after another one: the decoder only
    // moves forward. The position-zero chunk holds the stream and overlaps all others.
    const from = last === undefined || last.position === 0 ? 0 : last.position + last.lengthBytes;
    if (last !== undefined && position < Math.max(from, 1)) {
      return `position ${position} after a chunk up to ${from}`;
    }
    chunks.push({ position, segments: [segment], lengthBytes: segment.lengthBytes });
  }
  return chunks;
}

/** Returns an error text for invalid write chunks or an invalid reply chunk, else undefined. */
export function writeChunksError(
  chunks: readonly WriteChunk[],
  limits: ChunkLimits,
): string | undefined {
  const tooMany = chunks.find((chunk) => chunk.length > limits.segmentsMax);
  return tooMany === undefined ? undefined : `a chunk of ${tooMany.length} segments`;
}

/** A piece of data and its destination. */
export interface SegmentWrite {
  readonly handle: number;
  readonly offset: bigint;
  /** Offset in the data. */
  readonly start: number;
  readonly lengthBytes: number;
}

/** Data laid out over a write chunk. */
interface FilledChunk {
  /** The chunk as returned in the reply: lengths are the bytes written. */
  readonly returned: WriteChunk;
  /** Excludes empty pieces. */
  readonly writes: readonly SegmentWrite[];
}

/**
 * Lays out `lengthBytes` bytes over `chunk`, segment by segment without gaps (RPCR-3.7-06). Returns
 * undefined if they do not fit.
 */
export function fillChunk(chunk: WriteChunk, lengthBytes: number): FilledChunk | undefined {
  const returned: Segment[] = [];
  const writes: SegmentWrite[] = [];
  let start = 0;
  for (const segment of chunk) {
    const pieceBytes = Math.min(segment.lengthBytes, lengthBytes - start);
    returned.push({ ...segment, lengthBytes: pieceBytes });
    if (pieceBytes > 0) {
      writes.push({
        handle: segment.handle,
        offset: segment.offset,
        start,
        lengthBytes: pieceBytes,
      });
    }
    start += pieceBytes;
  }
  return start === lengthBytes ? { returned, writes } : undefined;
}

/** A chunk returned unused: the same segments, all with length 0 (RPCR2-4.3.2.2-01). */
export function unusedChunk(chunk: WriteChunk): WriteChunk {
  return chunk.map((segment) => ({ ...segment, lengthBytes: 0 }));
}

/**
 * Compares a returned chunk with the one offered. Returns the bytes written, or undefined when the
 * chunk differs, more was written than offered, or segments were not filled in order.
 */
export function returnedLengthBytes(offered: WriteChunk, returned: WriteChunk): number | undefined {
  if (returned.length !== offered.length) return undefined;
  let totalBytes = 0;
  let full = true;
  for (const [i, segment] of returned.entries()) {
    const mine = offered[i];
    if (mine === undefined || mine.handle !== segment.handle) return undefined;
    if (mine.offset !== segment.offset || segment.lengthBytes > mine.lengthBytes) return undefined;
    if (segment.lengthBytes > 0 && !full) return undefined;
    full &&= segment.lengthBytes === mine.lengthBytes;
    totalBytes += segment.lengthBytes;
  }
  return totalBytes;
}

/** Splits registered memory into segments of at most `segmentBytesMax`. */
export function segmentsOf(memory: Segment, segmentBytesMax: number): readonly Segment[] {
  const segments: Segment[] = [];
  for (let start = 0; start < memory.lengthBytes; start += segmentBytesMax) {
    segments.push({
      handle: memory.handle,
      lengthBytes: Math.min(segmentBytesMax, memory.lengthBytes - start),
      offset: memory.offset + BigInt(start),
    });
  }
  return segments;
}

/** The moved bytes as an item of `lengthBytes`; throws `XdrError` if the length differs. */
function itemOf(bytes: Uint8Array, lengthBytes: number | undefined): Uint8Array {
  if (lengthBytes === undefined || bytes.length === lengthBytes) return bytes;
  // RPCR-3.4-07, RPCR2-3.4.5.2-01 Roundup is optional; any other length is an error.
  if (bytes.length !== roundup(lengthBytes)) {
    throw new XdrError(`the chunk has ${bytes.length} bytes, its item ${lengthBytes}`);
  }
  return bytes.subarray(0, lengthBytes);
}

/** Arguments that arrived as read chunks, found by position. */
export class ReadChunkSource implements BulkSource {
  readonly #chunks: readonly { readonly position: number; readonly bytes: Uint8Array }[];
  #next = 0;

  /** `chunks` in order of position, without a position-zero chunk. */
  constructor(chunks: readonly { readonly position: number; readonly bytes: Uint8Array }[]) {
    this.#chunks = chunks;
  }

  take(position: number, lengthBytes: number | undefined): Uint8Array | undefined {
    const chunk = this.#chunks[this.#next];
    if (chunk === undefined || chunk.position !== position) return undefined;
    this.#next += 1;
    return itemOf(chunk.bytes, lengthBytes);
  }

  finish(): void {
    // RPCR2-6.1-01 The binding does not allow the remaining chunks.
    const chunk = this.#chunks[this.#next];
    if (chunk !== undefined) {
      throw new XdrError(`no item that may be moved is at position ${chunk.position}`);
    }
  }
}

/** Results that arrived in write chunks, found by order. */
export class WriteChunkSource implements BulkSource {
  readonly #results: readonly (Uint8Array | undefined)[];
  #next = 0;

  /** The content of each offered write chunk; undefined for one without segments. */
  constructor(results: readonly (Uint8Array | undefined)[]) {
    this.#results = results;
  }

  take(_position: number, lengthBytes: number | undefined): Uint8Array | undefined {
    const bytes = this.#results[this.#next];
    this.#next += 1;
    // RPCR2-6.1-02 If a result stayed inline next to its chunk, the lengths differ.
    return bytes === undefined ? undefined : itemOf(bytes, lengthBytes);
  }

  finish(): void {
    for (let i = this.#next; i < this.#results.length; i++) {
      const leftBytes = this.#results[i]?.length ?? 0;
      if (leftBytes > 0) throw new XdrError(`${leftBytes} bytes of a write chunk are unused`);
    }
  }
}
