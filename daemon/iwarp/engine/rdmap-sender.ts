/**
 * The outbound half of RDMAP: chooses the next message and frames its segments (RFC 5040 §4–5, RFC 7306).
 *
 * Two sources share the stream and alternate message by message: the consumer's send queue, and the pending
 * Responses. Segments of two messages are never interleaved (DDP-5.3-02), so a message that has begun is
 * finished first. A Terminate precedes any message that has not begun (RFC 5040 §7.1), and nothing follows
 * it.
 *
 * Payload that is lent to the peer on the same host is copied later: until then, nothing is framed but more of it,
 * since nothing may reach the peer's memory before. The next Response ends that, or it would never be sent.
 *
 * An outstanding RDMA Read does not delay the send queue (RFC 5040 §5.5 rule 15), but a request beyond ORD
 * delays everything after it (RDMAP-5.5-09).
 */
import { assert } from '#base/assert';
import {
  AccessRefusal,
  OutboundKind,
  OutboundMessage,
  type WireUser,
} from '#daemon/rnic/wire-port';
import {
  ATOMIC_REQUEST_BYTES,
  ATOMIC_RESPONSE_BYTES,
  type AtomicRequest,
  IMMEDIATE_BYTES,
  writeAtomicRequest,
  writeAtomicResponse,
  writeImmediate,
} from '../wire/atomic-header.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import {
  QueueNumber,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  ReadRequest,
  rdmapControl,
  writeReadRequest,
} from '../wire/rdmap-header.ts';
import { emitTerminate, terminateSizeBytes } from '../wire/terminate.ts';
import type { DDPSender } from './ddp-sender.ts';
import type { UlpduWriter } from './lower-layer.ts';
import type { RtrKind } from './negotiation.ts';
import {
  type InboundRequest,
  type InboundRequestQueue,
  type OutboundRequestQueue,
  RequestKind,
} from './read-queues.ts';
import { toAddHi, toAddLo } from './tagged-offset.ts';
import { refusalError, type TerminatePolicy } from './terminate-policy.ts';

/** Results of `step`. */
export const Step = {
  /** One segment was framed. */
  framed: 0,
  /** There is nothing to send. */
  idle: 1,
  /** The output is full; flushing makes room. */
  blocked: 2,
  /** A message waits for its data, or for an outstanding request. */
  waiting: 3,
} as const;
export type Step = (typeof Step)[keyof typeof Step];

const Source = { none: 0, queue: 1, responses: 2 } as const;
type Source = (typeof Source)[keyof typeof Source];

const WRITE = rdmapControl(RDMAPOpcode.write);
const READ_REQUEST = rdmapControl(RDMAPOpcode.readRequest);
const READ_RESPONSE = rdmapControl(RDMAPOpcode.readResponse);
const TERMINATE = rdmapControl(RDMAPOpcode.terminate);
const ATOMIC_REQUEST = rdmapControl(RDMAPOpcode.atomicRequest);
const ATOMIC_RESPONSE = rdmapControl(RDMAPOpcode.atomicResponse);

/** Reused by all streams: filled in and written in one step. */
const READ_REQUEST_FIELDS = new ReadRequest();
/** The zero-length Read that serves as RTR; it names no memory. Never filled in. */
const RTR_READ = new ReadRequest();

/** Placeholder until a stream sends its first message: many streams stay idle. Never filled in. */
const UNSENT = new OutboundMessage();
/** Becomes the message of the next stream that sends its first. */
let spareMessage = new OutboundMessage();

interface RDMAPSenderOptions {
  readonly user: WireUser;
  readonly ddp: DDPSender;
  readonly writer: UlpduWriter;
  readonly irrq: InboundRequestQueue;
  readonly orrq: OutboundRequestQueue;
  readonly policy: TerminatePolicy;
}

