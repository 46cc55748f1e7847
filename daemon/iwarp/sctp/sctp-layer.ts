/**
 * DDP over SCTP as the lower layer of a stream (RFC 5043): `SctpLayer` is one DDP stream session.
 * SCTP messages of one stream come in, in any order; ULPDUs go up in the order of their DDP-SSNs.
 *
 * Another session of the same SCTP stream is another layer, once SCTP has acknowledged everything of
 * this one (SCTP-6.6-03).
 */
import { readUint16 } from '#base/checked-bytes';
import type { Micros } from '#base/time';
import type { Delivery, Transmit } from '#base/transmit';
import type { ChunkPool } from '../engine/chunk-pool.ts';
import type { LowerEffect, LowerLayer, UlpduSink } from '../engine/lower-layer.ts';
import type { Agreement, FpduSizePolicy, StreamOptions } from '../engine/stream-api.ts';
import { MULPDU_MIN_BYTES } from '../wire/fpdu.ts';
import type { ProtocolError } from '../wire/protocol-error.ts';
import { MessageWriter } from './message-writer.ts';
import { Sequencer, type Turn } from './sequencer.ts';
import { DdpSession } from './session.ts';
import { PayloadProtocol, parseSessionMessage, SSN_BYTES } from './session-message.ts';

/** The Adaptation Indication that both ends of an association must send (SCTP-5.1-01). */
export const DDP_ADAPTATION = 1;

const NO_BYTES = new Uint8Array(0);
/**
 * Limit of bytes that wait for the consumer's answer to Initiate: an active side may send as soon
 * as its Initiate is acknowledged, but has no reason to send much before the answer.
 */
const UNANSWERED_MAX_BYTES = 65_536;

const TURN_TEXT: Readonly<Record<Exclude<Turn, 'due' | 'held'>, string>> = {
  past: 'the peer repeated a DDP-SSN',
  repeated: 'the peer repeated a DDP-SSN',
  'too-far': 'a DDP-SSN is further ahead than SCTP allows',
  'too-much': 'too many bytes wait for a DDP-SSN that is missing',
};

interface SctpLayerEnvironment {
  /** Buffers, shared by the streams of a device. */
  readonly pool: ChunkPool;
  /** Bytes that may wait for the transport before sending pauses; `MessageWriter` has the default. */
  readonly highWaterBytes?: number;
  /** The indication that the peer's INIT or INIT ACK had; undefined for none. */
  readonly peerAdaptation: number | undefined;
}

/** `emssBytes` of the options is the longest message of the path. */
export class SctpLayer implements LowerLayer {
  readonly writer: MessageWriter;
  /** Always false: messages are whole, and the peer's Terminate is delivered in order. */
  readonly midUlpdu = false;
  readonly heldInput = NO_BYTES;
  readonly lossQuirk = undefined;
  readonly #options: StreamOptions;
  readonly #peerAdaptation: number | undefined;
  readonly #session: DdpSession;
  readonly #sequencer = new Sequencer();
  readonly #effects: LowerEffect[] = [];
  #messageMaxBytes: number;
  #segments = 0;
  #unacknowledged = false;
  /** Segments are dropped, now and later: they have no receiver. */
  #dropping = false;
  #error: ProtocolError | undefined = undefined;

  constructor(options: StreamOptions, environment: SctpLayerEnvironment) {
    const { pool, highWaterBytes, peerAdaptation } = environment;
    this.#options = options;
    this.#peerAdaptation = peerAdaptation;
    this.#messageMaxBytes = options.emssBytes;
    this.#session = new DdpSession(options);
    this.writer = new MessageWriter({
      pool,
      ...(highWaterBytes === undefined ? {} : { highWaterBytes }),
      segmentMaxBytes: segmentMaxBytes(options.emssBytes),
    });
  }

  // Commands

