/**
 * The inbound half of a stream in Full Operation: bytes in, verified ULPDUs out.
 *
 * ULPDU_Length alone gives the boundaries (MPA-6-02), so it does not matter how TCP splits the
 * stream (MPA-5.1-05). An FPDU that lies whole in the input is verified and delivered there,
 * without a copy. A partial one is held: a small part in a buffer of the stream, a larger one in a
 * chunk of the pool. Only the missing rest is copied to complete it.
 *
 * Read before changing: RFC 5044 §4, §6, §8.
 */
import { assert } from '#base/assert';
import { copyBytes, readUint16, readUint32LE } from '#base/checked-bytes';
import { type Crc32c, rangeCrc32c } from '../wire/crc32c.ts';
import { FPDU_CRC_BYTES, fpduSizeBytes, ULPDU_LENGTH_BYTES } from '../wire/fpdu.ts';
import {
  leadingMarkerBytes,
  markedSizeBytes,
  markerPhase,
  markersAgree,
  stripMarkers,
} from '../wire/marker.ts';
import { MPA_ERRORS, type ProtocolError } from '../wire/protocol-error.ts';
import type { ChunkPool } from './chunk-pool.ts';
import type { UlpduSink } from './lower-layer.ts';

export interface FpduReceiverOptions {
  readonly pool: ChunkPool;
  /** Computes the CRC of FPDUs too large for the table. */
  readonly crc32c: Crc32c;
  /** False: the CRC field is ignored. */
  readonly crcEnabled: boolean;
  /** True: the stream carries markers because we asked for them. */
  readonly markers: boolean;
  /** Compare each marker with the chain of lengths (optional: MPA-5.2-01). Default true. */
  readonly markersChecked?: boolean;
}

const NO_BYTES = new Uint8Array(0);

/**
 * Partial FPDUs up to this size are held outside the pool: a peer that sends one byte and falls
 * silent must not pin a chunk. Above this size a peer pins at most 16 times the bytes it has sent.
 */
const SMALL_HOLD_MAX_BYTES = 16_384;
/**
 * Initial size of the small buffer. It doubles as needed, so most streams never have a large one.
 */
const SMALL_HOLD_MIN_BYTES = 512;

export class FpduReceiver {
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;
  readonly #crcEnabled: boolean;
  readonly #markers: boolean;
  readonly #markersChecked: boolean;
  /** Holds the first `#heldBytes` bytes of an FPDU; empty when there are none. */
  #staging: Uint8Array = NO_BYTES;
  /** The value of `#staging` while few bytes are held. */
  #small: Uint8Array = NO_BYTES;
  #heldBytes = 0;
  /** Stream position modulo 512 of the current FPDU. Stays 0 without markers. */
  #phase = 0;
  #validatedCount = 0;
  #error: ProtocolError | undefined = undefined;

  constructor(options: FpduReceiverOptions) {
    this.#pool = options.pool;
    this.#crc32c = options.crc32c;
    this.#crcEnabled = options.crcEnabled;
    this.#markers = options.markers;
    this.#markersChecked = options.markersChecked ?? true;
  }

  // Inputs

