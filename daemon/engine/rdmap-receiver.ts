/**
 * The RDMAP rules of inbound messages (RFC 5040 §5–7, RFC 7306 §5–8): opcodes, delivery order,
 * Send with Invalidate, Read and Atomic Requests into the IRRQ, Responses against the ORRQ.
 *
 * A Response has to answer the oldest outstanding request, segment by segment: STag, TO, length
 * and Last (RDMAP-5.2.2-06 allows the check, and nothing else would catch a peer that goes astray).
 */
import {
  ATOMIC_REQUEST_BYTES,
  ATOMIC_RESPONSE_BYTES,
  AtomicResponseField,
  IMMEDIATE_BYTES,
  isAtomicOpcode,
  readAtomicRequest,
} from '../wire/atomic-header.ts';
import { UNTAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import { copyOctets, readUint32 } from '../wire/octets.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import {
  OPCODES,
  QUEUE_COUNT,
  QueueNumber,
  RDMAP_VERSION,
  RDMAP_VERSION_SHIFT,
  RDMAPControl,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  readReadRequest,
} from '../wire/rdmap-header.ts';
import { parseTerminate, type ReceivedTerminate, TERMINATE_BYTES_MAX } from '../wire/terminate.ts';
import type { DDPReceiverUser } from './ddp-receiver.ts';
import { Fault, type InboundMessage, type StreamUser } from './placement.ts';
import {
  type InboundRequest,
  type InboundRequestQueue,
  type OutboundRequest,
  type OutboundRequestQueue,
  RequestKind,
} from './read-queues.ts';
import { toAddHi, toAddLo, toWraps } from './tagged-offset.ts';
import { faultError } from './terminate-policy.ts';

/** Target size of every atomic, octets (RDMAPX-5-01). */
const ATOMIC_TARGET_BYTES = 8;

/** `#sendOpcode` when no message of QN 0 is under way. */
const NO_MESSAGE = -1;

/** What siw does to a zero-length read that waited behind another one. */
const SIW_ZERO_READ = 'siw-queued-zero-length-read';

/** What a receiver is made with. */
export interface RDMAPReceiverOptions {
  readonly user: StreamUser;
  readonly irrq: InboundRequestQueue;
  readonly orrq: OutboundRequestQueue;
  /** False: the messages of RFC 7306 are unexpected opcodes (RDMAPX-1.1-03). */
  readonly extensionsEnabled: boolean;
}

