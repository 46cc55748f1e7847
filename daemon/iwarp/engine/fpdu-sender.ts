/**
 * The outbound half of a stream: startup frames and FPDUs, built in place in chunks of a pool.
 *
 * The hot path is `begin`, write the ULPDU into `bytes` at `ulpduStart`, `commit`. Header and
 * payload are written once, into the memory that the socket reads; `commit` sets length, PAD and
 * CRC around them. Several FPDUs share a chunk (MPA-5.1-04). `pollTransmit` returns all bytes of
 * one chunk that are ready.
 *
 * Read before changing: RFC 5044 §4, §5.1 and Appendix A.4.
 */
import { assert } from '#base/assert';
import { readUint16, writeUint16, writeUint32, writeUint32LE } from '#base/checked-bytes';
import { type Transmit, transmitOf } from '#base/transmit';
import type { Loans } from '#daemon/rnic/wire-port';
import { type Crc32c, rangeCrc32c } from '../wire/crc32c.ts';
import {
  FPDU_CRC_BYTES,
  fpduSizeBytes,
  ULPDU_LENGTH_BYTES,
  ULPDU_SEND_MAX_BYTES,
} from '../wire/fpdu.ts';
import { insertMarkers, leadingMarkerBytes, markedSizeBytes, markerPhase } from '../wire/marker.ts';
import type { ChunkPool } from './chunk-pool.ts';
import type { UlpduWriter } from './lower-layer.ts';
import { OutputChunk } from './output-chunk.ts';

export interface FpduSenderOptions {
  readonly pool: ChunkPool;
  /** Computes the CRC of FPDUs too large for the table. */
  readonly crc32c: Crc32c;
  /** `begin` returns false once this many bytes wait for the socket. Default 524,288. */
  readonly highWaterBytes?: number;
  /**
   * MPA-5.1-03: with CRCs on, `pollTransmit` returns bytes that TCP can segment without cutting an
   * FPDU, provided that each write starts a segment. The kernel's siw rejects a good CRC when a
   * segment boundary cuts the trailer. Default false.
   */
  readonly alignSegments?: boolean;
  /** Segment size (EMSS). Default 0: when aligned, one FPDU per `pollTransmit`. */
  readonly segmentBytes?: number;
}

const NO_BYTES = new Uint8Array(0);

/**
 * When the current segment has at least this much room, the next ULPDU is cut to fill it. One more FPDU
 * costs about a microsecond, one more segment on loopback about five; filling less room would not pay.
 */
const FILLING_MIN_BYTES = 16_384;

/** Scratch for every sender: a record of its own would cost each idle queue pair 64 bytes. */
const TRANSMIT = transmitOf();

/** Builds FPDUs and holds them until the socket has taken them. */
export class FpduSender implements UlpduWriter {
  bytes: Uint8Array = NO_BYTES;
  ulpduStart = 0;
  /** See `StreamPort.lend`. */
  loans: Loans | undefined = undefined;
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;
  #highWaterBytes: number;
  /** `highWaterBytes` in Full Operation, 0 before: one comparison checks both. */
  #roomBytes = 0;
  readonly #alignSegments: boolean;
  #segmentBytes: number;
  /** In stream order, linked; only the last one is being filled. */
  #first: OutputChunk | undefined = undefined;
  #last: OutputChunk | undefined = undefined;
  #queuedBytes = 0;
  #ulpduLength = 0;
  #fullOperation = false;
  #hasSpoken = false;
  #crcEnabled = true;
  /** CRCs are left to `seal`. */
  #leavesUnsealed = false;
  #markers = false;
  /** Stream position modulo 512 of the next FPDU to commit, and of the next one to poll. */
  #phase = 0;
  #polledPhase = 0;
  #startupBytesToPoll = 0;
  /** Bytes committed to the segment that the next FPDU may join. */
  #segmentUsedBytes = 0;

  constructor(options: FpduSenderOptions) {
    this.#pool = options.pool;
    this.#crc32c = options.crc32c;
    this.#highWaterBytes = options.highWaterBytes ?? 524_288;
    this.#alignSegments = options.alignSegments ?? false;
    this.#segmentBytes = options.segmentBytes ?? 0;
  }

