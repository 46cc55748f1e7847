/**
 * A stream in Full Operation (RFC 5044 §7.1): composes both halves of DDP and RDMAP.
 *
 * It takes ULPDUs from the lower layer and sends messages through it. `stream.ts` decides when the stream starts and ends.
 */
import { AccessRefusal, type WireUser } from '#daemon/rnic/wire-port';
import { ProtocolError } from '../wire/protocol-error.ts';
import { QUEUE_COUNT, QueueNumber } from '../wire/rdmap-header.ts';
import type { ReceivedTerminate } from '../wire/terminate.ts';
import { DDPReceiver } from './ddp-receiver.ts';
import { DDPSender } from './ddp-sender.ts';
import type { UlpduSink, UlpduWriter } from './lower-layer.ts';
import type { RtrKind } from './negotiation.ts';
import { RDMAPReceiver } from './rdmap-receiver.ts';
import { RDMAPSender, Step } from './rdmap-sender.ts';
import { InboundRequestQueue, OutboundRequestQueue } from './read-queues.ts';
import { refusalError, TerminatePolicy } from './terminate-policy.ts';

/** Maximum segments that one pump frames. The next pump continues when output is flushed. */
const PUMP_SEGMENTS_MAX = 1024;

interface FullOperationOptions {
  readonly user: WireUser;
  /** The lower layer must be in Full Operation already. */
  readonly writer: UlpduWriter;
  readonly mulpduBytes: number;
  /** Negotiated depths. */
  readonly ird: number;
  readonly ord: number;
  /** Speak RFC 7306: atomics and Immediate Data. */
  readonly extensionsEnabled: boolean;
}

/** Both directions of a stream in Full Operation. */
export class FullOperation implements UlpduSink {
  /** The first error, and the Terminate about it. */
  readonly policy = new TerminatePolicy();
  readonly #user: WireUser;
  readonly #orrq: OutboundRequestQueue;
  readonly #writer: UlpduWriter;
  readonly #ddpReceiver: DDPReceiver;
  readonly #rdmapReceiver: RDMAPReceiver;
  readonly #ddpSender: DDPSender;
  readonly #rdmapSender: RDMAPSender;

  constructor(options: FullOperationOptions) {
    const { user, extensionsEnabled } = options;
    const irrq = new InboundRequestQueue(options.ird);
    const orrq = new OutboundRequestQueue(options.ord);
    const ddp = new DDPSender(options.writer, options.mulpduBytes);
    this.#user = user;
    this.#orrq = orrq;
    this.#writer = options.writer;
    this.#rdmapReceiver = new RDMAPReceiver({ user, irrq, orrq, extensionsEnabled });
    // DDP-7.1-01 QN 3 exists with RFC 7306 only.
    const queueCount = extensionsEnabled ? QUEUE_COUNT : QueueNumber.atomicResponse;
    this.#ddpReceiver = new DDPReceiver(this.#rdmapReceiver, queueCount);
    this.#ddpSender = ddp;
    const { writer } = options;
    this.#rdmapSender = new RDMAPSender({ user, ddp, writer, irrq, orrq, policy: this.policy });
  }

  // Commands

  /** Queues the RTR indication, which must be the first FPDU. */
  queueRtr(kind: RtrKind): void {
    this.#rdmapSender.queueRtr(kind);
  }

  /** Queues an RDMA Write without payload, to go between two messages. */
  queueNudge(): void {
    this.#rdmapSender.queueNudge();
  }

  /** Sets a new MULPDU, for later segments. */
  setMulpdu(bytes: number): void {
    this.#ddpSender.mulpduBytes = bytes;
  }

  /** Frames segments until the output is full, nothing is left, or the limit is reached. */
  pump(): Step {
    const sender = this.#rdmapSender;
    sender.resume();
    let step: Step = Step.idle;
    for (let left = PUMP_SEGMENTS_MAX; left > 0; left--) {
      step = sender.step();
      if (step !== Step.framed) break;
    }
    return step;
  }

  /** The user leaves: frames the pending Terminate even if the output is full. */
  frameLastTerminate(): void {
    this.#writer.liftHighWater();
    this.#rdmapSender.frameLastTerminate();
  }

  // Inputs

  /** For the lower layer. */
  // DDP-7.1-19 RDMAP-7-01 nothing after the first error, or after the peer's Terminate.
  handleUlpdu(bytes: Uint8Array, start: number, length: number): ProtocolError | undefined {
    if (this.#rdmapReceiver.terminate !== undefined) return undefined;
    // An error of this side may occur while the bytes of one read are being handled.
    if (this.policy.error !== undefined) return this.policy.error;
    const error = this.#ddpReceiver.handleSegment(bytes, start, length);
    // DDP-7.1-18 RDMAP-7.1-03
    if (error !== undefined) this.policy.latchSegment(error, bytes, start, length);
    return error;
  }

  /** For the lower layer. */
  handleInputEnd(): void {
    const refusal = this.#user.inputEnded();
    if (refusal === AccessRefusal.none || this.policy.error !== undefined) return;
    // RDMAP-7.1-02
    const { text } = refusalError(refusal, 'tagged');
    this.policy.latchLocal(new ProtocolError('rdmapLocalCatastrophic', `local memory: ${text}`));
  }

  // Getters

  get receivedTerminate(): ReceivedTerminate | undefined {
    return this.#rdmapReceiver.terminate;
  }

  get terminateFramed(): boolean {
    return this.#rdmapSender.terminated;
  }

  /** True when a message of the send queue is partly framed. */
  get midSend(): boolean {
    return this.#rdmapSender.midMessage;
  }

  /** True when nothing can be sent until the peer has answered a request. */
  get waitsForAnswers(): boolean {
    return this.#rdmapSender.waitsForAnswers;
  }

  /** Payload bytes of the send queue framed so far. */
  get sentBytes(): number {
    return this.#rdmapSender.sentBytes;
  }

  /** True when the peer's end now would cut a message. */
  get midMessage(): boolean {
    return this.#ddpReceiver.midMessage || this.#rdmapReceiver.midTaggedMessage;
  }

  /** Our requests that the peer has not answered. */
  get outstandingCount(): number {
    return this.#orrq.count;
  }
}
