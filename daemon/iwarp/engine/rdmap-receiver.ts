/**
 * The RDMAP rules of inbound messages (RFC 5040 §5–7, RFC 7306 §5–8): opcodes, delivery order, Send
 * with Invalidate, Read and Atomic Requests into the IRRQ, Responses against the ORRQ.
 *
 * A Response must answer the oldest outstanding request, segment by segment: STag, TO, length and
 * Last. RDMAP-5.2.2-06 allows this check, and no other would detect a wrong Response.
 */
import { copyBytes, readUint32 } from '#base/checked-bytes';
import { AccessRefusal, InboundMessage, type WireUser } from '#daemon/rnic/wire-port';
import {
  ATOMIC_REQUEST_BYTES,
  ATOMIC_RESPONSE_BYTES,
  AtomicResponseField,
  IMMEDIATE_BYTES,
  isAtomicOpcode,
  readAtomicRequest,
} from '../wire/atomic-header.ts';
import {
  type TaggedHeader,
  UNTAGGED_HEADER_BYTES,
  type UntaggedHeader,
} from '../wire/ddp-header.ts';
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
import {
  type InboundRequest,
  type InboundRequestQueue,
  type OutboundRequest,
  type OutboundRequestQueue,
  RequestKind,
} from './read-queues.ts';
import { toAddHi, toAddLo, toWraps } from './tagged-offset.ts';
import { refusalError } from './terminate-policy.ts';

/** Target size of every atomic, bytes (RDMAPX-5-01). */
const ATOMIC_TARGET_BYTES = 8;

/** `#sendOpcode` when no message on QN 0 is in progress. */
const NO_MESSAGE = -1;

/** siw's treatment of a zero-length read that was queued after another one. */
const SIW_ZERO_READ = 'siw-queued-zero-length-read';

interface RDMAPReceiverOptions {
  readonly user: WireUser;
  readonly irrq: InboundRequestQueue;
  readonly orrq: OutboundRequestQueue;
  /** False: the messages of RFC 7306 are unexpected opcodes (RDMAPX-1.1-03). */
  readonly extensionsEnabled: boolean;
}

const QUEUES = queuesOf(false);
const QUEUES_WITH_EXTENSIONS = queuesOf(true);

function queuesOf(extensionsEnabled: boolean): Int8Array {
  const queues = new Int8Array(16).fill(-2);
  OPCODES.forEach((entry, opcode) => {
    if (!entry.extension || extensionsEnabled) queues[opcode] = entry.qn;
  });
  return queues;
}

export class RDMAPReceiver implements DDPReceiverUser {
  readonly #user: WireUser;
  readonly #irrq: InboundRequestQueue;
  readonly #orrq: OutboundRequestQueue;
  /** Control byte without its reserved bits → its queue; -1 tagged, -2 unexpected. */
  readonly #queueOf: Int8Array;
  /** Longest message accepted on QN 1. */
  readonly #requestBytesMax: number;
  /** Opcode of the message on QN 0 whose receive has begun. */
  #sendOpcode = NO_MESSAGE;
  /** True while a tagged message lacks its last segment. */
  #taggedOpen = false;
  #terminate: ReceivedTerminate | undefined = undefined;
  /** Buffer for a message on QN 1 to 3 in several segments; allocated when first needed. */
  #assembly: Uint8Array | undefined = undefined;
  /** Made with the first message. */
  #message: InboundMessage | undefined = undefined;

  constructor(options: RDMAPReceiverOptions) {
    this.#user = options.user;
    this.#irrq = options.irrq;
    this.#orrq = options.orrq;
    this.#requestBytesMax = options.extensionsEnabled ? ATOMIC_REQUEST_BYTES : READ_REQUEST_BYTES;
    this.#queueOf = options.extensionsEnabled ? QUEUES_WITH_EXTENSIONS : QUEUES;
  }

  // Getters

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
    // RDMAP-5.2.2-08 nothing is outstanding, or the oldest request is an atomic.
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
    // DDP-4.3-04 a message has one kind: its opcode must not change between segments.
    if (this.#sendOpcode === (ulp & RDMAPControl.opcode)) return undefined;
    return new ProtocolError('rdmapUnexpectedOpcode', 'the opcode changed within a message');
  }

