/**
 * A stream in Full Operation (RFC 5044 §7.1): the halves of MPA, DDP and RDMAP put together.
 *
 * It takes octets and sends messages; when the stream begins and ends is `stream.ts`'s business.
 */
import { ProtocolError } from '../wire/protocol-error.ts';
import { QUEUE_COUNT, QueueNumber } from '../wire/rdmap-header.ts';
import type { ReceivedTerminate } from '../wire/terminate.ts';
import { DDPReceiver } from './ddp-receiver.ts';
import { DDPSender } from './ddp-sender.ts';
import { FpduReceiver, type FpduReceiverOptions, type UlpduSink } from './fpdu-receiver.ts';
import type { FpduSender } from './fpdu-sender.ts';
import type { RtrKind } from './negotiation.ts';
import { Fault, type StreamUser } from './placement.ts';
import { RDMAPReceiver } from './rdmap-receiver.ts';
import { RDMAPSender, Step } from './rdmap-sender.ts';
import { InboundRequestQueue, OutboundRequestQueue } from './read-queues.ts';
import { faultError, TerminatePolicy } from './terminate-policy.ts';

/** Segments that one pump frames at most; what is left goes on when output is flushed. */
const PUMP_SEGMENTS_MAX = 1024;

/** What Full Operation is entered with. */
export interface FullOperationOptions {
  readonly user: StreamUser;
  /** In Full Operation already. */
  readonly fpduSender: FpduSender;
  readonly receiver: FpduReceiverOptions;
  readonly mulpduBytes: number;
  /** Negotiated depths. */
  readonly ird: number;
  readonly ord: number;
  /** Speak RFC 7306: atomics and Immediate Data. */
  readonly extensionsEnabled: boolean;
}

/** Both directions of a stream in Full Operation. */
export class FullOperation implements UlpduSink {
  /** The first fault, and the Terminate about it. */
  readonly policy = new TerminatePolicy();
  readonly #user: StreamUser;
  readonly #orrq: OutboundRequestQueue;
  readonly #fpduReceiver: FpduReceiver;
  readonly #ddpReceiver: DDPReceiver;
  readonly #rdmapReceiver: RDMAPReceiver;
  readonly #ddpSender: DDPSender;
  readonly #rdmapSender: RDMAPSender;

  constructor(options: FullOperationOptions) {
    const { user, extensionsEnabled } = options;
    const irrq = new InboundRequestQueue(options.ird);
    const orrq = new OutboundRequestQueue(options.ord);
    const ddp = new DDPSender(options.fpduSender, options.mulpduBytes);
    this.#user = user;
    this.#orrq = orrq;
    this.#fpduReceiver = new FpduReceiver(options.receiver);
    this.#rdmapReceiver = new RDMAPReceiver({ user, irrq, orrq, extensionsEnabled });
    // DDP-7.1-01 QN 3 exists with RFC 7306 only.
    const queueCount = extensionsEnabled ? QUEUE_COUNT : QueueNumber.atomicResponse;
    this.#ddpReceiver = new DDPReceiver(this.#rdmapReceiver, queueCount);
    this.#ddpSender = ddp;
    this.#rdmapSender = new RDMAPSender({ user, ddp, irrq, orrq, policy: this.policy });
  }

  // Commands

  /** The RTR indication is due, as the first FPDU. */
  queueRtr(kind: RtrKind): void {
    this.#rdmapSender.queueRtr(kind);
  }

  /** An RDMA Write without payload is due, between two messages. */
  queueNudge(): void {
    this.#rdmapSender.queueNudge();
  }

  /** A new MULPDU, for segments cut from now on. */
  setMulpdu(bytes: number): void {
    this.#ddpSender.mulpduBytes = bytes;
  }

  /** Frames segments until the output is full, nothing is left, or the bound is reached. */
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

  /** Gives back what the receiver holds. */
  release(): void {
    this.#fpduReceiver.release();
  }

  // Inputs

  /** Takes `octets[start, end)` of the stream, borrowed. A fault is latched in `policy`. */
  receive(octets: Uint8Array, start: number, end: number): void {
    const error = this.#fpduReceiver.push(octets, start, end, this);
    // DDP-7-01 what MPA finds is passed up; what DDP and RDMAP found is latched with its segment.
    if (error !== undefined) this.policy.latchLocal(error);
  }

  /** For the FPDU receiver. */
  // DDP-7.1-19 RDMAP-7-01 nothing after the first fault, or after the peer's Terminate.
  handleUlpdu(octets: Uint8Array, start: number, length: number): ProtocolError | undefined {
    if (this.#rdmapReceiver.terminate !== undefined) return undefined;
    // A fault of our own may come up while the octets of one read are being handled.
    if (this.policy.error !== undefined) return this.policy.error;
    const error = this.#ddpReceiver.handleSegment(octets, start, length);
    // DDP-7.1-18 RDMAP-7.1-03
    if (error !== undefined) this.policy.latchSegment(error, octets, start, length);
    return error;
  }

  /** For the FPDU receiver. */
  handleInputEnd(): void {
    const fault = this.#user.inputEnded();
    if (fault === Fault.none || this.policy.error !== undefined) return;
    // RDMAP-7.1-02
    const { text } = faultError(fault, 'tagged');
    this.policy.latchLocal(new ProtocolError('rdmapLocalCatastrophic', `local memory: ${text}`));
  }

  // Getters

  /** The peer's Terminate, once it has come. */
  get receivedTerminate(): ReceivedTerminate | undefined {
    return this.#rdmapReceiver.terminate;
  }

  /** A Terminate of ours has been framed. */
  get terminateFramed(): boolean {
    return this.#rdmapSender.terminated;
  }

  /** A valid FPDU has come: a responder may send (MPA-7.1.2-11). */
  get peerHasSpoken(): boolean {
    return this.#fpduReceiver.validatedCount > 0;
  }

  /** A FIN now would cut an FPDU or a message. */
  get midMessage(): boolean {
    return (
      this.#fpduReceiver.midFpdu ||
      this.#ddpReceiver.midMessage ||
      this.#rdmapReceiver.midTaggedMessage
    );
  }

  /** The octets of an FPDU that has come in part. */
  get heldInput(): Uint8Array {
    return this.#fpduReceiver.held;
  }

  /** Our requests that the peer has not answered. */
  get outstandingCount(): number {
    return this.#orrq.count;
  }
}