/** The inbound half of RDMAP. */
export class RDMAPReceiver implements DDPReceiverUser {
  readonly #user: StreamUser;
  readonly #irrq: InboundRequestQueue;
  readonly #orrq: OutboundRequestQueue;
  /** Control octet without its reserved bits → queue it belongs to; -1 tagged, -2 unexpected. */
  readonly #queueOf = new Int8Array(16).fill(-2);
  /** Longest message that QN 1 takes. */
  readonly #requestBytesMax: number;
  /** Opcode of the message of QN 0 whose receive has begun. */
  #sendOpcode = NO_MESSAGE;
  /** A tagged message lacks its last segment. */
  #taggedOpen = false;
  #terminate: ReceivedTerminate | undefined = undefined;
  /** Octets of a message of QN 1 to 3 that came in several segments; made when first needed. */
  #assembly: Uint8Array | undefined = undefined;
  readonly #message: InboundMessage = {
    lengthBytes: 0,
    solicited: false,
    invalidates: false,
    invalidateStag: 0,
    hasImmediate: false,
    immediateHi: 0,
    immediateLo: 0,
  };

  constructor(options: RDMAPReceiverOptions) {
    this.#user = options.user;
    this.#irrq = options.irrq;
    this.#orrq = options.orrq;
    this.#requestBytesMax = options.extensionsEnabled ? ATOMIC_REQUEST_BYTES : READ_REQUEST_BYTES;
    OPCODES.forEach((entry, opcode) => {
      if (!entry.extension || options.extensionsEnabled) this.#queueOf[opcode] = entry.qn;
    });
  }

  // Getters

  /** The Terminate of the peer, once it has come. */
  get terminate(): ReceivedTerminate | undefined {
    return this.#terminate;
  }

  /** True while a tagged message lacks its last segment. */
  get midTaggedMessage(): boolean {
    return this.#taggedOpen;
  }

  // Inputs, called by DDP

  // RDMAP-7.2-01 RDMAP-7.2-02 RDMAP-7.2-03 RDMAPX-8.2-01 version first, then opcode.
  checkTagged(ulp: number): ProtocolError | undefined {
    const refused = this.#checkControl(ulp, -1);
    if (refused !== undefined) return refused;
    if ((ulp & RDMAPControl.opcode) === RDMAPOpcode.write) return undefined;
    // RDMAP-5.2.2-08 nothing outstanding, or an atomic is due first.
    const head = this.#orrq.head;
    if (head === undefined || head.kind !== RequestKind.read) {
      return new ProtocolError('rdmapUnexpectedOpcode', 'a Read Response that no Read asked for');
    }
    return undefined;
  }

  checkUntagged(ulp: number, qn: number): ProtocolError | undefined {
    const refused = this.#checkControl(ulp, qn);
    if (refused !== undefined) return refused;
    if (qn !== QueueNumber.send || this.#sendOpcode === NO_MESSAGE) return undefined;
    // DDP-4.3-04 a message is of one kind: its opcode may not change between segments.
    if (this.#sendOpcode === (ulp & RDMAPControl.opcode)) return undefined;
    return new ProtocolError('rdmapUnexpectedOpcode', 'the opcode changed within a message');
  }

  placeTagged(
    ulp: number,
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined {
    this.#taggedOpen = !last;
    if ((ulp & RDMAPControl.opcode) !== RDMAPOpcode.write) {
      return this.#placeReadResponse(stag, toHi, toLo, octets, start, length, last);
    }
    // DDP-5.2-11 STag and TO of a segment without payload are not looked at.
    // RDMAP-5.1-02 a Write is placed and never delivered.
    if (length === 0) return undefined;
    const fault = this.#user.placeWrite(stag, toHi, toLo, octets, start, length, last);
    return fault === Fault.none ? undefined : faultError(fault, 'tagged');
  }

  placeUntagged(
    qn: number,
    ulp: number,
    ulpWord: number,
    mo: number,
    octets: Uint8Array,
    segment: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined {
    const opcode = ulp & RDMAPControl.opcode;
    if (qn === QueueNumber.send) {
      return this.#placeSend(opcode, ulpWord, mo, octets, segment, length, last);
    }
    const payload = segment + UNTAGGED_HEADER_BYTES;
    if (mo === 0 && last) return this.#deliver(opcode, octets, payload, length, octets, segment);
    return this.#assemble(qn, opcode, mo, octets, segment, length, last);
  }

  #checkControl(ulp: number, qn: number): ProtocolError | undefined {
    // RDMAP-4.1-05 RDMAP-4.8-22. RDMAP-4.1-07 the two Rsv bits are ignored.
    if (ulp >>> RDMAP_VERSION_SHIFT !== RDMAP_VERSION) {
      return new ProtocolError('rdmapInvalidVersion', `version ${ulp >>> RDMAP_VERSION_SHIFT}`);
    }
    // RDMAP-4.8-23 IANA-3.4-01
    if (this.#queueOf[ulp & RDMAPControl.opcode] === qn) return undefined;
    return unexpectedOpcode(ulp & RDMAPControl.opcode, qn);
  }

  // QN 0: Sends and Immediate Data

  #placeSend(
    opcode: number,
    ulpWord: number,
    mo: number,
    octets: Uint8Array,
    segment: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined {
    const user = this.#user;
    const start = segment + UNTAGGED_HEADER_BYTES;
    if (opcode >= RDMAPOpcode.immediate) {
      // RDMAPX-6.3-05 exactly 8 octets, told before a receive is taken for a wrong length.
      const whole = mo + length;
      if (whole > IMMEDIATE_BYTES || (last && whole !== IMMEDIATE_BYTES)) {
        return new ProtocolError('rdmapOperationUnspecified', `Immediate Data of ${whole} octets`);
      }
      this.#keepImmediate(mo, octets, start, length);
    }
    if (this.#sendOpcode === NO_MESSAGE) {
      // RDMAP-5.3-02 RDMAPX-6.3-02 DDP-7.1-15: also a zero-length message takes one receive.
      // DDP-7.1-08 none posted: the stream ends at once, rather than wait for one.
      const fault = user.beginReceive();
      if (fault !== Fault.none) return faultError(fault, 'untagged');
      this.#sendOpcode = opcode;
    }
    if (length > 0) {
      const fault = user.placeReceive(mo, octets, start, length);
      if (fault !== Fault.none) return faultError(fault, 'untagged');
    }
    // DDP-4.1-08 a segment without L is placed, and nothing is delivered.
    if (!last) return undefined;
    this.#sendOpcode = NO_MESSAGE;
    return this.#completeSend(opcode, ulpWord, mo + length);
  }

  // DDP-5.4-02 DDP-5.4-03 RDMAP-5.5-04: on an in-order stream all earlier messages are placed.
  #completeSend(opcode: number, ulpWord: number, lengthBytes: number): ProtocolError | undefined {
    const message = this.#message;
    message.lengthBytes = lengthBytes;
    message.hasImmediate = opcode >= RDMAPOpcode.immediate;
    message.solicited =
      opcode === RDMAPOpcode.sendSolicited ||
      opcode === RDMAPOpcode.sendSolicitedInvalidate ||
      opcode === RDMAPOpcode.immediateSolicited;
    message.invalidates =
      opcode === RDMAPOpcode.sendInvalidate || opcode === RDMAPOpcode.sendSolicitedInvalidate;
    // RDMAP-4.1-10 RDMAPX-4.1-03 the field is ignored on every other message.
    message.invalidateStag = message.invalidates ? ulpWord : 0;
    // RDMAP-5.3-09 RDMAP-5.3-11 the RNIC invalidates before the consumer sees the message.
    const fault = this.#user.completeReceive(message);
    this.#irrq.release();
    return fault === Fault.none ? undefined : faultError(fault, 'invalidate');
  }

  #keepImmediate(mo: number, octets: Uint8Array, start: number, length: number): void {
    const message = this.#message;
    if (mo === 0 && length === IMMEDIATE_BYTES) {
      message.immediateHi = readUint32(octets, start);
      message.immediateLo = readUint32(octets, start + 4);
      return;
    }
    if (mo === 0) message.immediateHi = message.immediateLo = 0;
    for (let i = 0; i < length; i++) {
      const shift = 24 - ((mo + i) & 3) * 8;
      const bits = (octets[start + i] ?? 0) << shift;
      if (mo + i < 4) message.immediateHi = (message.immediateHi | bits) >>> 0;
      else message.immediateLo = (message.immediateLo | bits) >>> 0;
    }
  }

  // Read Responses

  #placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined {
    const request = this.#orrq.head;
    // `checkTagged` has seen a Read at the head.
    if (request === undefined) return new ProtocolError('rdmapUnexpectedOpcode');
    const received = request.receivedBytes;
    if (length > 0) {
      const astray = checkResponse(request, stag, toHi, toLo, length);
      if (astray !== undefined) return astray;
      const fault = this.#user.placeReadResponse(stag, toHi, toLo, octets, start, length);
      if (fault !== Fault.none) return faultError(fault, 'tagged');
      request.receivedBytes = received + length;
    }
    // RDMAP-5.5-13 nothing completes before the last segment.
    if (!last) return undefined;
    if (request.receivedBytes !== request.lengthBytes) {
      const text = `a Read Response of ${request.receivedBytes} octets, not ${request.lengthBytes}`;
      return new ProtocolError('ddpBounds', text);
    }
    const { internal } = request;
    this.#orrq.shift();
    // RDMAP-5.2.2-04 RDMAP-5.5-14 delivered: the oldest Read is complete.
    if (!internal) this.#user.readCompleted();
    return undefined;
  }

  // QN 1 to 3: messages for RDMAP itself, which take no receive of the consumer

  /** Puts together a message of several segments; delivers it when the last one is there. */
  #assemble(
    qn: number,
    opcode: number,
    mo: number,
    octets: Uint8Array,
    segment: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined {
    this.#assembly ??= new Uint8Array(QUEUE_COUNT * TERMINATE_BYTES_MAX);
    const base = qn * TERMINATE_BYTES_MAX;
    const kept = Math.min(length, TERMINATE_BYTES_MAX - mo);
    const payload = segment + UNTAGGED_HEADER_BYTES;
    if (kept > 0) copyOctets(octets, payload, payload + kept, this.#assembly, base + mo);
    if (!last) {
      // A longer message than any buffer of these queues is reported when it gets too long.
      const open = mo + length > TERMINATE_BYTES_MAX && qn !== QueueNumber.terminate;
      return open ? new ProtocolError('ddpTooLong') : undefined;
    }
    return this.#deliver(opcode, this.#assembly, base, mo + length, octets, segment);
  }

  /**
   * A whole message of `length` octets at `octets[payload]`; of one that was put together and is
   * longer than any buffer of its queue, only what fits is there. `header` is where its last
   * segment starts in `headerOctets`.
   */
  #deliver(
    opcode: number,
    octets: Uint8Array,
    payload: number,
    length: number,
    headerOctets: Uint8Array,
    header: number,
  ): ProtocolError | undefined {
    switch (opcode) {
      case RDMAPOpcode.terminate:
        // RDMAP-5.4-02 RDMAP-5.4-03
        return this.#receiveTerminate(octets, payload, Math.min(length, TERMINATE_BYTES_MAX));
      case RDMAPOpcode.atomicResponse:
        return this.#receiveAtomicResponse(octets, payload, length);
      default:
        return this.#receiveRequest(opcode, octets, payload, length, headerOctets, header);
    }
  }

  #receiveTerminate(
    octets: Uint8Array,
    payload: number,
    length: number,
  ): ProtocolError | undefined {
    this.#terminate = parseTerminate(octets, payload, length);
    // RDMAP-5.4-04 surfaced here; the policy sends nothing in reply.
    if (this.#terminate !== undefined) return undefined;
    return new ProtocolError('rdmapOperationUnspecified', `a Terminate of ${length} octets`);
  }

  #receiveAtomicResponse(
    octets: Uint8Array,
    payload: number,
    length: number,
  ): ProtocolError | undefined {
    const request = this.#orrq.head;
    // RDMAPX-5.2.2-06 nothing outstanding: no buffer of QN 3.
    if (request === undefined) return new ProtocolError('ddpNoBuffer', 'no atomic is outstanding');
    if (request.kind !== RequestKind.atomic) {
      return new ProtocolError(
        'rdmapUnexpectedOpcode',
        'an Atomic Response before a Read Response',
      );
    }
    if (length !== ATOMIC_RESPONSE_BYTES) {
      return length > ATOMIC_RESPONSE_BYTES
        ? new ProtocolError('ddpTooLong', `an Atomic Response of ${length} octets`)
        : new ProtocolError('rdmapOperationUnspecified', `an Atomic Response of ${length} octets`);
    }
    const identifier = readUint32(octets, payload + AtomicResponseField.identifier);
    // RDMAPX-5.2.1-04
    if (identifier !== request.identifier) {
      const text = `Atomic Response ${identifier}, ${request.identifier} is due`;
      return new ProtocolError('rdmapOperationUnspecified', text);
    }
    this.#orrq.shift();
    // RDMAPX-5.2.2-05
    this.#user.atomicCompleted(
      readUint32(octets, payload + AtomicResponseField.originalHi),
      readUint32(octets, payload + AtomicResponseField.originalLo),
    );
    return undefined;
  }

  #receiveRequest(
    opcode: number,
    octets: Uint8Array,
    payload: number,
    length: number,
    headerOctets: Uint8Array,
    headerAt: number,
  ): ProtocolError | undefined {
    const isRead = opcode === RDMAPOpcode.readRequest;
    // RDMAP-4.4-06 RDMAPX-5.2.1-13
    if (length !== (isRead ? READ_REQUEST_BYTES : ATOMIC_REQUEST_BYTES)) {
      const text = `a request of ${length} octets`;
      return length > this.#requestBytesMax
        ? new ProtocolError('ddpTooLong', text)
        : new ProtocolError('rdmapOperationUnspecified', text);
    }
    // RDMAP-6.1-04 RDMAP-5.2.2-02 RDMAPX-5.2.2-03 QN 1 has IRD buffers.
    const request = this.#irrq.spare();
    if (request === undefined) return new ProtocolError('ddpNoBuffer', 'more requests than IRD');
    request.kind = isRead ? RequestKind.read : RequestKind.atomic;
    request.sentBytes = 0;
    request.segmentLength = UNTAGGED_HEADER_BYTES + length;
    copyOctets(headerOctets, headerAt, headerAt + UNTAGGED_HEADER_BYTES, request.ddpHeader, 0);
    const refused = isRead
      ? this.#readRead(request, octets, payload)
      : readAtomic(request, octets, payload);
    if (refused !== undefined) return refused;
    // RDMAP-5.5-06 RDMAPX-5.4-02 not started before every earlier message is delivered: a Send
    // that a peer has interleaved with its request is waited for.
    this.#irrq.push(this.#sendOpcode !== NO_MESSAGE);
    return undefined;
  }

  #readRead(
    request: InboundRequest,
    octets: Uint8Array,
    payload: number,
  ): ProtocolError | undefined {
    const { read } = request;
    readReadRequest(octets, payload, read);
    // RDMAP-5.2.1-10 the source of a zero-length read is not validated.
    if (read.size === 0) return undefined;
    // RDMAP-4.8-19 RDMAP-7.2-05 wrap before bounds.
    if (toWraps(read.sourceToHi, read.sourceToLo, read.size)) {
      return faultError(Fault.toWrap, 'remote');
    }
    // RDMAP-5.2.1-09 RDMAP-4.4-03 the source is ours to check, the sink is not.
    const { sourceStag, sourceToHi, sourceToLo, size } = read;
    const fault = this.#user.checkReadSource(sourceStag, sourceToHi, sourceToLo, size);
    return fault === Fault.none ? undefined : faultError(fault, 'remote');
  }
}

