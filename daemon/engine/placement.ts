/**
 * What the protocol engine asks of the RNIC above it.
 *
 * The engine knows octets, STags and message numbers; it does not know memory regions, receive
 * queues or work requests. `StreamUser` is the seam: one queue pair implements it, one stream
 * calls it, synchronously and never re-entrantly. Offsets that come from the wire stay two 32-bit
 * halves, since a Tagged Offset uses all 64 bits and a `bigint` per segment is too dear.
 *
 * Specifications: RFC 5041 §5–7 (placement, delivery, errors), RFC 5040 §5–7, RFC 7306 §4–8.
 */

/** Why the RNIC refused an access. The engine maps it to a DDP or an RDMAP error code. */
export const Fault = {
  none: 0,
  /** The STag names no registered, valid memory. */
  stagInvalid: 1,
  /** The STag belongs to another protection domain, or its window to another stream. */
  stagNotAssociated: 2,
  /** Offset and length leave the bounds of the memory. */
  bounds: 3,
  /** The access right asked for was not given. */
  access: 4,
  /** Offset plus length passes 2^64. */
  toWrap: 5,
  /** No receive buffer is posted for an untagged message. */
  noBuffer: 6,
  /** An untagged message is longer than its receive buffer. */
  messageTooLong: 7,
  /** The STag exists but may not be invalidated by the peer. */
  cannotInvalidate: 8,
  /** The memory behind the STag went away (a page is unmapped). */
  memoryLost: 9,
  /** An atomic's target is not aligned to 8 octets. */
  misaligned: 10,
  /** The process whose memory it was has ended; its queue pairs are about to. */
  ownerGone: 11,
} as const;
export type Fault = (typeof Fault)[keyof typeof Fault];

/** What an outbound message is. The order is the RDMAP sender's dispatch table. */
export const OutboundKind = {
  none: 0,
  send: 1,
  sendWithInvalidate: 2,
  write: 3,
  readRequest: 4,
  immediate: 5,
  atomic: 6,
} as const;
export type OutboundKind = (typeof OutboundKind)[keyof typeof OutboundKind];

/**
 * The next message of a send queue, filled in by `StreamUser.nextMessage`. One object per stream
 * is reused for every message. 64-bit values are pairs of unsigned 32-bit halves.
 */
export interface OutboundMessage {
  kind: OutboundKind;
  /** Payload octets for Send and Write; octets to fetch for a Read Request; 8 for Immediate. */
  lengthBytes: number;
  solicited: boolean;
  /** Sink of a Write, source of a Read Request, target of an Atomic. */
  remoteStag: number;
  remoteToHi: number;
  remoteToLo: number;
  /** Sink of a Read Request's response. */
  sinkStag: number;
  sinkToHi: number;
  sinkToLo: number;
  /** For Send with Invalidate. */
  invalidateStag: number;
  /** Immediate Data (RFC 7306 §6): 8 octets as two big-endian halves. */
  immediateHi: number;
  immediateLo: number;
  /** Atomic (RFC 7306 §5): operation code, operands and masks. */
  atomicOperation: number;
  /** Add or Swap data. */
  atomicOperandHi: number;
  atomicOperandLo: number;
  atomicOperandMaskHi: number;
  atomicOperandMaskLo: number;
  atomicCompareHi: number;
  atomicCompareLo: number;
  atomicCompareMaskHi: number;
  atomicCompareMaskLo: number;
}

/** A delivered untagged message of QN 0. One object per stream is reused. */
export interface InboundMessage {
  lengthBytes: number;
  solicited: boolean;
  /** True for Send with (Solicited Event and) Invalidate. */
  invalidates: boolean;
  invalidateStag: number;
  /** True for Immediate Data (RFC 7306 §6). */
  hasImmediate: boolean;
  immediateHi: number;
  immediateLo: number;
}

/** A validated Atomic Request, and room for its answer. One object per stream is reused. */
export interface AtomicAccess {
  /** The wire's operation code: 0 FetchAdd, 2 CmpSwap (RFC 7306 §5.2.1). */
  operation: number;
  stag: number;
  toHi: number;
  toLo: number;
  operandHi: number;
  operandLo: number;
  operandMaskHi: number;
  operandMaskLo: number;
  compareHi: number;
  compareLo: number;
  compareMaskHi: number;
  compareMaskLo: number;
  /** Filled in by the RNIC: the value before the operation. */
  originalHi: number;
  originalLo: number;
}

/** The queue pair as its stream sees it. All calls are synchronous and run to completion. */
export interface StreamUser {
  /**
   * Places one segment of an RDMA Write. `length` 0 is never passed (RFC 5041 §5.1: not checked).
   * `last` is that of the message, which nobody is told of (RFC 5040 §5.1): for counters.
   * The octets stay as they are until `inputEnded`, so that several segments can go in one transfer.
   */
  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    last: boolean,
  ): Fault;
  /** Everything placed so far has to be in its memory now; the fault of what failed since. */
  inputEnded(): Fault;
  /** Places one segment of the Read Response that answers the oldest outstanding Read Request. */
  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): Fault;
  /** The oldest outstanding read is complete. */
  readCompleted(): void;
  /** The oldest outstanding atomic is complete; the halves are the original value at the target. */
  atomicCompleted(originalHi: number, originalLo: number): void;

  /** Takes the next receive WQE (or the SRQ's). `Fault.noBuffer` when none is posted. */
  beginReceive(): Fault;
  /**
   * Places one segment at offset `mo` of the receive begun; `length` 0 is never passed. The octets
   * of a message come in order, each once. Immediate Data is placed like any payload of 8 octets,
   * before `completeReceive` tells its value. `messageTooLong` when the receive has no room.
   */
  placeReceive(mo: number, octets: Uint8Array, start: number, length: number): Fault;
  /**
   * Delivers the receive begun, all of it placed. Invalidates the message's STag first when it
   * asks for that, and returns `cannotInvalidate`, `stagInvalid` or `stagNotAssociated` if that
   * fails; the receive then completes in error.
   */
  completeReceive(message: InboundMessage): Fault;

  /** Checks the source of an inbound Read Request. `length` may be 0 (then not called). */
  checkReadSource(stag: number, toHi: number, toLo: number, length: number): Fault;
  /**
   * True when the octets can be gathered now; false when they have to be fetched from their
   * owner first, after which the RNIC has the stream pumped.
   */
  prepareReadSource(stag: number, toHi: number, toLo: number, length: number): boolean;
  /** Copies source octets of an inbound read into `target`. */
  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): Fault;
  /**
   * Performs an inbound atomic, atomically with respect to every other one of the device. Called
   * when the answers to all earlier requests of the stream are framed, for operations 0 and 2 only.
   */
  executeAtomic(access: AtomicAccess): Fault;

  /**
   * Fills in the next message that the send queue may start now, and returns true; false when
   * there is none (empty, fenced, data to be fetched first). Local SGEs have been checked. The
   * message is then current until `messageSent`. A Read or atomic beyond ORD may be given: the
   * stream keeps it, and all behind it, until a slot is free.
   */
  nextMessage(message: OutboundMessage): boolean;
  /** True when payload octets of the current message can be gathered now (see prepareReadSource). */
  prepareGather(offset: number, length: number): boolean;
  /** Copies payload octets of the current message into `target` (a snapshot: RFC 5040 §5.5). */
  gather(offset: number, length: number, target: Uint8Array, targetStart: number): Fault;
  /** The current message's last octet has been framed; its payload is no longer needed. */
  messageSent(): void;
}
