/**
 * Decides the consequences of a stream's first error: its error code, which headers its Terminate copies, and
 * whether a Terminate may be sent.
 *
 * Only the first error counts, and one Terminate is sent (RFC 5040 §5.4, §7.1). A Terminate, a lost
 * connection or a failed startup is never answered by one.
 */
import { readUint32 } from '#base/checked-bytes';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { DDPControl, ddpHeaderBytes, UNTAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import {
  QueueNumber,
  RDMAPControl,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  writeReadRequest,
} from '../wire/rdmap-header.ts';
import {
  type TerminateErrorName,
  type TerminateHeader,
  TerminateLayer,
} from '../wire/terminate.ts';
import { type InboundRequest, RequestKind } from './read-queues.ts';
import { to64 } from './tagged-offset.ts';

/** Error types of RDMAP (RFC 5040 §4.8). */
const ETYPE_LOCAL_CATASTROPHIC = 0;
const ETYPE_REMOTE_PROTECTION = 1;

/** Which check of the RNIC failed; selects the code that the RFCs assign to a refusal there. */
type RefusalPlace = 'tagged' | 'untagged' | 'remote' | 'invalidate';

/** The codes at a place; `other` for the refusals without one. */
type RefusalCodes = Readonly<Partial<Record<AccessRefusal, TerminateErrorName>>> & {
  readonly other: TerminateErrorName;
};

const REFUSAL_CODES: Readonly<Record<RefusalPlace, RefusalCodes>> = {
  /** Placement of a tagged segment: RDMA Write, or a Read Response at its sink. */
  // DDP-7.1-09 DDP-7.1-10 DDP-7.1-11 DDP-7.1-12 DDP-7.1-14: DDP has no code for access rights, so a
  // missing right is an invalid STag, as with siw.
  tagged: {
    [AccessRefusal.stagInvalid]: 'ddpInvalidStag',
    [AccessRefusal.stagNotAssociated]: 'ddpNotAssociated',
    [AccessRefusal.bounds]: 'ddpBounds',
    [AccessRefusal.access]: 'ddpInvalidStag',
    [AccessRefusal.toWrap]: 'ddpToWrap',
    [AccessRefusal.messageTooLong]: 'ddpBounds',
    other: 'ddpLocalCatastrophic',
  },
  /** Placement of an untagged segment: an error in our own receive is local. */
  // DDP-7.1-02 DDP-7.1-03 DDP-7.1-04
  untagged: {
    [AccessRefusal.bounds]: 'ddpInvalidMo',
    [AccessRefusal.noBuffer]: 'ddpNoBuffer',
    [AccessRefusal.messageTooLong]: 'ddpTooLong',
    other: 'ddpLocalCatastrophic',
  },
  /** Source of a Read Request, and target of an Atomic Request. */
  // RDMAP-7.2-05 RDMAP-4.8-15 to RDMAP-4.8-19, RDMAPX-8.2-02 RDMAPX-8.2-03
  remote: {
    [AccessRefusal.stagInvalid]: 'rdmapInvalidStag',
    [AccessRefusal.stagNotAssociated]: 'rdmapNotAssociated',
    [AccessRefusal.bounds]: 'rdmapBounds',
    [AccessRefusal.access]: 'rdmapAccess',
    [AccessRefusal.toWrap]: 'rdmapToWrap',
    [AccessRefusal.noBuffer]: 'rdmapProtectionUnspecified',
    [AccessRefusal.messageTooLong]: 'rdmapBounds',
    [AccessRefusal.cannotInvalidate]: 'rdmapProtectionUnspecified',
    [AccessRefusal.memoryLost]: 'rdmapProtectionUnspecified',
    [AccessRefusal.misaligned]: 'rdmapStreamCatastrophic',
    // The request is valid: the peer flushes it, as when a connection ends otherwise.
    other: 'rdmapLocalCatastrophic',
  },
  /** Delivery of a Send: the STag to invalidate, else a local error. */
  // RDMAP-4.8-20 RDMAP-5.3-10 RDMAP-7.2-04: an STag that is not valid at all is reported as such.
  invalidate: {
    [AccessRefusal.stagInvalid]: 'rdmapInvalidStag',
    [AccessRefusal.stagNotAssociated]: 'rdmapCannotInvalidate',
    [AccessRefusal.access]: 'rdmapCannotInvalidate',
    [AccessRefusal.cannotInvalidate]: 'rdmapCannotInvalidate',
    other: 'rdmapLocalCatastrophic',
  },
};

const REFUSAL_TEXTS: Readonly<Record<Exclude<AccessRefusal, 0>, string>> = {
  [AccessRefusal.stagInvalid]: 'the STag names no valid memory',
  [AccessRefusal.stagNotAssociated]: 'the STag belongs to another protection domain or stream',
  [AccessRefusal.bounds]: 'out of bounds',
  [AccessRefusal.access]: 'the access right was not given',
  [AccessRefusal.toWrap]: 'offset and length pass 2^64',
  [AccessRefusal.noBuffer]: 'no receive is posted',
  [AccessRefusal.messageTooLong]: 'longer than the receive',
  [AccessRefusal.cannotInvalidate]: 'the STag may not be invalidated by the peer',
  [AccessRefusal.memoryLost]: 'the memory went away',
  [AccessRefusal.misaligned]: 'the target is not aligned to 8 bytes',
  [AccessRefusal.ownerGone]: 'the process of the memory ended',
  [AccessRefusal.receiveInvalid]: 'the receive names memory that its queue pair may not use',
  [AccessRefusal.notPermitted]: 'the queue pair does not permit this request',
};

/** The error that the RFCs assign to `refusal` at `place`. */
export function refusalError(
  refusal: Exclude<AccessRefusal, 0>,
  place: RefusalPlace,
): ProtocolError {
  const codes = REFUSAL_CODES[place];
  return new ProtocolError(codes[refusal] ?? codes.other, REFUSAL_TEXTS[refusal]);
}

/** Latches the first error of a stream. */
export class TerminatePolicy {
  #error: ProtocolError | undefined = undefined;
  #pending: TerminateHeader | undefined = undefined;

  /** The first error, if any. */
  get error(): ProtocolError | undefined {
    return this.#error;
  }

  /** True when a Terminate is waiting to be sent. */
  get pending(): boolean {
    return this.#pending !== undefined;
  }

  /** Latches an error of the segment of `length` bytes at `start`. False if there was one before. */
  // RDMAP-7.1-03 RDMAP-7.1-04 RDMAP-7.1-05 RDMAPX-8.1-02
  latchSegment(error: ProtocolError, bytes: Uint8Array, start: number, length: number): boolean {
    if (this.#error !== undefined) return false;
    this.#error = error;
    // RDMAP-5.4-04 no Terminate answers a Terminate, valid or not.
    if (!error.sendable || isTerminate(bytes, start, length)) return true;
    const headerBytes = length === 0 ? 0 : ddpHeaderBytes(bytes[start] ?? 0);
    // DDP-4.4-02 a segment shorter than its header has none to copy.
    if (!copiesHeaders(error) || headerBytes === 0 || length < headerBytes) {
      this.#pending = withoutCopies(error);
      return true;
    }
    // RDMAP-4.8-09 RDMAP-4.8-34 only failed Read Requests copy the RDMA header.
    const withRead =
      error.layer === TerminateLayer.rdmap &&
      error.etype === ETYPE_REMOTE_PROTECTION &&
      length === UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES &&
      opcodeOf(bytes, start) === RDMAPOpcode.readRequest;
    this.#pending = {
      layer: error.layer,
      etype: error.etype,
      code: error.code,
      // RDMAP-4.8-06 the ULPDU's length, header and payload.
      segmentLength: length,
      // RDMAP-4.8-07 exactly as received.
      ddpHeader: bytes.slice(start, start + headerBytes),
      rdmaHeader: withRead ? bytes.slice(start + headerBytes, start + length) : undefined,
    };
    return true;
  }

  /** Latches an error found while answering `request`. False if there was one before. */
  latchRequest(error: ProtocolError, request: InboundRequest): boolean {
    if (this.#error !== undefined) return false;
    this.#error = error;
    const withRead = request.kind === RequestKind.read && error.etype === ETYPE_REMOTE_PROTECTION;
    this.#pending = copiesHeaders(error)
      ? {
          layer: error.layer,
          etype: error.etype,
          code: error.code,
          segmentLength: request.segmentLength,
          ddpHeader: request.ddpHeader.slice(),
          rdmaHeader: withRead ? remainingRead(request) : undefined,
        }
      : withoutCopies(error);
    return true;
  }

  /** Latches an error not tied to an incoming message. False if there was one before. */
  // RDMAP-7.1-02 RDMAPX-8.1-01 no header copies.
  latchLocal(error: ProtocolError): boolean {
    if (this.#error !== undefined) return false;
    this.#error = error;
    if (error.sendable) this.#pending = withoutCopies(error);
    return true;
  }

  /** The Terminate to send, if any. */
  peek(): TerminateHeader | undefined {
    return this.#pending;
  }

  /** The Terminate has been framed; there is no second one. */
  // RDMAP-5.4-06
  sent(): void {
    this.#pending = undefined;
  }
}

// RDMAP-4.8-08 RDMAP-4.8-29 local catastrophic and lower-layer errors copy nothing.
function copiesHeaders(error: ProtocolError): boolean {
  return error.layer !== TerminateLayer.llp && error.etype !== ETYPE_LOCAL_CATASTROPHIC;
}

function withoutCopies(error: ProtocolError): TerminateHeader {
  return {
    layer: error.layer,
    etype: error.etype,
    code: error.code,
    segmentLength: undefined,
    ddpHeader: undefined,
    rdmaHeader: undefined,
  };
}

function opcodeOf(bytes: Uint8Array, start: number): number {
  return (bytes[start + 1] ?? 0) & RDMAPControl.opcode;
}

function isTerminate(bytes: Uint8Array, start: number, length: number): boolean {
  return (
    length >= UNTAGGED_HEADER_BYTES &&
    ((bytes[start] ?? 0) & DDPControl.tagged) === 0 &&
    opcodeOf(bytes, start) === RDMAPOpcode.terminate &&
    readUint32(bytes, start + 6) === QueueNumber.terminate
  );
}

/** The Read Request Header of the part of `request` not yet sent. */
// RDMAP-4.8-10 RDMAP-4.8-11 the original if nothing was sent, else advanced.
function remainingRead(request: InboundRequest): Uint8Array {
  const { read, sentBytes } = request;
  const sink = to64(read.sinkToHi, read.sinkToLo, sentBytes);
  const source = to64(read.sourceToHi, read.sourceToLo, sentBytes);
  const header = new Uint8Array(READ_REQUEST_BYTES);
  writeReadRequest(
    {
      sinkStag: read.sinkStag,
      sinkToHi: sink.hi,
      sinkToLo: sink.lo,
      size: read.size - sentBytes,
      sourceStag: read.sourceStag,
      sourceToHi: source.hi,
      sourceToLo: source.lo,
    },
    header,
    0,
  );
  return header;
}
