/** MPA over TCP as the lower layer of a stream (RFC 5044): startup frames, then FPDUs. */
import { type Micros, NEVER } from '#base/time';
import type { Delivery, Transmit } from '#base/transmit';
import type { Loans } from '#daemon/rnic/wire-port';
import type { Crc32c } from '../wire/crc32c.ts';
import { MULPDU_MIN_BYTES, ULPDU_SEND_MAX_BYTES } from '../wire/fpdu.ts';
import { MARKER_BYTES, MARKER_INTERVAL_BYTES } from '../wire/marker.ts';
import type { ProtocolError } from '../wire/protocol-error.ts';
import type { ChunkPool } from './chunk-pool.ts';
import { FpduReceiver } from './fpdu-receiver.ts';
import { FpduSender } from './fpdu-sender.ts';
import type { LowerEffect, LowerLayer, UlpduSink } from './lower-layer.ts';
import { Startup } from './startup.ts';
import type { Agreement, FpduSizePolicy, StreamOptions } from './stream-api.ts';

export interface StreamEnvironment {
  /** Buffers, shared by the streams of a device. */
  readonly pool: ChunkPool;
  /** Computes the CRCs of large FPDUs. */
  readonly crc32c: Crc32c;
  /** Bytes that may wait for the socket before sending pauses; `FpduSender` has the default. */
  readonly highWaterBytes?: number;
  /** Let no FPDU cross a segment boundary while CRCs are on; see `FpduSender`. Default false. */
  readonly alignSegments?: boolean;
}

const NO_BYTES = new Uint8Array(0);

export class MpaLayer implements LowerLayer {
  readonly writer: FpduSender;
  /** Always false: `handleStartup` leaves the bytes to their reader. */
  readonly inputWaits = false;
  // DDP-6.2.1-05: wait for the peer's FIN, which the socket reports.
  readonly peerEnded = false;
  readonly peerMayStaySilent = false;
  readonly #options: StreamOptions;
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;
  /** Undefined once it has succeeded and FPDUs may go both ways. */
  #startup: Startup | undefined;
  #receiver: FpduReceiver | undefined = undefined;
  #emssBytes: number;
  #sendMarkers = false;

  constructor(options: StreamOptions, environment: StreamEnvironment) {
    this.#options = options;
    this.#emssBytes = options.emssBytes;
    this.#startup = new Startup(options);
    const { pool, crc32c, highWaterBytes, alignSegments } = environment;
    this.#pool = pool;
    this.#crc32c = crc32c;
    this.writer = new FpduSender({
      pool,
      crc32c,
      ...(highWaterBytes === undefined ? {} : { highWaterBytes }),
      ...(alignSegments === undefined ? {} : { alignSegments }),
      segmentBytes: options.emssBytes,
    });
  }

  // Commands

  connect(privateData: Uint8Array, now: Micros): void {
    this.#startup?.connect(privateData, now);
  }

  listen(now: Micros): void {
    this.#startup?.listen(now);
  }