  connect(privateData: Uint8Array, now: Micros): void {
    // SCTP-11.1-01
    if (this.#adapted()) this.#session.connect(privateData, now);
  }

  listen(now: Micros): void {
    if (this.#adapted()) this.#session.listen(now);
  }

  accept(
    privateData: Uint8Array,
    consumerDepths: { readonly ird: number; readonly ord: number },
  ): void {
    this.#session.accept(privateData, consumerDepths);
  }

  reject(privateData: Uint8Array): void {
    this.#session.reject(privateData);
  }

  refuse(): void {
    this.#session.refuse();
  }

  leaveUnsealed(): void {
    // SCTP has its own checksum.
  }

  seal(): void {
    // SCTP has its own checksum.
  }

  failLocally(text: string): void {
    this.#session.failLocally(text);
  }

  enterFullOperation(_agreement: Agreement): void {
    this.writer.open();
  }

  /** The longest message of the path has changed: later segments follow it. */
  setPathBytes(messageMaxBytes: number): void {
    this.#messageMaxBytes = messageMaxBytes;
    this.writer.segmentMaxBytes = segmentMaxBytes(messageMaxBytes);
  }

  finish(): void {
    this.writer.close();
    this.#session.finish();
    this.#transmit();
  }

  releaseInput(): void {
    this.#dropping = true;
    this.#sequencer.release();
    // An aborted stream ends after its framed messages; TCP would send a FIN.
    this.finish();
  }

  releaseOutput(): void {
    this.writer.close();
    this.writer.release();
  }

  // Inputs

  handleStartup(bytes: Uint8Array, { payloadProtocol }: Delivery): number {
    this.#take(bytes, payloadProtocol, undefined);
    return bytes.length;
  }

  receive(
    bytes: Uint8Array,
    start: number,
    end: number,
    { payloadProtocol }: Delivery,
    sink: UlpduSink,
  ): ProtocolError | undefined {
    if (start < end) this.#take(bytes, payloadProtocol, sink);
    else this.#deliverHeld(sink);
    this.#transmit();
    sink.handleInputEnd?.();
    return this.#error;
  }

  /** Only the peer's Terminate still matters, once it is due. */
  drop(bytes: Uint8Array, { payloadProtocol }: Delivery): void {
    this.#dropping = true;
    this.#take(bytes, payloadProtocol, undefined);
    this.#transmit();
  }

  flushed(bytes: number): void {
    this.writer.flushed(bytes);
  }

  /** SCTP has acknowledged everything. */
  handleAcknowledged(): void {
    // Queued output has not been sent.
    if (this.writer.queuedBytes > 0) return;
    this.#unacknowledged = false;
    this.#session.handleProof();
    this.#transmit();
  }

  handlePeerClosed(): void {
    this.#session.handlePeerClosed();
  }

  handleDeadline(now: Micros): void {
    this.#session.handleDeadline(now);
  }

  // Outputs

  pollEffect(): LowerEffect | undefined {
    this.#transmit();
    return this.#effects.shift();
  }

  pollTransmit(): Transmit | undefined {
    const transmit = this.writer.pollTransmit();
    if (transmit !== undefined) this.#unacknowledged = true;
    return transmit;
  }

  nextDeadline(): Micros {
    return this.#session.nextDeadline();
  }

  // Getters

  get mulpduBytes(): number {
    return segmentBytes(this.#options.fpduSize, this.#messageMaxBytes);
  }

  get sendable(): boolean {
    return this.#session.sendable;
  }

  get peerHasSpoken(): boolean {
    return this.#segments > 0;
  }

  get hasSpoken(): boolean {
    return this.writer.hasSpoken;
  }

  get receivedCount(): number {
    return this.#segments;
  }

  get inputWaits(): boolean {
    return this.#sequencer.next !== undefined;
  }

  get queuedBytes(): number {
    return this.writer.queuedBytes;
  }

  get finished(): boolean {
    return this.#session.ended && this.writer.queuedBytes === 0;
  }

  get peerEnded(): boolean {
    return this.#session.peerEnded;
  }

  get peerMayStaySilent(): boolean {
    return this.#session.peerMayStaySilent;
  }

  /** True when both halves have ended: a message that comes now belongs to another session. */
  get over(): boolean {
    return this.finished && this.#session.peerEnded;
  }

  // SCTP-6.6-03
  /** True when another session may be opened on the SCTP stream: no message is in flight. */
  get reusable(): boolean {
    return this.over && !this.#unacknowledged;
  }

  /** Messages held because an earlier one is missing. */
  get heldCount(): number {
    return this.#sequencer.heldCount;
  }

  /** Throws `InvariantError`. */
  assertInvariants(): void {
    this.#sequencer.assertInvariants();
  }

  #adapted(): boolean {
    const peer = this.#peerAdaptation;
    if (peer === DDP_ADAPTATION) return true;
    const found = peer === undefined ? 'no adaptation indication' : `adaptation indication ${peer}`;
    const text = `the peer's association has ${found}, not DDP's (${DDP_ADAPTATION})`;
    this.#effects.push({ type: 'failed', failure: { kind: 'protocol', text }, close: 'abort' });
    return false;
  }

  /**
   * Moves the session's messages to the writer, and its other effects to the end of the queue. Call after
   * every input of Full Operation: `finished` does not know the session's pending messages.
   */
  #transmit(): void {
    for (;;) {
      const effect = this.#session.pollEffect();
      if (effect === undefined) return;
      if (effect.type === 'transmit') this.writer.control(effect.message);
      else this.#effects.push(effect);
    }
  }

  #take(bytes: Uint8Array, payloadProtocol: number, sink: UlpduSink | undefined): void {
    if (bytes.length < SSN_BYTES) {
      this.#session.fail('a message is too short for its DDP-SSN');
      return;
    }
    // SCTP-5.1-02
    if (!isDdp(payloadProtocol)) {
      this.#session.fail(`payload protocol ${payloadProtocol} is not DDP's`);
      return;
    }
    const ssn = readUint16(bytes, 0);
    const turn = this.#sequencer.take(ssn, payloadProtocol, bytes);
    if (turn === 'due') {
      if (!this.#deliver(payloadProtocol, bytes, sink)) this.#wait(ssn, payloadProtocol, bytes);
      else {
        this.#sequencer.advance();
        this.#deliverHeld(sink);
      }
    } else if (turn !== 'held') this.#session.fail(TURN_TEXT[turn]);
    else this.#checkUnanswered();
  }

  /** Holds a message that is due until the consumer answers. */
  #wait(ssn: number, payloadProtocol: number, bytes: Uint8Array): void {
    const turn = this.#sequencer.hold(ssn, payloadProtocol, bytes);
    if (turn === 'too-much') this.#session.fail(TURN_TEXT[turn]);
    else this.#checkUnanswered();
  }