  placeTagged(
    header: Readonly<TaggedHeader>,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    const { last } = header;
    this.#taggedOpen = !last;
    if ((header.ulp & RDMAPControl.opcode) !== RDMAPOpcode.write) {
      return this.#placeReadResponse(header, bytes, start, length);
    }
    // DDP-5.2-11 STag and TO of a segment without payload are ignored. RDMAP-5.1-02 a Write is
    // placed and never delivered.
    if (length === 0) return undefined;
    const { stag, toHi, toLo } = header;
    const refusal = this.#user.placeWrite(stag, toHi, toLo, bytes, start, length);
    if (refusal !== AccessRefusal.none) return refusalError(refusal, 'tagged');
    if (last) this.#user.writeCompleted();
    return undefined;
  }

  placeUntagged(
    header: Readonly<UntaggedHeader>,
    bytes: Uint8Array,
    segment: number,
    length: number,
  ): ProtocolError | undefined {
    if (header.qn === QueueNumber.send) return this.#placeSend(header, bytes, segment, length);
    if (header.mo !== 0 || !header.last) return this.#assemble(header, bytes, segment, length);
    const payload = segment + UNTAGGED_HEADER_BYTES;
    const opcode = header.ulp & RDMAPControl.opcode;
    return this.#deliver(opcode, bytes, payload, length, bytes, segment);
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
    header: Readonly<UntaggedHeader>,
    bytes: Uint8Array,
    segment: number,
    length: number,
  ): ProtocolError | undefined {
    const { mo, last } = header;
    const opcode = header.ulp & RDMAPControl.opcode;
    const user = this.#user;
    const start = segment + UNTAGGED_HEADER_BYTES;
    if (opcode >= RDMAPOpcode.immediate) {
      // RDMAPX-6.3-05 exactly 8 bytes; checked first, so a wrong length takes no receive.
      const whole = mo + length;
      if (whole > IMMEDIATE_BYTES || (last && whole !== IMMEDIATE_BYTES)) {
        return new ProtocolError('rdmapOperationUnspecified', `Immediate Data of ${whole} bytes`);
      }
      this.#keepImmediate(mo, bytes, start, length);
    }
    if (this.#sendOpcode === NO_MESSAGE) {
      // RDMAP-5.3-02 RDMAPX-6.3-02 DDP-7.1-15: a zero-length message takes a receive, too.
      // DDP-7.1-08 with none posted the stream ends at once instead of waiting for one.
      const refusal = user.beginReceive();
      if (refusal !== AccessRefusal.none) return refusalError(refusal, 'untagged');
      this.#sendOpcode = opcode;
    }
    if (length > 0) {
      const refusal = user.placeReceive(mo, bytes, start, length);
      if (refusal !== AccessRefusal.none) return refusalError(refusal, 'untagged');
    }
    // DDP-4.1-08 a segment without L is placed and not delivered.
    if (!last) return undefined;
    this.#sendOpcode = NO_MESSAGE;
    return this.#completeSend(opcode, header.ulpWord, mo + length);
  }