/** Frames the messages of one stream, one segment per `step`. */
export class RDMAPSender {
  readonly #user: WireUser;
  readonly #ddp: DDPSender;
  readonly #writer: UlpduWriter;
  readonly #irrq: InboundRequestQueue;
  readonly #orrq: OutboundRequestQueue;
  readonly #policy: TerminatePolicy;
  /** `UNSENT` until the stream's first message. */
  #message = UNSENT;
  #rtr: RtrKind | undefined = undefined;
  #nudge = false;
  /** The source of the message in progress. */
  #source: Source = Source.none;
  /** The source to ask first when no message is in progress. */
  #turn: Source = Source.queue;
  /** `#message` is the send queue's current message, begun or not. */
  #messageTaken = false;
  /** Payload bytes of the message in progress that are framed. */
  #offset = 0;
  #sentBytes = 0;
  /** The source waits for data, or for room in the ORRQ, until the next pump. */
  #queueWaits = false;
  #responsesWait = false;
  #atomicIdentifier = 0;
  #terminated = false;
  /** Lent payload was framed, and may not be copied yet. */
  #lent = false;

  constructor(options: RDMAPSenderOptions) {
    this.#user = options.user;
    this.#ddp = options.ddp;
    this.#writer = options.writer;
    this.#irrq = options.irrq;
    this.#orrq = options.orrq;
    this.#policy = options.policy;
  }

  // Getters

  get terminated(): boolean {
    return this.#terminated;
  }

  /** True when a message of the send queue is partly framed: its payload is still needed. */
  get midMessage(): boolean {
    return this.#source === Source.queue && this.#offset > 0;
  }

  /** Payload bytes of the send queue framed so far. */
  get sentBytes(): number {
    return this.#sentBytes;
  }

