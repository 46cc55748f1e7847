/**
 * The inbound half of a stream in Full Operation: octets in, verified ULPDUs out.
 *
 * Boundaries come from ULPDU_Length alone (MPA-6-02), so any split of the stream is the same to it
 * (MPA-5.1-05). An FPDU that lies whole in what was pushed is verified and delivered where it is.
 * One that came in part is kept in a chunk of the pool, and completed by copying its rest only.
 *
 * Read before changing: RFC 5044 §4, §6, §8.
 */
import { assert } from '../wire/assert.ts';
import { type Crc32c, rangeCrc32c } from '../wire/crc32c.ts';
import { FPDU_CRC_BYTES, fpduSizeBytes, ULPDU_LENGTH_BYTES } from '../wire/fpdu.ts';
import {
  leadingMarkerBytes,
  markedSizeBytes,
  markerPhase,
  markersAgree,
  stripMarkers,
} from '../wire/marker.ts';
import { MPA_ERRORS } from '../wire/mpa-error.ts';
import { copyOctets, readUint16, readUint32LE } from '../wire/octets.ts';
import type { ProtocolError } from '../wire/protocol-error.ts';
import type { ChunkPool } from './chunk-pool.ts';

/** Takes the ULPDUs of one stream, in order. */
export interface UlpduSink {
  /**
   * One verified ULPDU: `octets[start, start + length)`, borrowed for the call. `length` is 0 to
   * 65535, whatever the peer sent. An error ends the stream's input (MPA-8-07).
   */
  handleUlpdu(octets: Uint8Array, start: number, length: number): ProtocolError | undefined;
  /** The octets of the ULPDUs handed over since the last call are about to change. */
  handleInputEnd?(): void;
}

/** What a receiver is made with. */
export interface FpduReceiverOptions {
  readonly pool: ChunkPool;
  /** Computes the CRC of FPDUs too large for the table. */
  readonly crc32c: Crc32c;
  /** False: the CRC field is not looked at. */
  readonly crcEnabled: boolean;
  /** True: the stream carries markers, as we asked for. */
  readonly markers: boolean;
  /** Compare each marker with the chain of lengths (optional: MPA-5.2-01). Default true. */
  readonly markersChecked?: boolean;
}

const NO_OCTETS = new Uint8Array(0);