  // DDP-5.4-02 DDP-5.4-03 RDMAP-5.5-04: on an in-order stream all earlier messages are placed.
  #completeSend(opcode: number, ulpWord: number, lengthBytes: number): ProtocolError | undefined {
    this.#message ??= new InboundMessage();
    const message = this.#message;
    message.lengthBytes = lengthBytes;
    message.hasImmediate = opcode >= RDMAPOpcode.immediate;
    message.solicited =
      opcode === RDMAPOpcode.sendSolicited ||
      opcode === RDMAPOpcode.sendSolicitedInvalidate ||
      opcode === RDMAPOpcode.immediateSolicited;
    message.invalidates =
      opcode === RDMAPOpcode.sendInvalidate || opcode === RDMAPOpcode.sendSolicitedInvalidate;
    // RDMAP-4.1-10 RDMAPX-4.1-03 every other message ignores the field.
    message.invalidateStag = message.invalidates ? ulpWord : 0;
    // RDMAP-5.3-09 RDMAP-5.3-11 the RNIC invalidates before the consumer sees the message.
    const refusal = this.#user.completeReceive(message);
    this.#irrq.release();
    return refusal === AccessRefusal.none ? undefined : refusalError(refusal, 'invalidate');
  }

  #keepImmediate(mo: number, bytes: Uint8Array, start: number, length: number): void {
    this.#message ??= new InboundMessage();
    const message = this.#message;
    if (mo === 0 && length === IMMEDIATE_BYTES) {
      message.immediateHi = readUint32(bytes, start);
      message.immediateLo = readUint32(bytes, start + 4);
      return;
    }
    if (mo === 0) message.immediateHi = message.immediateLo = 0;
    for (let i = 0; i < length; i++) {
      const shift = 24 - ((mo + i) & 3) * 8;
      const bits = (bytes[start + i] ?? 0) << shift;
      if (mo + i < 4) message.immediateHi = (message.immediateHi | bits) >>> 0;
      else message.immediateLo = (message.immediateLo | bits) >>> 0;
    }
  }

  // Read Responses

  #placeReadResponse(
    header: Readonly<TaggedHeader>,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    const request = this.#orrq.head;
    // `checkTagged` has found a Read at the head.
    if (request === undefined) return new ProtocolError('rdmapUnexpectedOpcode');
    const received = request.receivedBytes;
    if (length > 0) {
      const { stag, toHi, toLo } = header;
      const astray = checkResponse(request, stag, toHi, toLo, length);
      if (astray !== undefined) return astray;
      const refusal = this.#user.placeReadResponse(stag, toHi, toLo, bytes, start, length);
      if (refusal !== AccessRefusal.none) return refusalError(refusal, 'tagged');
      request.receivedBytes = received + length;
    }
    // RDMAP-5.5-13 nothing completes before the last segment.
    if (!header.last) return undefined;
    if (request.receivedBytes !== request.lengthBytes) {
      const text = `a Read Response of ${request.receivedBytes} bytes, not ${request.lengthBytes}`;
      return new ProtocolError('ddpBounds', text);
    }
    const { internal } = request;
    this.#orrq.shift();
    // RDMAP-5.2.2-04 RDMAP-5.5-14 delivered: the oldest Read is complete.
    if (!internal) this.#user.readCompleted();
    return undefined;
  }

  // QN 1 to 3: messages for RDMAP, which take no receive of the consumer

  /** Assembles a message of several segments; delivers it with the last one. */
  #assemble(
    header: Readonly<UntaggedHeader>,
    bytes: Uint8Array,
    segment: number,
    length: number,
  ): ProtocolError | undefined {
    const { qn, mo } = header;
    this.#assembly ??= new Uint8Array(QUEUE_COUNT * TERMINATE_BYTES_MAX);
    const base = qn * TERMINATE_BYTES_MAX;
    const kept = Math.min(length, TERMINATE_BYTES_MAX - mo);
    const payload = segment + UNTAGGED_HEADER_BYTES;
    if (kept > 0) copyBytes(bytes, payload, payload + kept, this.#assembly, base + mo);
    if (!header.last) {
      // A message longer than any buffer of these queues is reported when it exceeds the limit.
      const open = mo + length > TERMINATE_BYTES_MAX && qn !== QueueNumber.terminate;
      return open ? new ProtocolError('ddpTooLong') : undefined;
    }
    const opcode = header.ulp & RDMAPControl.opcode;
    return this.#deliver(opcode, this.#assembly, base, mo + length, bytes, segment);
  }

  /**
   * Delivers a message of `length` bytes at `bytes[payload]`. Of an assembled one longer than any
   * buffer of its queue, only the bytes that fit are there. Its last segment's header starts at
   * `header` in `headerBytes`.
   */
  #deliver(
    opcode: number,
    bytes: Uint8Array,
    payload: number,
    length: number,
    headerBytes: Uint8Array,
    header: number,
  ): ProtocolError | undefined {
    switch (opcode) {
      case RDMAPOpcode.terminate:
        // RDMAP-5.4-02 RDMAP-5.4-03
        return this.#receiveTerminate(bytes, payload, Math.min(length, TERMINATE_BYTES_MAX));
      case RDMAPOpcode.atomicResponse:
        return this.#receiveAtomicResponse(bytes, payload, length);
      default:
        return this.#receiveRequest(opcode, bytes, payload, length, headerBytes, header);
    }
  }

  #receiveTerminate(bytes: Uint8Array, payload: number, length: number): ProtocolError | undefined {
    this.#terminate = parseTerminate(bytes, payload, length);
    // RDMAP-5.4-04 reported here; the policy sends nothing in reply.
    if (this.#terminate !== undefined) return undefined;
    return new ProtocolError('rdmapOperationUnspecified', `a Terminate of ${length} bytes`);
  }

  #receiveAtomicResponse(
    bytes: Uint8Array,
    payload: number,
    length: number,
  ): ProtocolError | undefined {
    const request = this.#orrq.head;
    // RDMAPX-5.2.2-06 nothing is outstanding, so QN 3 has no buffer.
    if (request === undefined) return new ProtocolError('ddpNoBuffer', 'no atomic is outstanding');
    if (request.kind !== RequestKind.atomic) {
      return new ProtocolError(
        'rdmapUnexpectedOpcode',
        'an Atomic Response before a Read Response',
      );
    }
    if (length !== ATOMIC_RESPONSE_BYTES) {
      return length > ATOMIC_RESPONSE_BYTES
        ? new ProtocolError('ddpTooLong', `an Atomic Response of ${length} bytes`)
        : new ProtocolError('rdmapOperationUnspecified', `an Atomic Response of ${length} bytes`);
    }
    const identifier = readUint32(bytes, payload + AtomicResponseField.identifier);
    // RDMAPX-5.2.1-04
    if (identifier !== request.identifier) {
      const text = `Atomic Response ${identifier}, ${request.identifier} is due`;
      return new ProtocolError('rdmapOperationUnspecified', text);
    }
    this.#orrq.shift();
    // RDMAPX-5.2.2-05
    this.#user.atomicCompleted(
      readUint32(bytes, payload + AtomicResponseField.originalHi),
      readUint32(bytes, payload + AtomicResponseField.originalLo),
    );
    return undefined;
  }

  #receiveRequest(
    opcode: number,
    bytes: Uint8Array,
    payload: number,
    length: number,
    headerBytes: Uint8Array,
    headerAt: number,
  ): ProtocolError | undefined {
    const isRead = opcode === RDMAPOpcode.readRequest;
    // RDMAP-4.4-06 RDMAPX-5.2.1-13
    if (length !== (isRead ? READ_REQUEST_BYTES : ATOMIC_REQUEST_BYTES)) {
      const text = `a request of ${length} bytes`;
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
    copyBytes(headerBytes, headerAt, headerAt + UNTAGGED_HEADER_BYTES, request.ddpHeader, 0);
    const refused = isRead
      ? this.#readRead(request, bytes, payload)
      : readAtomic(request, bytes, payload);
    if (refused !== undefined) return refused;
    // RDMAP-5.5-06 RDMAPX-5.4-02 must not start before every earlier message is delivered: a
    // request interleaved with a Send waits for that Send.
    this.#irrq.push(this.#sendOpcode !== NO_MESSAGE);
    return undefined;
  }

  #readRead(
    request: InboundRequest,
    bytes: Uint8Array,
    payload: number,
  ): ProtocolError | undefined {
    const { read } = request;
    readReadRequest(bytes, payload, read);
    // RDMAP-5.2.1-10 the source of a zero-length read is not validated.
    if (read.size === 0) return undefined;
    // RDMAP-4.8-19 RDMAP-7.2-05 wrap before bounds.
    if (toWraps(read.sourceToHi, read.sourceToLo, read.size)) {
      return refusalError(AccessRefusal.toWrap, 'remote');
    }
    // RDMAP-5.2.1-09 RDMAP-4.4-03 we check the source, not the sink.
    const { sourceStag, sourceToHi, sourceToLo, size } = read;
    const refusal = this.#user.checkReadSource(sourceStag, sourceToHi, sourceToLo, size);
    return refusal === AccessRefusal.none ? undefined : refusalError(refusal, 'remote');
  }
}

function readAtomic(
  request: InboundRequest,
  bytes: Uint8Array,
  payload: number,
): ProtocolError | undefined {
  const { atomic } = request;
  readAtomicRequest(bytes, payload, atomic);
  // RDMAPX-5.2.1-10
  if (!isAtomicOpcode(atomic.operation)) {
    return new ProtocolError('rdmapUnexpectedOpcode', `atomic operation ${atomic.operation}`);
  }
  // RDMAPX-8.2-03
  if (toWraps(atomic.toHi, atomic.toLo, ATOMIC_TARGET_BYTES)) {
    return refusalError(AccessRefusal.toWrap, 'remote');
  }
  return undefined;
}

/** Checks that a Response segment with payload continues `request`. */
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
      `a Read Response longer than the ${request.lengthBytes} bytes asked for`,
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
