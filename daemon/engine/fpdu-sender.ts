/**
 * The outbound half of a stream: startup frames and FPDUs, built in place in chunks of a pool.
 *
 * The hot path is `begin`, write the ULPDU into `octets` at `ulpduStart`, `commit`: header and
 * payload are written once, where they leave from; length, PAD and CRC are set around them. Several
 * FPDUs share a chunk (MPA-5.1-04); `pollTransmit` gives all of one chunk that is ready.
 *
 * Read before changing: RFC 5044 §4, §5.1 and Appendix A.4.
 */
import { assert } from '../wire/assert.ts';
import { type Crc32c, rangeCrc32c } from '../wire/crc32c.ts';
import {
  FPDU_CRC_BYTES,
  fpduSizeBytes,
  ULPDU_LENGTH_BYTES,
  ULPDU_SEND_MAX_BYTES,
} from '../wire/fpdu.ts';
import { insertMarkers, leadingMarkerBytes, markedSizeBytes, markerPhase } from '../wire/marker.ts';
import { readUint16, writeUint16, writeUint32, writeUint32LE } from '../wire/octets.ts';
import type { ChunkPool } from './chunk-pool.ts';

/** What a sender is made with. */
export interface FpduSenderOptions {
  readonly pool: ChunkPool;
  /** Computes the CRC of FPDUs too large for the table. */
  readonly crc32c: Crc32c;
  /** `begin` refuses once this many octets wait for the socket. Default 524,288. */
  readonly highWaterBytes?: number;
  /**
   * MPA-5.1-03: with CRCs on, `pollTransmit` gives octets that TCP can cut without cutting an FPDU,
   * if each write starts a segment: the kernel's siw fails a good CRC when a segment boundary cuts
   * the trailer. Default false.
   */
  readonly alignSegments?: boolean;
  /** Octets of a segment (EMSS). Default 0: when aligned, one FPDU per `pollTransmit`. */
  readonly segmentBytes?: number;
}

/** A chunk with output: `0 <= flushed <= polled <= committed <= octets.length`. */
interface OutputChunk {
  readonly octets: Uint8Array;
  committed: number;
  polled: number;
  flushed: number;
}

const NO_OCTETS = new Uint8Array(0);

/**
 * Room in the segment being built from which a ULPDU is cut to fill it. One more FPDU costs about a
 * microsecond, one more segment on loopback about five; filling a few octets would pay for neither.
 */
const FILLING_MIN_BYTES = 16_384;

/** Builds FPDUs and holds them until the socket has taken them. */
export class FpduSender {
  /** The chunk of the ULPDU begun. Valid from `begin` to `commit`. */
  octets: Uint8Array = NO_OCTETS;
  /** Where in `octets` the ULPDU begun is to be written. Valid from `begin` to `commit`. */
  ulpduStart = 0;

  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;
  readonly #highWaterBytes: number;
  readonly #alignSegments: boolean;
  #segmentBytes: number;
  /** In stream order; only the last one is being filled. */
  readonly #chunks: OutputChunk[] = [];
  #queuedBytes = 0;
  #ulpduLength = 0;
  #fullOperation = false;
  #hasSpoken = false;
  #crcEnabled = true;
  #markers = false;
  /** Stream position modulo 512 of the next FPDU to commit, and of the next one to poll. */
  #phase = 0;
  #polledPhase = 0;
  #startupBytesToPoll = 0;
  /** Octets committed to the segment that the next FPDU may join. */
  #segmentUsedBytes = 0;

  constructor(options: FpduSenderOptions) {
    this.#pool = options.pool;
    this.#crc32c = options.crc32c;
    this.#highWaterBytes = options.highWaterBytes ?? 524_288;
    this.#alignSegments = options.alignSegments ?? false;
    this.#segmentBytes = options.segmentBytes ?? 0;
  }

  // Commands