  accept(
    privateData: Uint8Array,
    consumerDepths: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void {
    this.#startup?.accept(privateData, consumerDepths, now);
  }

  reject(privateData: Uint8Array): void {
    this.#startup?.reject(privateData);
  }

  // MPA has no separate message for a refusal.
  refuse(): void {
    this.#startup?.reject(NO_BYTES);
  }

  leaveUnsealed(): void {
    this.writer.leaveUnsealed();
  }

  lend(loans: Loans): void {
    this.writer.loans = loans;
  }

  seal(bytes: Uint8Array): void {
    this.writer.seal(bytes);
  }

  failLocally(text: string): void {
    this.#startup?.failLocally(text);
  }

  enterFullOperation(agreement: Agreement): void {
    const [pool, crc32c] = [this.#pool, this.#crc32c];
    const { crcEnabled, sendMarkers, receiveMarkers } = agreement;
    this.#sendMarkers = sendMarkers;
    this.writer.enterFullOperation(crcEnabled, sendMarkers);
    this.#receiver = new FpduReceiver({ pool, crc32c, crcEnabled, markers: receiveMarkers });
  }

  /** The socket's EMSS has changed: later segments follow it (MPA-4.5-05). */
  setPathBytes(emssBytes: number): void {
    this.#emssBytes = emssBytes;
    this.writer.setSegmentBytes(emssBytes);
  }

  finish(): void {
    // The FIN of the socket ends our half.
  }

  releaseInput(): void {
    this.#receiver?.release();
  }

  releaseOutput(): void {
    this.writer.release();
  }

  // Inputs

  handleStartup(bytes: Uint8Array): number {
    return this.#startup?.handleBytes(bytes, 0, bytes.length) ?? 0;
  }

  receive(
    bytes: Uint8Array,
    start: number,
    end: number,
    { unsealed }: Delivery,
    sink: UlpduSink,
  ): ProtocolError | undefined {
    const receiver = this.#receiver;
    if (receiver === undefined) return undefined;
    const error = receiver.push(bytes, start, end, sink, unsealed);
    // MPA-7.1.2-12
    if (receiver.validatedCount > 0) this.#startup?.handleFirstFpdu();
    return error;
  }

  drop(): void {
    // The socket reports the peer's FIN.
  }

  flushed(bytes: number): void {
    this.writer.flushed(bytes);
  }

  handleAcknowledged(): void {
    // Nothing waits for TCP's acknowledgements.
  }

  handlePeerClosed(): void {
    this.#startup?.handlePeerClosed();
  }

  handleDeadline(now: Micros): void {
    this.#startup?.handleDeadline(now);
  }

  // Outputs

  pollEffect(): LowerEffect | undefined {
    const startup = this.#startup;
    if (startup === undefined) return undefined;
    for (;;) {
      const effect = startup.pollEffect();
      if (effect === undefined && startup.sendable) this.#startup = undefined;
      if (effect?.type !== 'transmit') return effect;
      this.writer.sendStartupFrame(effect.frame);
    }
  }

  pollTransmit(unsegmented?: boolean): Transmit | undefined {
    return this.writer.pollTransmit(unsegmented);
  }

  nextDeadline(): Micros {
    return this.#startup?.nextDeadline() ?? NEVER;
  }

  // Getters

  get mulpduBytes(): number {
    return mulpduBytes(this.#options.fpduSize, this.#emssBytes, this.#sendMarkers);
  }

  get sendable(): boolean {
    return this.#startup?.sendable ?? true;
  }

  get peerHasSpoken(): boolean {
    return this.receivedCount > 0;
  }

  get hasSpoken(): boolean {
    return this.writer.hasSpoken;
  }

  get receivedCount(): number {
    return this.#receiver?.validatedCount ?? 0;
  }

  get midUlpdu(): boolean {
    return this.#receiver?.midFpdu === true;
  }

  get heldInput(): Uint8Array {
    return this.#receiver?.held ?? NO_BYTES;
  }

  get queuedBytes(): number {
    return this.writer.queuedBytes;
  }

  get finished(): boolean {
    return this.writer.queuedBytes === 0;
  }

  get lossQuirk(): string | undefined {
    return this.#startup?.lossQuirk;
  }
}

/** Length field and CRC. */
const FPDU_OVERHEAD_BYTES = 6;

// MPA-3-02: every value that can change is a parameter, so the caller calls it again after a
// change.
/**
 * MULPDU in bytes, 128..64768: the largest ULPDU that DDP should post (RFC 5044 §3, §4.5, §5.1), for
 * the next full segment; `FpduSender.ulpduRoomBytes` lowers it for FPDUs that are packed. `emssBytes` is TCP's current effective maximum segment size.
 * `markers` is true when we send them, which the peer decides (MPA-4.5-04).
 */
export function mulpduBytes(policy: FpduSizePolicy, emssBytes: number, markers: boolean): number {
  if (policy.kind === 'large') return ULPDU_SEND_MAX_BYTES;
  if (policy.kind === 'fixed') return clampMulpdu(policy.mulpduBytes);
  // MPA-4.5-01, MPA-4.5-02, MPA-5.1-01
  const markerBytes = markers ? MARKER_BYTES * Math.ceil(emssBytes / MARKER_INTERVAL_BYTES) : 0;
  return clampMulpdu(emssBytes - (FPDU_OVERHEAD_BYTES + markerBytes + (emssBytes % 4)));
}

// MPA-3-03, MPA-4.5-03, MPA-4.5-06: within these bounds for any segment size.
function clampMulpdu(bytes: number): number {
  return Math.min(Math.max(bytes, MULPDU_MIN_BYTES), ULPDU_SEND_MAX_BYTES);
}
