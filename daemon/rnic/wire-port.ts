/**
 * The port between a queue pair and the wire that carries it.
 *
 * A queue pair knows memory, work requests and completions. A wire knows packets, sequence numbers
 * and timers. `WireUser` is what a queue pair offers to its wire; `Wire` is what every wire offers
 * to its queue pair. Each wire starts connections in its own way and declares that itself (for
 * iWARP: `daemon/iwarp/engine/stream-api.ts`).
 *
 * A wire calls its user synchronously; no method of `WireUser` calls the wire back. Offsets from the
 * wire stay two 32-bit halves: they use all 64 bits, and a `bigint` per segment is too slow.
 *
 * Specifications: RFC 5041 §5–7 (placement, delivery, errors), RFC 5040 §5–7, RFC 7306 §4–8.
 */
import type { Micros } from '#base/time';
import type { LentBytes } from '#base/transmit';

/** Why a message was not acknowledged. */
export const MessageFailure = {
  /** The peer refused the access or the request, or could not execute it. */
  remoteAccess: 1,
  remoteInvalidRequest: 2,
  remoteOperation: 3,
  /** No response after all retries, or only "receiver not ready". */
  retriesExceeded: 4,
  rnrRetriesExceeded: 5,
  /** The peer's response is impossible. */
  badResponse: 6,
} as const;
export type MessageFailure = (typeof MessageFailure)[keyof typeof MessageFailure];

/** A range of memory as a work request names it. */
export interface NamedRange {
  readonly key: number;
  readonly address: bigint;
  readonly lengthBytes: number;
}

/** The behaviour of the peer that failed a wire. */
export type WireCause =
  /** The peer did not answer; `psn` is the oldest unacknowledged packet. */
  | {
      readonly kind: 'no-answer';
      readonly psn: number;
      readonly retries: number;
      readonly timeoutMicros: Micros;
    }
  /** The peer had no receive posted. */
  | { readonly kind: 'not-ready'; readonly retries: number; readonly timerMicros: Micros }
  /** The peer refused it. */
  | { readonly kind: 'refused'; readonly failure: MessageFailure };

/** Why a connection failed, as data for events, logs and diagnostics. */
export interface WireFailure {
  /** Stable word: 'timeout', 'invalid-frame', 'refused-markers', 'lost', 'protocol', 'local' ... */
  readonly kind: string;
  readonly text: string;
  /** The event to raise if we found the fault in the peer's messages; default: a fatal one. */
  readonly event?: 'access' | 'request';
  /**
   * The status of our oldest outstanding Read or atomic, which the peer refused; without it, that
   * request is flushed like all others. For wires whose messages are done before they are
   * acknowledged; other wires call `messageFailed`.
   */
  readonly refusal?: MessageFailure;
  /** The message to the peer about it, with the error codes, for the event's text. */
  readonly sent?: string;
  readonly detail?: string;
  /** Details for sentences. */
  readonly cause?: WireCause;
  /** The peer's memory that a refusal concerns, if known. */
  readonly named?: NamedRange;
  /** False if the wire found the error without asking its queue pair. */
  readonly found?: boolean;
  /** Set when a known quirk of the peer explains the failure (such as siw's bit order). */
  readonly quirk?: string;
}

export interface Wire {
  /** There may be work: sends messages and answers requests until the output is full. */
  pump(now: Micros): void;
  /**
   * Closes gracefully once `WireUser.nextMessage` returns false, the peer's requests are answered and
   * ours are too. Does not wait for data that must be fetched first.
   */
  disconnect(now: Micros): void;
  /**
   * Ends at once: accepts no input and sends no further message. Completed messages are still sent.
   * Before the connection is established, this is a reset.
   */
  abort(now: Micros): void;
  /** A failure on this side: notifies the peer if the wire can (iWARP: a Terminate), then closes. */
  fail(failure: WireFailure, now: Micros): void;
  /** When `handleDeadline` is due, or `NEVER`. */
  nextDeadline(): Micros;
  handleDeadline(now: Micros): void;
  /** True if messages may be sent: the connection is established, for iWARP in both directions. */
  readonly sendable: boolean;
  /** True while a message of `WireUser.nextMessage` is partly sent: its payload is still needed. */
  readonly midSend: boolean;
}