function readAtomic(
  request: InboundRequest,
  octets: Uint8Array,
  payload: number,
): ProtocolError | undefined {
  const { atomic } = request;
  readAtomicRequest(octets, payload, atomic);
  // RDMAPX-5.2.1-10
  if (!isAtomicOpcode(atomic.operation)) {
    return new ProtocolError('rdmapUnexpectedOpcode', `atomic operation ${atomic.operation}`);
  }
  // RDMAPX-8.2-03
  if (toWraps(atomic.toHi, atomic.toLo, ATOMIC_TARGET_BYTES)) {
    return faultError(Fault.toWrap, 'remote');
  }
  return undefined;
}

/** Does a Response segment with payload continue `request`? */
function checkResponse(
  request: OutboundRequest,
  stag: number,
  toHi: number,
  toLo: number,
  length: number,
): ProtocolError | undefined {
  const received = request.receivedBytes;
  if (stag !== request.sinkStag) {
    return new ProtocolError('ddpInvalidStag', 'a Read Response to another STag');
  }
  if (received + length > request.lengthBytes) {
    return new ProtocolError(
      'ddpBounds',
      `a Read Response longer than the ${request.lengthBytes} octets asked for`,
      request.lengthBytes === 0 ? SIW_ZERO_READ : undefined,
    );
  }
  if (
    toLo !== toAddLo(request.sinkToLo, received) ||
    toHi !== toAddHi(request.sinkToHi, request.sinkToLo, received)
  ) {
    return new ProtocolError('ddpBounds', 'a Read Response at another TO');
  }
  return undefined;
}

function unexpectedOpcode(opcode: number, qn: number): ProtocolError {
  const name = OPCODES[opcode]?.name ?? `opcode ${opcode}`;
  const place = qn < 0 ? 'in a tagged segment' : `on QN ${qn}`;
  return new ProtocolError('rdmapUnexpectedOpcode', `${name} ${place}`);
}