  /** True if all unsent messages follow a request that waits for answers to earlier requests. */
  get waitsForAnswers(): boolean {
    const { kind } = this.#message;
    const isRequest = kind === OutboundKind.readRequest || kind === OutboundKind.atomic;
    if (!this.#messageTaken || !isRequest || !this.#orrq.full) return false;
    return this.#source === Source.none && this.#irrq.head === undefined;
  }

  // Commands

  /** Starts a new pump: asks waiting sources again. */
  resume(): void {
    this.#queueWaits = false;
    this.#responsesWait = false;
    if (this.#lent) this.#settleLent();
  }

  #settleLent(): void {
    const { loans } = this.#writer;
    this.#user.settleLent?.();
    this.#lent = loans !== undefined && (loans.lent > 0 || loans.failed);
  }

  /** Queues the RTR indication, ahead of everything else. */
  // EMPA-9.2-10 EMPA-5-02
  queueRtr(kind: RtrKind): void {
    this.#rtr = kind;
  }

  /** Queues an RDMA Write without payload, after the message in progress. */
  queueNudge(): void {
    this.#nudge = true;
  }

  /** Frames the pending Terminate, unless a message is in progress. */
  frameLastTerminate(): void {
    if (this.#policy.pending && !this.#begun()) this.step();
  }

  /** Frames the next segment, if there is one and the output has room. */
  step(): Step {
    if (this.#rtr !== undefined) return this.#frameRtr(this.#rtr);
    // RDMAP-5.4-06 after the first error, a message of which nothing is framed does not begin.
    if (this.#policy.error !== undefined && !this.#begun()) this.#source = Source.none;
    if (this.#source === Source.none) {
      // RDMAP-7.1-03 a Terminate is the next message; one in progress is finished before it.
      if (this.#policy.pending) return this.#frameTerminate();
      // RDMAP-5.4-06 nothing follows a Terminate; an error that forbids one ends sending as well.
      if (this.#policy.error !== undefined) return Step.idle;
      if (this.#nudge) return this.#frameNudge();
      if (!this.#choose()) {
        const waits = this.#queueWaits || this.#responsesWait || this.#lending();
        return waits ? Step.waiting : Step.idle;
      }
    }
    return this.#source === Source.queue ? this.#frameMessage() : this.#frameResponse();
  }

  /** True when part of the message in progress is framed. */
  #begun(): boolean {
    if (this.#source === Source.queue) return this.#offset > 0;
    const request = this.#source === Source.responses ? this.#irrq.head : undefined;
    return request?.kind === RequestKind.read && request.sentBytes > 0;
  }

  // EMPA-9.2-11 STag, TO and size are zero; a Send consumes a receive of the peer.
  #frameRtr(kind: RtrKind): Step {
    const ddp = this.#ddp;
    const { send, readRequest } = QueueNumber;
    if (kind === 'read') {
      const at = ddp.beginUntagged(true, READ_REQUEST, 0, readRequest, 0, READ_REQUEST_BYTES);
      if (at < 0) return Step.blocked;
      writeReadRequest(RTR_READ, ddp.bytes, at);
      this.#pushOutbound(RequestKind.read, 0, true);
    } else {
      const at =
        kind === 'write'
          ? ddp.beginTagged(true, WRITE, 0, 0, 0, 0)
          : ddp.beginUntagged(true, rdmapControl(RDMAPOpcode.send), 0, send, 0, 0);
      if (at < 0) return Step.blocked;
    }
    ddp.commit();
    this.#rtr = undefined;
    return Step.framed;
  }

  // DDP-5.2-10 DDP-5.2-11 STag and TO of a Write without payload mean nothing.
  #frameNudge(): Step {
    if (this.#ddp.beginTagged(true, WRITE, 0, 0, 0, 0) < 0) return Step.blocked;
    this.#ddp.commit();
    this.#nudge = false;
    return Step.framed;
  }

  // DDP-5.3-01 each source keeps its own order; the two alternate message by message.
  #choose(): boolean {
    if (this.#turn === Source.responses) {
      if (this.#chooseResponse()) return true;
      // More lent payload would delay it for ever.
      return !(this.#responsesWait && this.#lending()) && this.#chooseMessage();
    }
    return this.#chooseMessage() || this.#chooseResponse();
  }

  #keepSpare(): void {
    this.#message = spareMessage;
    spareMessage = new OutboundMessage();
  }

  #chooseMessage(): boolean {
    if (this.#queueWaits) return false;
    if (!this.#messageTaken) {
      const message = this.#message === UNSENT ? spareMessage : this.#message;
      if (!this.#user.nextMessage(message)) return false;
      if (message === spareMessage) this.#keepSpare();
      this.#messageTaken = true;
    }
    const { kind } = this.#message;
    // RDMAP-6.1-03 RDMAP-5.5-09 a request beyond ORD waits, and everything after it.
    const isRequest = kind === OutboundKind.readRequest || kind === OutboundKind.atomic;
    if (isRequest && this.#orrq.full) {
      this.#queueWaits = true;
      return false;
    }
    if ((isRequest || kind === OutboundKind.immediate) && this.#awaitsCopies()) {
      this.#queueWaits = true;
      return false;
    }
    this.#source = Source.queue;
    this.#turn = Source.responses;
    this.#offset = 0;
    return true;
  }

  #chooseResponse(): boolean {
    if (this.#responsesWait || this.#irrq.head === undefined) return false;
    if (this.#awaitsCopies()) {
      this.#responsesWait = true;
      return false;
    }
    this.#source = Source.responses;
    this.#turn = Source.queue;
    this.#offset = 0;
    return true;
  }

  // The send queue

  #frameMessage(): Step {
    const message = this.#message;
    switch (message.kind) {
      case OutboundKind.send:
        // RDMAP-4.1-09 the other 32 bits of RsvdULP are zero on a plain Send.
        return this.#frameSend(message.solicited ? RDMAPOpcode.sendSolicited : RDMAPOpcode.send, 0);
      case OutboundKind.sendWithInvalidate:
        // RDMAP-4.1-08
        return this.#frameSend(
          message.solicited ? RDMAPOpcode.sendSolicitedInvalidate : RDMAPOpcode.sendInvalidate,
          message.invalidateStag,
        );
      case OutboundKind.write:
        return this.#frameWrite();
      case OutboundKind.readRequest:
        return this.#frameReadRequest();
      case OutboundKind.immediate:
        return this.#frameImmediate();
      case OutboundKind.atomic:
        return this.#frameAtomicRequest();
      default:
        assert(false, `unknown kind of outbound message: ${message.kind}`);
    }
  }

  // DDP-5.2-05 DDP-4.3-11 MO is the offset of the segment's first payload byte.
  #frameSend(opcode: RDMAPOpcode, ulpWord: number): Step {
    const ddp = this.#ddp;
    const offset = this.#offset;
    const left = this.#message.lengthBytes - offset;
    // MPA-3-04 as large as possible. DDP-5.2-10 a message without payload is one segment.
    const size = Math.min(left, ddp.untaggedRoomBytes);
    const last = size === left;
    const lends = this.#message.lendable && this.#lends(left);
    if (!lends && this.#awaitsCopies()) return this.#waitInQueue();
    const at = ddp.beginUntagged(
      last,
      rdmapControl(opcode),
      ulpWord,
      QueueNumber.send,
      offset,
      size,
    );
    if (at < 0) return Step.blocked;
    return this.#gather(size, at, last, lends);
  }

  // DDP-5.2-08 TO is the initial TO plus the offset. DDP-4.2-04 the STag is the message's.
  #frameWrite(): Step {
    const ddp = this.#ddp;
    const { remoteStag, remoteToHi, remoteToLo, lengthBytes } = this.#message;
    const offset = this.#offset;
    const left = lengthBytes - offset;
    const size = Math.min(left, ddp.taggedRoomBytes);
    const last = size === left;
    const lends = this.#message.lendable && this.#lends(left);
    if (!lends && this.#awaitsCopies()) return this.#waitInQueue();
    const toHi = toAddHi(remoteToHi, remoteToLo, offset);
    const at = ddp.beginTagged(last, WRITE, remoteStag, toHi, toAddLo(remoteToLo, offset), size);
    if (at < 0) return Step.blocked;
    return this.#gather(size, at, last, lends);
  }

  /** True while payload is lent: nothing else may overtake it. */
  #lending(): boolean {
    if (!this.#lent) return false;
    const { loans } = this.#writer;
    return loans !== undefined && loans.lent > 0;
  }

  /** True if what is not lent must wait; the stream is pumped once lent payload is copied. */
  #awaitsCopies(): boolean {
    if (!this.#lending()) return false;
    this.#user.awaitCopies?.();
    return true;
  }

  /** True if the next segment of the message, which has `left` bytes left, lends its payload. */
  #lends(left: number): boolean {
    const writer = this.#writer;
    const { loans } = writer;
    if (loans === undefined || left === 0) return false;
    // What is alone on its way arrives sooner if the daemon copies it at once.
    if (loans.lent === 0 && writer.queuedBytes === 0) return false;
    const may = this.#user.mayLend?.(this.#message.slot, this.#offset, left, loans) === true;
    return may && writer.lends === true;
  }

  #waitInQueue(): Step {
    this.#queueWaits = true;
    // The message has not begun on the wire yet, so Responses may go first.
    if (this.#offset === 0) this.#source = Source.none;
    return Step.waiting;
  }

  /** Copies or lends payload of the current message into the current segment, and frames it. */
  #gather(size: number, at: number, last: boolean, lends: boolean): Step {
    const user = this.#user;
    const offset = this.#offset;
    if (size > 0) {
      const { slot } = this.#message;
      if (!user.prepareGather(slot, offset, size)) return this.#waitInQueue();
      const refusal = this.#take(lends, slot, offset, size, at);
      if (refusal !== AccessRefusal.none) return this.#failGather(refusal);
    }
    this.#ddp.commit();
    this.#offset = offset + size;
    this.#sentBytes += size;
    if (last) this.#endMessage();
    return Step.framed;
  }

  #take(lends: boolean, slot: number, offset: number, size: number, at: number): AccessRefusal {
    const user = this.#user;
    const { bytes } = this.#ddp;
    if (!lends && !this.#lent) return user.gather(slot, offset, size, bytes, at);
    const { loans } = this.#writer;
    // Nothing may arrive after payload that never will.
    if (loans?.failed === true) return AccessRefusal.memoryLost;
    if (!lends || loans === undefined) return user.gather(slot, offset, size, bytes, at);
    this.#lent = true;
    return user.lend?.(slot, offset, size, bytes, at, loans) ?? AccessRefusal.memoryLost;
  }

  // RDMAP-7.1-02 a local error: the Terminate replaces the message.
  #failGather(refusal: Exclude<AccessRefusal, 0>): Step {
    const { text } = refusalError(refusal, 'tagged');
    this.#policy.latchLocal(new ProtocolError('rdmapLocalCatastrophic', `local memory: ${text}`));
    this.#source = Source.none;
    return this.step();
  }

  // DDP-5.4-01 complete once framed: delivery is not reported.
  #endMessage(): void {
    this.#source = Source.none;
    this.#messageTaken = false;
    this.#user.messageDone();
  }

  #frameReadRequest(): Step {
    const ddp = this.#ddp;
    const message = this.#message;
    const qn = QueueNumber.readRequest;
    // RDMAP-4.8-12 always one segment: no MULPDU is below 128.
    const at = ddp.beginUntagged(true, READ_REQUEST, 0, qn, 0, READ_REQUEST_BYTES);
    if (at < 0) return Step.blocked;
    const read = READ_REQUEST_FIELDS;
    read.sinkStag = message.sinkStag;
    read.sinkToHi = message.sinkToHi;
    read.sinkToLo = message.sinkToLo;
    read.size = message.lengthBytes;
    read.sourceStag = message.remoteStag;
    read.sourceToHi = message.remoteToHi;
    read.sourceToLo = message.remoteToLo;
    writeReadRequest(read, ddp.bytes, at);
    this.#pushOutbound(RequestKind.read, 0, false);
    ddp.commit();
    this.#endMessage();
    return Step.framed;
  }