/** Finds, verifies and delivers FPDUs. */
export class FpduReceiver {
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;
  readonly #crcEnabled: boolean;
  readonly #markers: boolean;
  readonly #markersChecked: boolean;
  /** Holds the first `#heldBytes` octets of an FPDU; empty when there are none. */
  #staging: Uint8Array = NO_OCTETS;
  #heldBytes = 0;
  /** Stream position modulo 512 of the FPDU under way. Stays 0 without markers. */
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
   * Takes the next octets of the stream, `octets[start, end)`, borrowed for the call. Returns the
   * first error, the sink's or ours, now and on every later call; nothing is delivered after it.
   * Whether the connection is closed for it is the caller's to decide (MPA-8-08).
   */
  push(octets: Uint8Array, start: number, end: number, sink: UlpduSink): ProtocolError | undefined {
    assert(start >= 0 && start <= end && end <= octets.length, 'a range lies within its buffer');
    // MPA-8-07
    if (this.#error !== undefined) return this.#error;
    let at = start;
    if (this.#heldBytes > 0) at = this.#completeHeld(octets, at, end, sink);
    if (this.#error === undefined) {
      at = this.#markers
        ? this.#walkMarked(octets, at, end, sink)
        : this.#walkPlain(octets, at, end, sink);
    }
    sink.handleInputEnd?.();
    if (at < end && this.#error === undefined) this.#hold(octets, at, end);
    return this.#error;
  }

  /** Gives back what is held. Nothing may be pushed afterwards. */
  release(): void {
    this.#releaseStaging();
    this.#heldBytes = 0;
  }

  // Getters

  /** True when octets of an incomplete FPDU are held: a FIN now would cut it (MPA-8-02). */
  get midFpdu(): boolean {
    return this.#heldBytes > 0;
  }

  /** The octets of an FPDU that has come in part; borrowed until the next input. */
  get held(): Uint8Array {
    return this.#staging.subarray(0, this.#heldBytes);
  }

  /** FPDUs found valid so far; the first one lifts a responder's fence (MPA-7.1.2-12). */
  get validatedCount(): number {
    return this.#validatedCount;
  }

  /** The error that ended the input, if one did. */
  get error(): ProtocolError | undefined {
    return this.#error;
  }

  /** Delivers the whole FPDUs of a stream without markers; returns where the first partial one is. */
  #walkPlain(octets: Uint8Array, start: number, end: number, sink: UlpduSink): number {
    let at = start;
    while (end - at >= ULPDU_LENGTH_BYTES) {
      const ulpduLength = readUint16(octets, at);
      const next = at + fpduSizeBytes(ulpduLength);
      // MPA-6-03: nothing is forwarded before the last CRC octet is here.
      if (next > end) break;
      // MPA-4.4-16, MPA-6-01; MPA-4.1-06: with CRCs off the field is stepped over unread.
      if (this.#crcEnabled && !this.#crcMatches(octets, at, next)) {
        this.#error = MPA_ERRORS.crc;
        return at;
      }
      this.#validatedCount++;
      // MPA-3-09
      const error = sink.handleUlpdu(octets, at + ULPDU_LENGTH_BYTES, ulpduLength);
      at = next;
      if (error !== undefined) {
        this.#error = error;
        return at;
      }
    }
    return at;
  }

  /** The same for a stream with markers. */
  #walkMarked(octets: Uint8Array, start: number, end: number, sink: UlpduSink): number {
    let at = start;
    while (end - at >= this.#headerBytes()) {
      const span = this.#spanBytes(octets, at);
      if (span > end - at) break;
      this.#deliverMarked(octets, at, span, sink);
      at += span;
      if (this.#error !== undefined) return at;
    }
    return at;
  }

  /** Octets from the start of an FPDU that tell its length. */
  #headerBytes(): number {
    if (!this.#markers) return ULPDU_LENGTH_BYTES;
    return leadingMarkerBytes(this.#phase) + ULPDU_LENGTH_BYTES;
  }

  /** Octets of the stream that the FPDU at `at` spans; its header must be there. */
  #spanBytes(octets: Uint8Array, at: number): number {
    if (!this.#markers) return fpduSizeBytes(readUint16(octets, at));
    const ulpduLength = readUint16(octets, at + leadingMarkerBytes(this.#phase));
    return markedSizeBytes(this.#phase, fpduSizeBytes(ulpduLength));
  }

  // MPA-4.4-01, MPA-4.1-04: PAD counts as it came, and is not looked at otherwise.
  #crcMatches(octets: Uint8Array, start: number, end: number): boolean {
    const crcAt = end - FPDU_CRC_BYTES;
    return readUint32LE(octets, crcAt) === rangeCrc32c(this.#crc32c, octets, start, crcAt);
  }

  /** Verifies one whole FPDU with its markers, strips them, and delivers. */
  #deliverMarked(octets: Uint8Array, start: number, span: number, sink: UlpduSink): void {
    const phase = this.#phase;
    const lead = leadingMarkerBytes(phase);
    const ulpduLength = readUint16(octets, start + lead);
    const fpduBytes = fpduSizeBytes(ulpduLength);
    // MPA-4.2-03: markers count in the CRC as they came.
    if (this.#crcEnabled && !this.#crcMatches(octets, start, start + span)) {
      this.#error = MPA_ERRORS.crc;
      return;
    }
    // MPA-8-04, MPA-8-05: looked at once the CRC vouches for them.
    if (this.#markersChecked && !markersAgree(octets, start, fpduBytes, phase)) {
      this.#error = MPA_ERRORS.markerMismatch;
      return;
    }
    this.#phase = markerPhase(phase + span);
    this.#validatedCount++;
    if (span === lead + fpduBytes) {
      this.#error = sink.handleUlpdu(octets, start + lead + ULPDU_LENGTH_BYTES, ulpduLength);
      return;
    }
    // MPA-4.3-13. What was pushed is only borrowed and not ours to change.
    if (octets !== this.#staging) this.#staging = this.#pool.acquire();
    stripMarkers(octets, start, fpduBytes, phase, this.#staging, 0);
    this.#error = sink.handleUlpdu(this.#staging, ULPDU_LENGTH_BYTES, ulpduLength);
    sink.handleInputEnd?.();
    this.#releaseStaging();
  }

  #hold(octets: Uint8Array, start: number, end: number): void {
    this.#staging = this.#pool.acquire();
    copyOctets(octets, start, end, this.#staging, 0);
    this.#heldBytes = end - start;
  }

  /** Adds to the FPDU held what it lacks, and delivers it when whole; returns where that ended. */
  #completeHeld(octets: Uint8Array, start: number, end: number, sink: UlpduSink): number {
    let at = this.#takeUpTo(this.#headerBytes(), octets, start, end);
    if (this.#heldBytes < this.#headerBytes()) return at;
    const span = this.#spanBytes(this.#staging, 0);
    at = this.#takeUpTo(span, octets, at, end);
    if (this.#heldBytes < span) return at;
    this.#heldBytes = 0;
    if (this.#markers) {
      this.#deliverMarked(this.#staging, 0, span, sink);
      // The next FPDU is stripped into the same chunk.
      sink.handleInputEnd?.();
    } else this.#walkPlain(this.#staging, 0, span, sink);
    this.#releaseStaging();
    return at;
  }

  /** Copies until `bytes` are held or the input is used up; returns where it stopped. */
  #takeUpTo(bytes: number, octets: Uint8Array, start: number, end: number): number {
    const taken = Math.min(bytes - this.#heldBytes, end - start);
    if (taken <= 0) return start;
    copyOctets(octets, start, start + taken, this.#staging, this.#heldBytes);
    this.#heldBytes += taken;
    return start + taken;
  }

  #releaseStaging(): void {
    if (this.#staging === NO_OCTETS) return;
    this.#pool.release(this.#staging);
    this.#staging = NO_OCTETS;
  }
}