  /**
   * Takes the next bytes of the stream, `bytes[start, end)`, borrowed for the call. Returns the
   * first error, the sink's or ours, now and on every later call, and delivers nothing after it.
   * The caller decides whether to close the connection (MPA-8-08). CRCs of FPDUs that lie whole in
   * `unsealed` bytes are not checked: memory has not damaged them.
   */
  push(
    bytes: Uint8Array,
    start: number,
    end: number,
    sink: UlpduSink,
    unsealed = false,
  ): ProtocolError | undefined {
    assert(start >= 0 && start <= end && end <= bytes.length, 'range extends past its buffer');
    // MPA-8-07
    if (this.#error !== undefined) return this.#error;
    let at = start;
    if (this.#heldBytes > 0) at = this.#completeHeld(bytes, at, end, sink);
    if (this.#error === undefined) {
      at = this.#markers
        ? this.#walkMarked(bytes, at, end, sink)
        : this.#walkPlain(bytes, at, end, sink, this.#crcEnabled && !unsealed);
    }
    sink.handleInputEnd?.();
    // Not earlier: the sink may keep views of a delivered FPDU until its input ends.
    if (this.#heldBytes === 0) this.#releaseStaging();
    if (at < end && this.#error === undefined) this.#hold(bytes, at, end);
    return this.#error;
  }

  /** Releases the held bytes. The caller must push nothing afterwards. */
  release(): void {
    this.#releaseStaging();
    this.#heldBytes = 0;
  }

  // Getters

  /** True when part of an FPDU is held: a FIN now would cut it (MPA-8-02). */
  get midFpdu(): boolean {
    return this.#heldBytes > 0;
  }

  /** The bytes of a partial FPDU; borrowed until the next input. */
  get held(): Uint8Array {
    return this.#staging.subarray(0, this.#heldBytes);
  }

  /** FPDUs found valid so far. After the first one a responder may send (MPA-7.1.2-12). */
  get validatedCount(): number {
    return this.#validatedCount;
  }

  /** The error that ended the input, if any. */
  get error(): ProtocolError | undefined {
    return this.#error;
  }

  /**
   * Delivers the whole FPDUs of a stream without markers. Returns the position of the first partial
   * one.
   */
  #walkPlain(
    bytes: Uint8Array,
    start: number,
    end: number,
    sink: UlpduSink,
    checked: boolean,
  ): number {
    let at = start;
    while (end - at >= ULPDU_LENGTH_BYTES) {
      const ulpduLength = readUint16(bytes, at);
      const next = at + fpduSizeBytes(ulpduLength);
      // MPA-6-03: nothing is delivered before the last CRC byte is here.
      if (next > end) break;
      // MPA-4.4-16, MPA-6-01; MPA-4.1-06: with CRCs off the field is skipped unread.
      if (checked && !this.#crcMatches(bytes, at, next)) {
        this.#error = MPA_ERRORS.crc;
        return at;
      }
      this.#validatedCount++;
      // MPA-3-09
      const error = sink.handleUlpdu(bytes, at + ULPDU_LENGTH_BYTES, ulpduLength);
      at = next;
      if (error !== undefined) {
        this.#error = error;
        return at;
      }
    }
    return at;
  }

  /** The same for a stream with markers. */
  #walkMarked(bytes: Uint8Array, start: number, end: number, sink: UlpduSink): number {
    let at = start;
    while (end - at >= this.#headerBytes()) {
      const span = this.#spanBytes(bytes, at);
      if (span > end - at) break;
      this.#deliverMarked(bytes, at, span, sink);
      at += span;
      if (this.#error !== undefined) return at;
    }
    return at;
  }

  /** Bytes of an FPDU needed to know its length. */
  #headerBytes(): number {
    if (!this.#markers) return ULPDU_LENGTH_BYTES;
    return leadingMarkerBytes(this.#phase) + ULPDU_LENGTH_BYTES;
  }

  /** Bytes of the stream that the FPDU at `at` spans. Its header must have arrived. */
  #spanBytes(bytes: Uint8Array, at: number): number {
    if (!this.#markers) return fpduSizeBytes(readUint16(bytes, at));
    const ulpduLength = readUint16(bytes, at + leadingMarkerBytes(this.#phase));
    return markedSizeBytes(this.#phase, fpduSizeBytes(ulpduLength));
  }

  // MPA-4.4-01, MPA-4.1-04: the CRC covers PAD as received; its value is not checked otherwise.
  #crcMatches(bytes: Uint8Array, start: number, end: number): boolean {
    const crcAt = end - FPDU_CRC_BYTES;
    return readUint32LE(bytes, crcAt) === rangeCrc32c(this.#crc32c, bytes, start, crcAt);
  }

  /** Verifies one whole FPDU with its markers, strips them, and delivers. */
  #deliverMarked(bytes: Uint8Array, start: number, span: number, sink: UlpduSink): void {
    const phase = this.#phase;
    const lead = leadingMarkerBytes(phase);
    const ulpduLength = readUint16(bytes, start + lead);
    const fpduBytes = fpduSizeBytes(ulpduLength);
    // MPA-4.2-03: the CRC covers markers as received.
    if (this.#crcEnabled && !this.#crcMatches(bytes, start, start + span)) {
      this.#error = MPA_ERRORS.crc;
      return;
    }
    // MPA-8-04, MPA-8-05: checked only after the CRC has proved them intact.
    if (this.#markersChecked && !markersAgree(bytes, start, fpduBytes, phase)) {
      this.#error = MPA_ERRORS.markerMismatch;
      return;
    }
    this.#phase = markerPhase(phase + span);
    this.#validatedCount++;
    if (span === lead + fpduBytes) {
      this.#error = sink.handleUlpdu(bytes, start + lead + ULPDU_LENGTH_BYTES, ulpduLength);
      return;
    }
    // MPA-4.3-13. The input is only borrowed, so it must not be changed.
    if (bytes !== this.#staging) this.#staging = this.#pool.acquire();
    stripMarkers(bytes, start, fpduBytes, phase, this.#staging, 0);
    this.#error = sink.handleUlpdu(this.#staging, ULPDU_LENGTH_BYTES, ulpduLength);
    sink.handleInputEnd?.();
    this.#releaseStaging();
  }

  #hold(bytes: Uint8Array, start: number, end: number): void {
    this.#makeRoom(end - start);
    copyBytes(bytes, start, end, this.#staging, 0);
    this.#heldBytes = end - start;
  }

  /** Ensures that `bytes` bytes can be held; moves the held ones. */
  #makeRoom(bytes: number): void {
    if (bytes <= this.#staging.length) return;
    const held = this.#staging;
    if (bytes > SMALL_HOLD_MAX_BYTES) this.#staging = this.#pool.acquire();
    else {
      if (bytes > this.#small.length) this.#small = new Uint8Array(smallHoldBytes(bytes));
      this.#staging = this.#small;
    }
    copyBytes(held, 0, this.#heldBytes, this.#staging, 0);
  }

  /**
   * Completes the held FPDU from the input and delivers it. Returns where it ended in the input.
   */
  #completeHeld(bytes: Uint8Array, start: number, end: number, sink: UlpduSink): number {
    let at = this.#takeUpTo(this.#headerBytes(), bytes, start, end);
    if (this.#heldBytes < this.#headerBytes()) return at;
    const span = this.#spanBytes(this.#staging, 0);
    at = this.#takeUpTo(span, bytes, at, end);
    if (this.#heldBytes < span) return at;
    this.#heldBytes = 0;
    if (this.#markers) {
      this.#deliverMarked(this.#staging, 0, span, sink);
      // The next FPDU is stripped into the same chunk.
      sink.handleInputEnd?.();
      this.#releaseStaging();
    } else this.#walkPlain(this.#staging, 0, span, sink, this.#crcEnabled);
    return at;
  }

  /** Copies until `wantedBytes` are held or the input is used up. Returns where it stopped. */
  #takeUpTo(wantedBytes: number, bytes: Uint8Array, start: number, end: number): number {
    const taken = Math.min(wantedBytes - this.#heldBytes, end - start);
    if (taken <= 0) return start;
    this.#makeRoom(this.#heldBytes + taken);
    copyBytes(bytes, start, start + taken, this.#staging, this.#heldBytes);
    this.#heldBytes += taken;
    return start + taken;
  }

  #releaseStaging(): void {
    if (this.#staging === NO_BYTES) return;
    if (this.#staging !== this.#small) this.#pool.release(this.#staging);
    this.#staging = NO_BYTES;
  }
}

/** Size of a small buffer that holds `bytes`. */
function smallHoldBytes(bytes: number): number {
  let size = SMALL_HOLD_MIN_BYTES;
  while (size < bytes) size *= 2;
  return size;
}