  // RDMAPX-6.3-04 RDMAPX-4.1-03
  #frameImmediate(): Step {
    const ddp = this.#ddp;
    const { solicited, immediateHi, immediateLo } = this.#message;
    const opcode = solicited ? RDMAPOpcode.immediateSolicited : RDMAPOpcode.immediate;
    const qn = QueueNumber.send;
    const at = ddp.beginUntagged(true, rdmapControl(opcode), 0, qn, 0, IMMEDIATE_BYTES);
    if (at < 0) return Step.blocked;
    writeImmediate(ddp.bytes, at, immediateHi, immediateLo);
    ddp.commit();
    this.#endMessage();
    return Step.framed;
  }

  #frameAtomicRequest(): Step {
    const ddp = this.#ddp;
    const qn = QueueNumber.readRequest;
    const at = ddp.beginUntagged(true, ATOMIC_REQUEST, 0, qn, 0, ATOMIC_REQUEST_BYTES);
    if (at < 0) return Step.blocked;
    const message = this.#message;
    const request: AtomicRequest = {
      operation: message.atomicOperation,
      identifier: this.#atomicIdentifier,
      stag: message.remoteStag,
      toHi: message.remoteToHi,
      toLo: message.remoteToLo,
      operandHi: message.atomicOperandHi,
      operandLo: message.atomicOperandLo,
      operandMaskHi: message.atomicOperandMaskHi,
      operandMaskLo: message.atomicOperandMaskLo,
      compareHi: message.atomicCompareHi,
      compareLo: message.atomicCompareLo,
      compareMaskHi: message.atomicCompareMaskHi,
      compareMaskLo: message.atomicCompareMaskLo,
    };
    writeAtomicRequest(request, ddp.bytes, at);
    this.#pushOutbound(RequestKind.atomic, this.#atomicIdentifier, false);
    this.#atomicIdentifier = (this.#atomicIdentifier + 1) >>> 0;
    ddp.commit();
    this.#endMessage();
    return Step.framed;
  }

  /** Records the request being framed. `internal`: it is the RTR. */
  #pushOutbound(kind: RequestKind, identifier: number, internal: boolean): void {
    const request = this.#orrq.spare();
    assert(request !== undefined, 'request beyond ORD');
    const message = this.#message;
    request.kind = kind;
    request.internal = internal;
    request.sinkStag = message.sinkStag;
    request.sinkToHi = message.sinkToHi;
    request.sinkToLo = message.sinkToLo;
    request.lengthBytes = message.lengthBytes;
    request.receivedBytes = 0;
    request.identifier = identifier;
    this.#orrq.push();
  }

  // Responses

  #frameResponse(): Step {
    const request = this.#irrq.head;
    assert(request !== undefined, 'Response without a request');
    return request.kind === RequestKind.read
      ? this.#frameReadResponse(request)
      : this.#frameAtomicResponse(request);
  }

  // RDMAP-5.2.2-01 RDMAP-4.4-02 sink STag and TO are copied unchecked.
  #frameReadResponse(request: InboundRequest): Step {
    const ddp = this.#ddp;
    const { read, sentBytes } = request;
    const left = read.size - sentBytes;
    const size = Math.min(left, ddp.taggedRoomBytes);
    const last = size === left;
    const toHi = toAddHi(read.sinkToHi, read.sinkToLo, sentBytes);
    const toLo = toAddLo(read.sinkToLo, sentBytes);
    const at = ddp.beginTagged(last, READ_RESPONSE, read.sinkStag, toHi, toLo, size);
    if (at < 0) return Step.blocked;
    if (size > 0) {
      const sourceHi = toAddHi(read.sourceToHi, read.sourceToLo, sentBytes);
      const sourceLo = toAddLo(read.sourceToLo, sentBytes);
      if (!this.#user.prepareReadSource(read.sourceStag, sourceHi, sourceLo, size)) {
        return this.#waitForSource(sentBytes === 0);
      }
      const refusal = this.#user.gatherReadSource(
        read.sourceStag,
        sourceHi,
        sourceLo,
        size,
        ddp.bytes,
        at,
      );
      if (refusal !== AccessRefusal.none)
        return this.#failRequest(refusalError(refusal, 'remote'), request);
    }
    ddp.commit();
    request.sentBytes = sentBytes + size;
    // RDMAP-5.2.2-03 the slot is free before the last segment can reach the peer.
    if (last) this.#endResponse();
    return Step.framed;
  }

  #waitForSource(notBegun: boolean): Step {
    this.#responsesWait = true;
    if (notBegun) this.#source = Source.none;
    return Step.waiting;
  }

  // RDMAPX-5.2.2-07 RDMAPX-5.4-04 performed and answered in the order of the requests.
  #frameAtomicResponse(request: InboundRequest): Step {
    const ddp = this.#ddp;
    const { atomic } = request;
    const qn = QueueNumber.atomicResponse;
    const at = ddp.beginUntagged(true, ATOMIC_RESPONSE, 0, qn, 0, ATOMIC_RESPONSE_BYTES);
    if (at < 0) return Step.blocked;
    const refusal = this.#user.executeAtomic(atomic);
    // RDMAPX-8.2-02 RDMAPX-8.2-03
    if (refusal !== AccessRefusal.none)
      return this.#failRequest(refusalError(refusal, 'remote'), request);
    writeAtomicResponse(ddp.bytes, at, atomic.identifier, atomic.originalHi, atomic.originalLo);
    ddp.commit();
    this.#endResponse();
    return Step.framed;
  }

  #endResponse(): void {
    this.#irrq.shift();
    this.#source = Source.none;
  }

  // RDMAP-4.8-11 a Response's own failure may cut it short.
  #failRequest(error: ProtocolError, request: InboundRequest): Step {
    this.#policy.latchRequest(error, request);
    this.#source = Source.none;
    return this.step();
  }

  // RDMAP-5.4-01 RDMAP-4.8-01
  #frameTerminate(): Step {
    const ddp = this.#ddp;
    // Take the header from the policy only when there is room for it.
    const header = this.#policy.peek();
    assert(header !== undefined, 'no Terminate pending');
    const size = terminateSizeBytes(header);
    const at = ddp.beginUntagged(true, TERMINATE, 0, QueueNumber.terminate, 0, size);
    if (at < 0) return Step.blocked;
    emitTerminate(header, ddp.bytes, at);
    ddp.commit();
    this.#policy.sent();
    this.#terminated = true;
    return Step.framed;
  }
}
