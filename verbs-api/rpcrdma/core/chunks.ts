/**
 * What chunk lists mean: which segments are one chunk, whether they can be right, how data is laid
 * over them, and where a decoder finds their content (RFC 8166 §3.4, RFC 5666 §3.4 to §3.7).
 */
import type { ReadSegment, Segment, WriteChunk } from './transport-header.ts';
import { type BulkSource, roundup, XdrError } from './xdr-reader.ts';

/** A read chunk: the segments of one position. */
export interface ReadChunk {
  readonly position: number;
  readonly segments: readonly Segment[];
  readonly lengthBytes: number;
}

/** Bounds of what a peer may ask for. */
export interface ChunkLimits {
  /** Segments of one chunk. */
  readonly segmentsMax: number;
  /** Octets of all read chunks of one call. */
  readonly readBytesMax: number;
}

/** Octets of a chunk. */
export function chunkLengthBytes(segments: readonly Segment[]): number {
  let lengthBytes = 0;
  for (const segment of segments) lengthBytes += segment.lengthBytes;
  return lengthBytes;
}

/**
 * The chunks of a read list, in the order of their positions; a position-zero chunk comes first.
 * Returns text instead when the list cannot be right or is beyond `limits`.
 */
export function readChunksOf(
  list: readonly ReadSegment[],
  limits: ChunkLimits,
): readonly ReadChunk[] | string {
  const chunks: { position: number; segments: Segment[]; lengthBytes: number }[] = [];
  let totalBytes = 0;
  for (const { position, ...segment } of list) {
    // RPCR2-3.4.5-01 XDR items start at multiples of four octets.
    if (position % 4 !== 0) return `position ${position} is no multiple of 4`;
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
    // A list out of order is refused, as is a position that comes back after another one: the
    // decoder goes forward only. The position-zero chunk holds the stream and overlaps all others.
    const from = last === undefined || last.position === 0 ? 0 : last.position + last.lengthBytes;
    if (last !== undefined && position < Math.max(from, 1)) {
      return `position ${position} after a chunk up to ${from}`;
    }
    chunks.push({ position, segments: [segment], lengthBytes: segment.lengthBytes });
  }
  return chunks;
}

/** Says what is wrong with write chunks or a reply chunk, or undefined. */
export function writeChunksFault(
  chunks: readonly WriteChunk[],
  limits: ChunkLimits,
): string | undefined {
  const tooMany = chunks.find((chunk) => chunk.length > limits.segmentsMax);
  return tooMany === undefined ? undefined : `a chunk of ${tooMany.length} segments`;
}

/** A piece of data and where it goes. */
export interface SegmentWrite {
  readonly handle: number;
  readonly offset: bigint;
  /** Octets from here of the data. */
  readonly start: number;
  readonly lengthBytes: number;
}

/** Data laid over a write chunk. */
export interface FilledChunk {
  /** The chunk as the reply returns it: lengths are what was written. */
  readonly returned: WriteChunk;
  /** Without empty pieces. */
  readonly writes: readonly SegmentWrite[];
}

/**
 * Lays `lengthBytes` octets over `chunk`, segment after segment without gaps (RPCR-3.7-06), or
 * returns undefined when they are too many.
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

/** A chunk as unused: the same segments, all lengths 0 (RPCR2-4.3.2.2-01). */
export function unusedChunk(chunk: WriteChunk): WriteChunk {
  return chunk.map((segment) => ({ ...segment, lengthBytes: 0 }));
}

/**
 * Compares a returned chunk with the one that was offered. Returns the octets written, or undefined
 * when it is another one, when more was written than offered, or not in order.
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

/** Cuts registered memory into segments of at most `segmentBytesMax`. */
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

/** The moved octets as an item of `lengthBytes`; throws `XdrError` when they are not that long. */
function itemOf(octets: Uint8Array, lengthBytes: number | undefined): Uint8Array {
  if (lengthBytes === undefined || octets.length === lengthBytes) return octets;
  // RPCR-3.4-07, RPCR2-3.4.5.2-01 Roundup may be there; nothing else may.
  if (octets.length !== roundup(lengthBytes)) {
    throw new XdrError(`a chunk of ${octets.length} octets for an item of ${lengthBytes}`);
  }
  return octets.subarray(0, lengthBytes);
}

/** Arguments that came as read chunks: found by their position. */
export class ReadChunkSource implements BulkSource {
  readonly #chunks: readonly { readonly position: number; readonly octets: Uint8Array }[];
  #next = 0;

  /** `chunks` in the order of their positions, without a position-zero chunk. */
  constructor(chunks: readonly { readonly position: number; readonly octets: Uint8Array }[]) {
    this.#chunks = chunks;
  }

  take(position: number, lengthBytes: number | undefined): Uint8Array | undefined {
    const chunk = this.#chunks[this.#next];
    if (chunk === undefined || chunk.position !== position) return undefined;
    this.#next += 1;
    return itemOf(chunk.octets, lengthBytes);
  }

  finish(): void {
    // RPCR2-6.1-01 What is left was moved without the binding's leave.
    const chunk = this.#chunks[this.#next];
    if (chunk !== undefined) {
      throw new XdrError(`no item that may be moved is at position ${chunk.position}`);
    }
  }
}

/** Results that came in write chunks: found by their order. */
export class WriteChunkSource implements BulkSource {
  readonly #results: readonly (Uint8Array | undefined)[];
  #next = 0;

  /** The content of each write chunk that was offered; undefined for one of no segments. */
  constructor(results: readonly (Uint8Array | undefined)[]) {
    this.#results = results;
  }

  take(_position: number, lengthBytes: number | undefined): Uint8Array | undefined {
    const octets = this.#results[this.#next];
    this.#next += 1;
    // RPCR2-6.1-02 A result that stayed inline beside its chunk makes the lengths differ.
    return octets === undefined ? undefined : itemOf(octets, lengthBytes);
  }

  finish(): void {
    const left = this.#results.slice(this.#next).find((octets) => (octets?.length ?? 0) > 0);
    if (left !== undefined) throw new XdrError(`a write chunk of ${left.length} octets is left`);
  }
}