/** Why a queue pair refused an access. The wire maps it to its own error code. */
export const AccessRefusal = {
  none: 0,
  /** The STag names no registered, valid memory. */
  stagInvalid: 1,
  /** The STag belongs to another protection domain, or its window to another stream. */
  stagNotAssociated: 2,
  /** The range extends past the bounds of the memory. */
  bounds: 3,
  /** The memory does not grant the access right. */
  access: 4,
  /** Offset plus length passes 2^64. */
  toWrap: 5,
  /** No receive buffer is posted for an untagged message. */
  noBuffer: 6,
  /** An untagged message is longer than its receive buffer. */
  messageTooLong: 7,
  /** The STag exists but may not be invalidated by the peer. */
  cannotInvalidate: 8,
  /** The memory of the STag is gone (a page is unmapped). */
  memoryLost: 9,
  /** An atomic's target is not aligned to 8 bytes. */
  misaligned: 10,
  /** The process that owned the memory has ended; its queue pairs follow. */
  ownerGone: 11,
  /** The posted receive is malformed, or names memory that its queue pair may not use. */
  receiveInvalid: 12,
  /** The queue pair itself forbids this kind of request, whatever the memory grants. */
  notPermitted: 13,
} as const;
export type AccessRefusal = (typeof AccessRefusal)[keyof typeof AccessRefusal];

/** Kinds of outbound messages. A wire may index a dispatch table by them. */
export const OutboundKind = {
  none: 0,
  send: 1,
  sendWithInvalidate: 2,
  write: 3,
  readRequest: 4,
  immediate: 5,
  atomic: 6,
  /** The immediate data travel with the message (RoCE). */
  sendWithImmediate: 7,
  writeWithImmediate: 8,
} as const;
export type OutboundKind = (typeof OutboundKind)[keyof typeof OutboundKind];

/** A destination of datagrams, opaque to the queue pair. */
interface WireAddress {
  /** The GID of the destination: an IPv6 address, or an IPv4 one mapped into it. */
  readonly dgid: Uint8Array;
}

/**
 * The next message of a send queue, filled in by `WireUser.nextMessage`. A wire reuses one object
 * for every message. 64-bit values are pairs of unsigned 32-bit halves.
 */
export class OutboundMessage {
  kind: OutboundKind = OutboundKind.none;
  /** Identifies the message until it is done: a small number, reused afterwards. */
  slot = 0;
  /** Payload bytes for Send and Write; bytes to fetch for a Read Request; 8 for Immediate. */
  lengthBytes = 0;
  /** Of a Send or Write: long enough to be lent. */
  lendable = false;
  solicited = false;
  /** Sink of a Write, source of a Read Request, target of an Atomic. */
  remoteStag = 0;
  remoteToHi = 0;
  remoteToLo = 0;
  /** Sink of a Read Request's response. */
  sinkStag = 0;
  sinkToHi = 0;
  sinkToLo = 0;
  /** For Send with Invalidate. */
  invalidateStag = 0;
  /** Immediate Data (RFC 7306 §6): 8 bytes as two big-endian halves. RoCE: 32 bits, in `Lo`. */
  immediateHi = 0;
  immediateLo = 0;
  /** Datagrams: destination address and queue pair; undefined otherwise. */
  address: WireAddress | undefined = undefined;
  remoteQpn = 0;
  qkey = 0;
  /** Atomic (RFC 7306 §5): operation code, operands and masks. */
  atomicOperation = 0;
  /** Add or Swap data. */
  atomicOperandHi = 0;
  atomicOperandLo = 0;
  atomicOperandMaskHi = 0;
  atomicOperandMaskLo = 0;
  atomicCompareHi = 0;
  atomicCompareLo = 0;
  atomicCompareMaskHi = 0;
  atomicCompareMaskLo = 0;
}