  // Limits listeners only: before its consumer answers, a listener has not chosen this peer. At an
  // initiator, many messages may overtake the Accept.
  #checkUnanswered(): void {
    if (!this.#session.unanswered || this.#sequencer.heldBytes <= UNANSWERED_MAX_BYTES) return;
    if (this.#dropping) return;
    this.#session.fail('received too many bytes before the session was accepted');
    this.#sequencer.release();
  }

  #deliverHeld(sink: UlpduSink | undefined): void {
    for (;;) {
      const held = this.#sequencer.next;
      if (held === undefined) return;
      if (!this.#deliver(held.payloadProtocol, held.bytes, sink)) return;
      this.#sequencer.advance();
    }
  }

  /** Delivers the message that is due. False if it has to wait. */
  #deliver(payloadProtocol: number, bytes: Uint8Array, sink: UlpduSink | undefined): boolean {
    if (payloadProtocol === PayloadProtocol.sessionControl) {
      // The effects hold on to the Private Data, and the bytes are only borrowed.
      this.#session.handleMessage(parseSessionMessage(bytes.slice()));
      return true;
    }
    const verdict = this.#session.handleSegment();
    if (verdict === 'wait') return this.#dropping;
    if (verdict === 'drop' || this.#dropping || this.#error !== undefined) return true;
    // The stream is about to enter Full Operation.
    if (sink === undefined) return false;
    this.#segments += 1;
    this.#error = sink.handleUlpdu(bytes, SSN_BYTES, bytes.length - SSN_BYTES);
    return true;
  }
}

function isDdp(payloadProtocol: number): boolean {
  return (
    payloadProtocol === PayloadProtocol.segment ||
    payloadProtocol === PayloadProtocol.sessionControl
  );
}

/** Room for a SACK beside the message in its packet (SCTP-9-03). */
const SACK_BYTES = 16;
/** Minimum on any path: a control message with 512 bytes of data needs it, too. */
const SEGMENT_MAX_FLOOR_BYTES = 516;
/** Maximum: peers of our kind assemble messages of up to 65,537 bytes. */
const SEGMENT_CEILING_BYTES = 65_535;

// SCTP-9-01
/** The longest segment that SCTP need not fragment, for messages of at most `messageMaxBytes`. */
export function segmentMaxBytes(messageMaxBytes: number): number {
  const bytes = messageMaxBytes - SSN_BYTES - SACK_BYTES;
  return Math.min(Math.max(bytes, SEGMENT_MAX_FLOOR_BYTES), SEGMENT_CEILING_BYTES);
}

// SCTP-9-02: no policy goes beyond the path.
/** The longest segment that DDP should post. */
export function segmentBytes(policy: FpduSizePolicy, messageMaxBytes: number): number {
  const most = segmentMaxBytes(messageMaxBytes);
  if (policy.kind !== 'fixed') return most;
  return Math.min(Math.max(policy.mulpduBytes, MULPDU_MIN_BYTES), most);
}