  /** Queues a copy of our startup frame: plain octets without CRC and markers (MPA-7.1-03). */
  sendStartupFrame(frame: Uint8Array): void {
    assert(!this.#fullOperation, 'a startup frame goes before the first FPDU');
    const tail = this.#chunkWithRoom(frame.length);
    tail.octets.set(frame, tail.committed);
    tail.committed += frame.length;
    this.#queuedBytes += frame.length;
    this.#startupBytesToPoll += frame.length;
  }

  // MPA-4.3-01: `markers` is the peer's wish, which every sender here can meet.
  /** FPDUs may follow. The marker count starts here, behind our startup frame (MPA-4.3-09). */
  enterFullOperation(crcEnabled: boolean, markers: boolean): void {
    assert(!this.#fullOperation, 'Full Operation is entered once');
    this.#fullOperation = true;
    this.#crcEnabled = crcEnabled;
    this.#markers = markers;
  }

  /**
   * Reserves room for an FPDU around a ULPDU of `ulpduLength` octets (1..64768), to be written at
   * `octets[ulpduStart]`. False when the output is full; `flushed` makes room. A further `begin`
   * without `commit` drops the reservation. Throws `RangeError` for a length that may not be sent.
   */
  begin(ulpduLength: number): boolean {
    assert(this.#fullOperation, 'FPDUs are sent in Full Operation');
    // MPA-3-05, MPA-3-07: refused here, with nothing written.
    if (ulpduLength < 1 || ulpduLength > ULPDU_SEND_MAX_BYTES) {
      throw new RangeError(`a ULPDU has 1 to ${ULPDU_SEND_MAX_BYTES} octets, not ${ulpduLength}`);
    }
    this.#ulpduLength = 0;
    if (this.#queuedBytes >= this.#highWaterBytes) return false;
    const fpduBytes = fpduSizeBytes(ulpduLength);
    const lead = this.#markers ? leadingMarkerBytes(this.#phase) : 0;
    const span = this.#markers ? markedSizeBytes(this.#phase, fpduBytes) : fpduBytes;
    const tail = this.#chunkWithRoom(span);
    this.octets = tail.octets;
    this.ulpduStart = tail.committed + lead + ULPDU_LENGTH_BYTES;
    this.#ulpduLength = ulpduLength;
    return true;
  }

  // MPA-3-01, MPA-4.1-01: one reservation, one ULPDU, one FPDU.
  /** Completes the FPDU begun: its length, PAD, markers and CRC. It can then be polled. */
  commit(): void {
    const ulpduLength = this.#ulpduLength;
    const tail = this.#chunks[this.#chunks.length - 1];
    assert(ulpduLength > 0 && tail !== undefined, 'commit follows begin');
    this.#ulpduLength = 0;
    const octets = tail.octets;
    const start = tail.committed;
    const fpduBytes = fpduSizeBytes(ulpduLength);
    const header = this.ulpduStart - ULPDU_LENGTH_BYTES;
    writeUint16(octets, header, ulpduLength);
    // MPA-4.1-03: a chunk holds leftovers, so PAD is zeroed each time.
    const padEnd = header + fpduBytes - FPDU_CRC_BYTES;
    for (let at = this.ulpduStart + ulpduLength; at < padEnd; at++) octets[at] = 0;
    let span = fpduBytes;
    if (this.#markers) {
      span = markedSizeBytes(this.#phase, fpduBytes);
      insertMarkers(octets, start, fpduBytes, this.#phase);
      this.#phase = markerPhase(this.#phase + span);
    }
    // MPA-4.4-11, MPA-4.4-12, MPA-4.4-13: from the leading marker, if any, to the last PAD octet or
    // the marker behind it. MPA-4.4-15: the field itself is last and not covered.
    const end = start + span;
    const crcAt = end - FPDU_CRC_BYTES;
    if (this.#crcEnabled) {
      // MPA-4.4-09
      writeUint32LE(octets, crcAt, rangeCrc32c(this.#crc32c, octets, start, crcAt));
    } else {
      // MPA-4.4-07, MPA-4.4-08: the field is there all the same; its value means nothing.
      writeUint32(octets, crcAt, 0);
    }
    const joins = this.#segmentUsedBytes + span <= this.#segmentBytes && start > tail.polled;
    this.#segmentUsedBytes = joins ? this.#segmentUsedBytes + span : span;
    tail.committed = end;
    this.#queuedBytes += span;
    this.#hasSpoken = true;
  }

  /** The socket's EMSS has changed; it counts for what is polled from now on. */
  setSegmentBytes(segmentBytes: number): void {
    this.#segmentBytes = segmentBytes;
  }

  // Inputs

  /** The socket has taken the oldest `bytes` polled octets; chunks without output go back. */
  flushed(bytes: number): void {
    let left = bytes;
    while (left > 0) {
      const head = this.#chunks[0];
      assert(head !== undefined, 'no more is flushed than was polled');
      const taken = Math.min(left, head.polled - head.flushed);
      assert(taken > 0, 'no more is flushed than was polled');
      head.flushed += taken;
      left -= taken;
      this.#queuedBytes -= taken;
      if (head.flushed < head.committed) continue;
      if (this.#chunks.length === 1 && this.#ulpduLength > 0) continue;
      this.#chunks.shift();
      this.#pool.release(head.octets);
    }
  }

  /** Gives back all chunks. The socket must be gone: views that it still holds would be reused. */
  release(): void {
    for (const chunk of this.#chunks) this.#pool.release(chunk.octets);
    this.#chunks.length = 0;
    this.#queuedBytes = 0;
    this.#ulpduLength = 0;
    this.octets = NO_OCTETS;
  }

  // Outputs

  /** The next octets for the socket, or undefined; ours again when `flushed` has covered them. */
  pollTransmit(): Uint8Array | undefined {
    for (const chunk of this.#chunks) {
      if (chunk.polled === chunk.committed) continue;
      const start = chunk.polled;
      chunk.polled = this.#aligned ? this.#segmentEnd(chunk) : chunk.committed;
      return chunk.octets.subarray(start, chunk.polled);
    }
    return undefined;
  }

  // Getters

  // MPA-4.5-05, MPA-4.5-07: lowered for FPDUs that are packed already, never to a little.
  /**
   * The longest ULPDU worth posting now, at most `mulpduBytes`: less where it would not fit the
   * segment being built but a good part of it does. A message of 64 KiB, a little longer than the
   * largest FPDU, so leaves in one segment after the other instead of in a full and a tiny one.
   */
  ulpduRoomBytes(mulpduBytes: number): number {
    const tail = this.#chunks[this.#chunks.length - 1];
    if (tail === undefined || tail.polled === tail.committed) return mulpduBytes;
    if (!this.#aligned || this.#markers) return mulpduBytes;
    const segmentBytes = this.#segmentBytes - this.#segmentUsedBytes;
    const roomBytes = Math.min(segmentBytes, tail.octets.length - tail.committed);
    if (roomBytes < FILLING_MIN_BYTES) return mulpduBytes;
    // Whole words, so that the FPDU needs no PAD.
    const ulpduBytes = (roomBytes & ~3) - ULPDU_LENGTH_BYTES - FPDU_CRC_BYTES;
    return Math.min(mulpduBytes, ulpduBytes);
  }

  /** Octets committed and not yet flushed. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** An FPDU has been committed. */
  get hasSpoken(): boolean {
    return this.#hasSpoken;
  }

  /** True when every committed octet has been polled. */
  get drained(): boolean {
    const tail = this.#chunks[this.#chunks.length - 1];
    return tail === undefined || tail.polled === tail.committed;
  }

  /** Only a checked CRC makes a cut matter; a startup frame leaves by itself all the same. */
  get #aligned(): boolean {
    return this.#alignSegments && (this.#crcEnabled || this.#startupBytesToPoll > 0);
  }

  /**
   * End of what may leave in one write from `chunk.polled` on: the startup frame, or FPDUs of which
   * none lies across a segment boundary (MPA-5.1-04). One longer than a segment goes alone.
   */
  #segmentEnd(chunk: OutputChunk): number {
    const start = chunk.polled;
    if (this.#startupBytesToPoll > 0) {
      const end = start + this.#startupBytesToPoll;
      this.#startupBytesToPoll = 0;
      return end;
    }
    let end = start;
    while (end < chunk.committed) {
      const span = this.#spanAt(chunk.octets, end);
      if (end > start && !this.#fitsSegment(end - start, span)) break;
      end += span;
      this.#polledPhase = markerPhase(this.#polledPhase + span);
    }
    return end;
  }

  /** True when `span` octets behind `sentBytes` of the same write stay within one segment. */
  #fitsSegment(sentBytes: number, span: number): boolean {
    const used = this.#segmentBytes === 0 ? 1 : sentBytes % this.#segmentBytes;
    return used + span <= this.#segmentBytes;
  }

  /** Octets of the FPDU at `at`, its markers included, when `#polledPhase` is its phase. */
  #spanAt(octets: Uint8Array, at: number): number {
    if (!this.#markers) return fpduSizeBytes(readUint16(octets, at));
    const header = at + leadingMarkerBytes(this.#polledPhase);
    return markedSizeBytes(this.#polledPhase, fpduSizeBytes(readUint16(octets, header)));
  }

  /** The chunk being filled if `bytes` more fit, else a fresh one. */
  #chunkWithRoom(bytes: number): OutputChunk {
    const tail = this.#chunks[this.#chunks.length - 1];
    if (tail !== undefined) {
      // A dropped reservation can leave a tail without output behind; it is as good as a fresh one.
      if (tail.flushed === tail.committed) {
        tail.committed = 0;
        tail.polled = 0;
        tail.flushed = 0;
      }
      if (tail.committed + bytes <= tail.octets.length) return tail;
    }
    const chunk = { octets: this.#pool.acquire(), committed: 0, polled: 0, flushed: 0 };
    this.#chunks.push(chunk);
    return chunk;
  }
}