/** A delivered Send or Immediate Data message. A wire reuses one object. */
export class InboundMessage {
  /**
   * True for an RDMA Write with immediate: its `lengthBytes` are in the memory that it named, not
   * in the receive.
   */
  written = false;
  /** Datagrams: the sender, otherwise 0. The first 40 bytes of the receive are the GRH; they count. */
  sourceQpn = 0;
  lengthBytes = 0;
  solicited = false;
  /** True for Send with (Solicited Event and) Invalidate. */
  invalidates = false;
  invalidateStag = 0;
  /** It has immediate data: 8 bytes (RFC 7306 §6), or 32 bits in `Lo` (RoCE). */
  hasImmediate = false;
  immediateHi = 0;
  immediateLo = 0;
}

/** A validated Atomic Request, with space for the result. A wire reuses one object. */
export class AtomicAccess {
  /** 0 FetchAdd, 2 CmpSwap (the codes of RFC 7306 §5.2.1). */
  operation = 0;
  stag = 0;
  toHi = 0;
  toLo = 0;
  operandHi = 0;
  operandLo = 0;
  operandMaskHi = 0;
  operandMaskLo = 0;
  compareHi = 0;
  compareLo = 0;
  compareMaskHi = 0;
  compareMaskLo = 0;
  /** Filled in by the queue pair: the value before the operation. */
  originalHi = 0;
  originalLo = 0;
}

/** Payload that stays in the sender's memory while output of a wire stands for it: see `memory/lent-stream.ts`. */
export interface Loans extends LentBytes {
  /** Pieces in the output, and copies that are not over. */
  readonly lent: number;
  /** The peer has read the first `end` bytes of `output`, the oldest: only copies lend them from now on. */
  delivered(output: Uint8Array, end: number): void;
  /** The output is dropped. */
  drop(): void;
}

/** The queue pair as its wire sees it. All calls are synchronous and run to completion. */
export interface WireUser {
  /**
   * Places one segment of an RDMA Write. `length` is never 0 (RFC 5041 §5.1: not checked). The
   * bytes stay unchanged until `inputEnded`, so several segments can go in one transfer.
   */
  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal;
  /**
   * Checks the target of a whole RDMA Write before any of it is placed, for a wire that knows its
   * length. A `length` of 0 needs no memory, but the right to write.
   */
  checkWriteTarget(stag: number, toHi: number, toLo: number, length: number): AccessRefusal;
  /** All payload of an RDMA Write is placed. For counters: the target gets no completion. */
  writeCompleted(): void;
  /** Flushes everything placed so far to its memory. Returns the refusal of any failure since. */
  inputEnded(): AccessRefusal;
  /** Places one segment of the response to the oldest outstanding Read Request. */
  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal;
  /** Like `placeReadResponse`, at `offset` of the Read, for a wire whose responses name no sink. */
  placeReadPart(offset: number, bytes: Uint8Array, start: number, length: number): AccessRefusal;
  /** The oldest outstanding read is complete. */
  readCompleted(): void;
  /** The oldest outstanding atomic is complete; the halves are the original value at the target. */
  atomicCompleted(originalHi: number, originalLo: number): void;

  /** Takes the next receive WQE (or the SRQ's). `AccessRefusal.noBuffer` if none is posted. */
  beginReceive(): AccessRefusal;
  /**
   * Places one segment at offset `mo` of the current receive. `length` is never 0. The bytes of a
   * message come in order, each once. Immediate Data is placed like any payload of 8 bytes, before
   * `completeReceive` passes its value. `messageTooLong` when the receive has no room.
   */
  placeReceive(mo: number, bytes: Uint8Array, start: number, length: number): AccessRefusal;
  /**
   * Completes the current receive, whose data is all placed. Invalidates the message's STag first if it
   * asks for that. Returns `cannotInvalidate`, `stagInvalid` or `stagNotAssociated` if that fails;
   * the receive then completes in error.
   */
  completeReceive(message: InboundMessage): AccessRefusal;