  // Commands

  /** Queues a copy of our startup frame: plain bytes without CRC or markers (MPA-7.1-03). */
  sendStartupFrame(frame: Uint8Array): void {
    assert(!this.#fullOperation, 'startup frame after Full Operation began');
    const tail = this.#chunkWithRoom(frame.length);
    tail.bytes.set(frame, tail.committed);
    tail.committed += frame.length;
    this.#queuedBytes += frame.length;
    this.#startupBytesToPoll += frame.length;
  }

  // MPA-4.3-01: `markers` is the peer's request, which every sender here can meet.
  /** Starts FPDUs. The marker count starts here, after our startup frame (MPA-4.3-09). */
  enterFullOperation(crcEnabled: boolean, markers: boolean): void {
    assert(!this.#fullOperation, 'Full Operation entered twice');
    this.#fullOperation = true;
    this.#roomBytes = this.#highWaterBytes;
    this.#crcEnabled = crcEnabled;
    this.#markers = markers;
  }

  /** CRCs are left to `seal`, except those of FPDUs with markers. */
  leaveUnsealed(): void {
    this.#leavesUnsealed = true;
  }

  /** Computes the CRCs in `bytes`: whole FPDUs, as polled. */
  seal(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length) {
      const end = at + fpduSizeBytes(readUint16(bytes, at));
      this.#seal(bytes, at, end - FPDU_CRC_BYTES);
      at = end;
    }
  }

  /**
   * Reserves room for an FPDU around a ULPDU of `ulpduLength` bytes (1..64768), which the caller
   * writes at `bytes[ulpduStart]`. Returns false when the output is full; `flushed` makes room. A
   * second `begin` without `commit` drops the reservation. Throws `RangeError` for a length that
   * must not be sent.
   */
  begin(ulpduLength: number): boolean {
    // MPA-3-05, MPA-3-07: fails before anything is written.
    if (ulpduLength < 1 || ulpduLength > ULPDU_SEND_MAX_BYTES) {
      throw new RangeError(`a ULPDU has 1 to ${ULPDU_SEND_MAX_BYTES} bytes, not ${ulpduLength}`);
    }
    this.#ulpduLength = 0;
    if (this.#queuedBytes >= this.#roomBytes) {
      assert(this.#fullOperation, 'FPDU before Full Operation');
      return false;
    }
    const fpduBytes = fpduSizeBytes(ulpduLength);
    const lead = this.#markers ? leadingMarkerBytes(this.#phase) : 0;
    const span = this.#markers ? markedSizeBytes(this.#phase, fpduBytes) : fpduBytes;
    const tail = this.#chunkWithRoom(span);
    this.bytes = tail.bytes;
    this.ulpduStart = tail.committed + lead + ULPDU_LENGTH_BYTES;
    this.#ulpduLength = ulpduLength;
    return true;
  }

  // MPA-3-01, MPA-4.1-01: one reservation, one ULPDU, one FPDU.
  /** Completes the current FPDU: length, PAD, markers and CRC. It can then be polled. */
  commit(): void {
    const ulpduLength = this.#ulpduLength;
    const tail = this.#last;
    assert(ulpduLength > 0 && tail !== undefined, 'commit without begin');
    this.#ulpduLength = 0;
    const bytes = tail.bytes;
    const start = tail.committed;
    const fpduBytes = fpduSizeBytes(ulpduLength);
    const header = this.ulpduStart - ULPDU_LENGTH_BYTES;
    writeUint16(bytes, header, ulpduLength);
    // MPA-4.1-03: a chunk has stale content, so PAD is zeroed each time.
    const padEnd = header + fpduBytes - FPDU_CRC_BYTES;
    for (let at = this.ulpduStart + ulpduLength; at < padEnd; at++) bytes[at] = 0;
    let span = fpduBytes;
    if (this.#markers) {
      span = markedSizeBytes(this.#phase, fpduBytes);
      insertMarkers(bytes, start, fpduBytes, this.#phase);
      this.#phase = markerPhase(this.#phase + span);
    }
    // MPA-4.4-11, MPA-4.4-12, MPA-4.4-13: the CRC covers everything from the leading marker, if any, to the
    // last PAD byte or the marker after it. MPA-4.4-15: the CRC field is last and not covered.
    const end = start + span;
    const crcAt = end - FPDU_CRC_BYTES;
    if (this.#crcEnabled) {
      // A startup frame in the same bytes would be taken for an FPDU.
      if (this.#leavesUnsealed && !this.#markers && this.#startupBytesToPoll === 0) {
        writeUint32(bytes, crcAt, 0);
        tail.unsealed = true;
      } else this.#seal(bytes, start, crcAt);
    } else {
      // MPA-4.4-07, MPA-4.4-08: the field is present without CRCs, too; its value means nothing.
      writeUint32(bytes, crcAt, 0);
    }
    const joins = this.#segmentUsedBytes + span <= this.#segmentBytes && start > tail.polled;
    this.#segmentUsedBytes = joins ? this.#segmentUsedBytes + span : span;
    tail.committed = end;
    if (this.loans !== undefined && this.loans.lent > 0) tail.lent = true;
    this.#queuedBytes += span;
    this.#hasSpoken = true;
  }

  /** The socket's EMSS has changed; applies to bytes polled later. */
  setSegmentBytes(segmentBytes: number): void {
    this.#segmentBytes = segmentBytes;
  }

  /** Lifts the high-water mark: only little output remains to be framed. */
  liftHighWater(): void {
    this.#highWaterBytes = Number.POSITIVE_INFINITY;
    if (this.#fullOperation) this.#roomBytes = Number.POSITIVE_INFINITY;
  }

  // Inputs

  /** The socket has taken the oldest `bytes` polled bytes. Releases chunks without output. */
  flushed(bytes: number): void {
    let left = bytes;
    while (left > 0) {
      const head = this.#first;
      assert(head !== undefined, 'flushed more than was polled');
      const taken = Math.min(left, head.polled - head.flushed);
      assert(taken > 0, 'flushed more than was polled');
      head.flushed += taken;
      left -= taken;
      this.#queuedBytes -= taken;
      if (this.loans !== undefined && this.loans.lent > 0)
        this.loans.delivered(head.bytes, head.flushed);
      if (head.flushed < head.committed) continue;
      if (head === this.#last && this.#ulpduLength > 0) continue;
      this.#first = head.next;
      this.#pool.release(head.bytes);
      if (this.#first !== undefined) continue;
      this.#last = undefined;
      // Drop the references, so that the garbage collector can free a chunk that the pool does not keep.
      this.bytes = NO_BYTES;
      TRANSMIT.bytes = NO_BYTES;
      TRANSMIT.lent = undefined;
    }
  }

  /**
   * Releases all chunks. The socket must be gone: it may hold views, whose bytes would be reused.
   */
  release(): void {
    this.loans?.drop();
    for (let chunk = this.#first; chunk !== undefined; chunk = chunk.next) {
      this.#pool.release(chunk.bytes);
    }
    this.#first = undefined;
    this.#last = undefined;
    this.#queuedBytes = 0;
    this.#ulpduLength = 0;
    this.bytes = NO_BYTES;
    TRANSMIT.bytes = NO_BYTES;
    TRANSMIT.lent = undefined;
  }

  // Outputs

  /**
   * The next bytes for the socket, or undefined. The sender reuses them after `flushed`. `unsegmented`: a
   * chunk's FPDUs need not be aligned to segments (MPA-5.1-03).
   */
  pollTransmit(unsegmented = false): Transmit | undefined {
    for (let chunk = this.#first; chunk !== undefined; chunk = chunk.next) {
      if (chunk.polled === chunk.committed) continue;
      const start = chunk.polled;
      TRANSMIT.unsealed = chunk.unsealed;
      TRANSMIT.lent = chunk.lent ? this.loans : undefined;
      const whole = unsegmented && this.#startupBytesToPoll === 0;
      if (this.#aligned() && !whole) chunk.polled = this.#segmentEnd(chunk);
      else {
        chunk.polled = chunk.committed;
        this.#startupBytesToPoll = 0;
        this.#polledPhase = markerPhase(this.#polledPhase + chunk.polled - start);
      }
      if (chunk.polled === chunk.committed) {
        chunk.unsealed = false;
        chunk.lent = false;
      }
      TRANSMIT.bytes = chunk.bytes.subarray(start, chunk.polled);
      return TRANSMIT;
    }
    return undefined;
  }

  // Getters

  // MPA-4.5-05, MPA-4.5-07: lowered for FPDUs that are packed already, never to a tiny one.
  /**
   * The longest ULPDU worth posting now, at most `mulpduBytes`. It is less when that would not fit
   * the current segment but a large part of it does. So messages of 64 KiB, a little longer than the
   * largest FPDU, fill one segment after the other instead of alternating full and tiny ones.
   */
  ulpduRoomBytes(mulpduBytes: number): number {
    const tail = this.#last;
    if (tail === undefined || tail.polled === tail.committed) return mulpduBytes;
    if (!this.#aligned() || this.#markers) return mulpduBytes;
    const segmentBytes = this.#segmentBytes - this.#segmentUsedBytes;
    const roomBytes = Math.min(segmentBytes, tail.bytes.length - tail.committed);
    if (roomBytes < FILLING_MIN_BYTES) return mulpduBytes;
    // Whole words, so the FPDU needs no PAD.
    const ulpduBytes = (roomBytes & ~3) - ULPDU_LENGTH_BYTES - FPDU_CRC_BYTES;
    return Math.min(mulpduBytes, ulpduBytes);
  }

  // A CRC covers the payload, and markers divide it.
  get lends(): boolean {
    if (this.#markers || this.#startupBytesToPoll > 0) return false;
    return !this.#crcEnabled || this.#leavesUnsealed;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** True when an FPDU has been committed. */
  get hasSpoken(): boolean {
    return this.#hasSpoken;
  }

  /** True when every committed byte has been polled. */
  get drained(): boolean {
    const tail = this.#last;
    return tail === undefined || tail.polled === tail.committed;
  }

  /** Cuts only matter when the peer checks CRCs. A startup frame is always sent separately. */
  #aligned(): boolean {
    return this.#alignSegments && (this.#crcEnabled || this.#startupBytesToPoll > 0);
  }

  /**
   * End of the bytes that may leave in one write from `chunk.polled` on: the startup frame, or
   * FPDUs none of which crosses a segment boundary (MPA-5.1-04). An FPDU longer than a segment is
   * sent separately.
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
      const span = this.#spanAt(chunk.bytes, end);
      if (end > start && !this.#fitsSegment(end - start, span)) break;
      end += span;
      this.#polledPhase = markerPhase(this.#polledPhase + span);
    }
    return end;
  }

  /** True if `span` more bytes after `sentBytes` of the same write stay within one segment. */
  #fitsSegment(sentBytes: number, span: number): boolean {
    const used = this.#segmentBytes === 0 ? 1 : sentBytes % this.#segmentBytes;
    return used + span <= this.#segmentBytes;
  }

  /** Bytes of the FPDU at `at`, markers included; `#polledPhase` is its phase. */
  #spanAt(bytes: Uint8Array, at: number): number {
    if (!this.#markers) return fpduSizeBytes(readUint16(bytes, at));
    const header = at + leadingMarkerBytes(this.#polledPhase);
    return markedSizeBytes(this.#polledPhase, fpduSizeBytes(readUint16(bytes, header)));
  }

  // MPA-4.4-09
  #seal(bytes: Uint8Array, start: number, crcAt: number): void {
    writeUint32LE(bytes, crcAt, rangeCrc32c(this.#crc32c, bytes, start, crcAt));
  }

  /** The current chunk if `bytes` more fit, else a new one. */
  #chunkWithRoom(bytes: number): OutputChunk {
    const tail = this.#last;
    if (tail?.hasRoom(bytes)) return tail;
    const chunk = new OutputChunk(this.#pool.acquire());
    if (tail === undefined) this.#first = chunk;
    else tail.next = chunk;
    this.#last = chunk;
    return chunk;
  }
}