  /**
   * Checks the source of the peer's Read Request. A `length` of 0 needs no memory, but the access right
   * of the queue pair, except on iWARP (RFC 5040 §5.2.1).
   */
  checkReadSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal;
  /**
   * True if the bytes can be gathered now. False if they must be fetched from their owner first; the
   * device pumps the wire once they are available.
   */
  prepareReadSource(stag: number, toHi: number, toLo: number, length: number): boolean;
  /** Copies source bytes of the peer's read into `target`. */
  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal;
  /**
   * Performs the peer's atomic, atomically with respect to all others of the device. Called for
   * operations 0 and 2 only, after the answers to all earlier requests of the connection are framed.
   */
  executeAtomic(access: AtomicAccess): AccessRefusal;

  /**
   * Fills in the next message that the send queue may start now, and returns true. Returns false if
   * there is none (empty, fenced, or data must be fetched first). Local SGEs are checked. The message
   * stays open until `messageDone`: a wire that retransmits may have several open. It may be a Read or
   * atomic beyond ORD: the wire then holds it and all later messages until one is answered.
   */
  nextMessage(message: OutboundMessage): boolean;
  /** True when payload bytes of an open message can be gathered now (see prepareReadSource). */
  prepareGather(slot: number, offset: number, length: number): boolean;
  /**
   * Copies payload bytes of an open message into `target` (a snapshot: RFC 5040 §5.5). The wire may
   * gather any part, each time that it sends it.
   */
  gather(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal;
  /**
   * True if payload of an open message, `length` bytes from `offset`, may be lent to the peer on the same host, by
   * way of `loans` or, without them, of packets.
   */
  mayLend?(slot: number, offset: number, length: number, loans?: Loans): boolean;
  /** Like `gather`, but the bytes stay in their memory: the peer takes them there. */
  lend?(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    loans?: Loans,
  ): AccessRefusal;
  /** Asks for a pump once lent bytes are copied. */
  awaitCopies?(): void;
  /** Completes messages whose lent bytes are all copied. */
  settleLent?(): void;
  /** Until the next call, parts of the input may stand for `lent`. */
  takeLent?(lent: LentBytes | undefined): void;
  /**
   * The wire no longer needs the oldest open message: for iWARP, its last byte is framed; for a wire
   * that retransmits, the peer has acknowledged it (a Read or atomic: right after `readCompleted` or
   * `atomicCompleted`).
   */
  messageDone(): void;
  /**
   * The oldest open message failed: it completes with this status in the flush that follows once the
   * wire reports its end.
   */
  messageFailed(failure: MessageFailure): void;
}

/** A queue pair that supports deferred gathering: for many packets before any of it is needed. */
export interface DeferringUser extends WireUser {
  /** Like `gather`; the bytes may be missing until `gatheringEnded`. */
  gatherLater(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal;
  mayLend(slot: number, offset: number, length: number): boolean;
  lend(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal;
  /** True while lent bytes are being copied: nothing else may overtake them. */
  readonly lending: boolean;
  /** Lent bytes of a message could not be read: nothing more is sent. */
  readonly unread: boolean;
  /** Asks for a pump once lent bytes are copied. */
  awaitCopies(): void;
  /** Copies of lent bytes that were ordered into memory of this queue pair. */
  readonly copiesOrdered: number;
  /** How many of them are done. They are done in order. */
  readonly copiesDone: number;
  /** Like `gatherReadSource`; the bytes may be missing until `gatheringEnded`. */
  gatherReadSourceLater(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal;
  /**
   * All deferred bytes are in their targets now. `memoryLost` if payload of a work request is gone
   * (a flush reports which one); `stagInvalid` if only sources of Reads are.
   */
  gatheringEnded(): AccessRefusal;
  /**
   * True while received data is on its way to slow memory: it must not be acknowledged. The wire is
   * pumped once the data is in place.
   */
  readonly placing: boolean;
}
