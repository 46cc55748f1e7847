/**
 * The port between a queue pair and the wire that carries it.
 *
 * A queue pair knows memory, work requests and completions. A wire knows packets, sequence numbers
 * and timers. `WireUser` is what a queue pair offers to its wire; `Wire` is what every wire offers
 * to its queue pair. How a connection starts differs from wire to wire, so each wire declares that
 * itself (for iWARP: `daemon/iwarp/engine/stream-api.ts`).
 *
 * A wire calls its user synchronously; no method of `WireUser` calls the wire back. Offsets from the
 * wire stay two 32-bit halves: they use all 64 bits, and a `bigint` per segment is too slow.
 *
 * Specifications: RFC 5041 §5–7 (placement, delivery, errors), RFC 5040 §5–7, RFC 7306 §4–8.
 */

/** Microseconds since an arbitrary start. Never runs backwards. */
export type Micros = number;

/** No deadline is set. */
export const NEVER: Micros = Number.POSITIVE_INFINITY;

/** Why a message that the wire waited for was not acknowledged. */
export const MessageFailure = {
  /** The peer refused the access, the request as a whole, or could not carry it out. */
  remoteAccess: 1,
  remoteInvalidRequest: 2,
  remoteOperation: 3,
  /** No answer, however often it was sent; or always the answer that no receive is posted. */
  retriesExceeded: 4,
  rnrRetriesExceeded: 5,
  /** The peer's answer is impossible. */
  badResponse: 6,
} as const;
export type MessageFailure = (typeof MessageFailure)[keyof typeof MessageFailure];

/** A range of memory, as a work request names it. */
export interface NamedRange {
  readonly key: number;
  readonly address: bigint;
  readonly lengthBytes: number;
}

/** What a wire found out about its peer. */
export type WireCause =
  /** The peer did not answer; `psn` is the oldest packet without an answer. */
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
  /** The event at the side that found the fault in the peer's messages; without it, a fatal one. */
  readonly event?: 'access' | 'request';
  /**
   * The peer's refusal is about our oldest outstanding Read or atomic, which completes with this
   * status; without it, that is flushed like all others. For wires whose messages are done before
   * they are acknowledged; others say `messageFailed`.
   */
  readonly refusal?: MessageFailure;
  /** What the wire sent the peer about it, for the event's text, and its numbers of the fault. */
  readonly told?: string;
  readonly detail?: string;
  /** What sentences about it say. */
  readonly cause?: WireCause;
  /** The memory of the peer that a refusal is about, if it is known. */
  readonly named?: NamedRange;
  /** False if the wire found the fault without asking its queue pair. */
  readonly found?: boolean;
  /** Set when a known quirk of the peer explains the failure (such as siw's bit order). */
  readonly quirk?: string;
}

/** What a queue pair needs of the wire that carries it. */
export interface Wire {
  /** There may be work: sends messages and answers requests until the output is full. */
  pump(now: Micros): void;
  /**
   * Closes gracefully once `WireUser.nextMessage` has no more, the peer's requests are answered and
   * the peer has answered ours. Does not wait for data that must be fetched first.
   */
  disconnect(now: Micros): void;
  /**
   * Ends at once: takes nothing in and sends no further message. What has completed still goes out.
   * Before the connection is established, this is a reset.
   */
  abort(now: Micros): void;
  /** A failure on this side: tells the peer if the wire can (iWARP: a Terminate), then closes. */
  fail(failure: WireFailure, now: Micros): void;
  /** When `handleDeadline` is due, or `NEVER`. */
  nextDeadline(): Micros;
  handleDeadline(now: Micros): void;
  /** True when messages may be sent: the connection is established, for iWARP in both directions. */
  readonly sendable: boolean;
  /** True while part of a message of `WireUser.nextMessage` is sent: its payload is still needed. */
  readonly midSend: boolean;
}

/** Why a queue pair refused an access. The wire maps it to an error code of its own. */
export const Fault = {
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
  /** The memory behind the STag is gone (a page is unmapped). */
  memoryLost: 9,
  /** An atomic's target is not aligned to 8 bytes. */
  misaligned: 10,
  /** The process that owned the memory has ended; its queue pairs follow. */
  ownerGone: 11,
  /** The posted receive is malformed, or names memory that its queue pair may not use. */
  receiveInvalid: 12,
  /** The queue pair itself does not permit this kind of request, whatever the memory grants. */
  notPermitted: 13,
} as const;
export type Fault = (typeof Fault)[keyof typeof Fault];

/** What an outbound message is. A wire may index a dispatch table by it. */
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

/** A destination of datagrams. The wire passes it on and does not look inside. */
interface WireAddress {
  /** The GID of the destination: an IPv6 address, or an IPv4 one mapped into it. */
  readonly dgid: Uint8Array;
}

/**
 * The next message of a send queue, filled in by `WireUser.nextMessage`. A wire reuses one object
 * for every message. 64-bit values are pairs of unsigned 32-bit halves.
 */
export interface OutboundMessage {
  kind: OutboundKind;
  /** Names the message until it is done: a small number, used again afterwards. */
  slot: number;
  /** Payload bytes for Send and Write; bytes to fetch for a Read Request; 8 for Immediate. */
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
  /** Immediate Data (RFC 7306 §6): 8 bytes as two big-endian halves. RoCE: 32 bits, in `Lo`. */
  immediateHi: number;
  immediateLo: number;
  /** Datagrams: where to, in words of the wire (`undefined` otherwise), and to which queue pair. */
  address: WireAddress | undefined;
  remoteQpn: number;
  qkey: number;
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

/** A delivered Send or Immediate Data message. A wire reuses one object. */
export interface InboundMessage {
  /**
   * True for an RDMA Write with immediate: its `lengthBytes` are in the memory that it named, none
   * in the receive.
   */
  written: boolean;
  /** Datagrams: the sender, else 0. The receive's first 40 bytes are its GRH, counted here. */
  sourceQpn: number;
  lengthBytes: number;
  solicited: boolean;
  /** True for Send with (Solicited Event and) Invalidate. */
  invalidates: boolean;
  invalidateStag: number;
  /** Immediate data came: 8 bytes (RFC 7306 §6), or 32 bits in `Lo` (RoCE). */
  hasImmediate: boolean;
  immediateHi: number;
  immediateLo: number;
}

/** A validated Atomic Request, and room for its answer. A wire reuses one object. */
export interface AtomicAccess {
  /** 0 FetchAdd, 2 CmpSwap (the codes of RFC 7306 §5.2.1). */
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
  /** Filled in by the queue pair: the value before the operation. */
  originalHi: number;
  originalLo: number;
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
  ): Fault;
  /**
   * Checks the target of a whole RDMA Write before any of it is placed, for a wire that knows its
   * length. A `length` of 0 needs no memory, but the right to write.
   */
  checkWriteTarget(stag: number, toHi: number, toLo: number, length: number): Fault;
  /** All payload of an RDMA Write is placed. For counters: its target gets no completion. */
  writeCompleted(): void;
  /** Everything placed so far must be in its memory now. Returns the fault of what failed since. */
  inputEnded(): Fault;
  /** Places one segment of the response to the oldest outstanding Read Request. */
  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): Fault;
  /** The same for a wire whose responses name no sink: at `offset` of the Read's own. */
  placeReadPart(offset: number, bytes: Uint8Array, start: number, length: number): Fault;
  /** The oldest outstanding read is complete. */
  readCompleted(): void;
  /** The oldest outstanding atomic is complete; the halves are the original value at the target. */
  atomicCompleted(originalHi: number, originalLo: number): void;

  /** Takes the next receive WQE (or the SRQ's). `Fault.noBuffer` when none is posted. */
  beginReceive(): Fault;
  /**
   * Places one segment at offset `mo` of the current receive. `length` is never 0. The bytes of a
   * message come in order, each once. Immediate Data is placed like any payload of 8 bytes, before
   * `completeReceive` passes its value. `messageTooLong` when the receive has no room.
   */
  placeReceive(mo: number, bytes: Uint8Array, start: number, length: number): Fault;
  /**
   * Completes the current receive; all of it is placed. First invalidates the message's STag if it
   * asks for that. Returns `cannotInvalidate`, `stagInvalid` or `stagNotAssociated` if that fails;
   * the receive then completes in error.
   */
  completeReceive(message: InboundMessage): Fault;

  /**
   * Checks the source of the peer's Read Request. A `length` of 0 needs no memory, but the access right
   * of the queue pair, except on iWARP (RFC 5040 §5.2.1).
   */
  checkReadSource(stag: number, toHi: number, toLo: number, length: number): Fault;
  /**
   * True when the bytes can be gathered now. False when they must be fetched from their owner
   * first; the device pumps the wire once they are there.
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
  ): Fault;
  /**
   * Performs the peer's atomic, atomically with respect to all others of the device. Called for
   * operations 0 and 2 only, after the answers to all earlier requests of the connection are framed.
   */
  executeAtomic(access: AtomicAccess): Fault;

  /**
   * Fills in the next message that the send queue may start now, and returns true. Returns false
   * when there is none (empty, fenced, or data must be fetched first). Local SGEs are checked. The
   * message stays open until `messageDone`: a wire that retransmits may have several open. It may be
   * a Read or atomic beyond ORD: the wire keeps it, and everything behind it, until one is answered.
   */
  nextMessage(message: OutboundMessage): boolean;
  /** True when payload bytes of an open message can be gathered now (see prepareReadSource). */
  prepareGather(slot: number, offset: number, length: number): boolean;
  /**
   * Copies payload bytes of an open message into `target` (a snapshot: RFC 5040 §5.5), any of them,
   * as often as the wire sends them.
   */
  gather(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): Fault;
  /**
   * The wire no longer needs the oldest open message. iWARP says so when the last byte is framed; a
   * wire that retransmits says so when the peer has acknowledged it (of a Read or atomic: right
   * after `readCompleted` or `atomicCompleted`).
   */
  messageDone(): void;
  /**
   * The oldest open message failed: it completes with this status when the queue is flushed, which
   * follows once the wire reports that it ended.
   */
  messageFailed(failure: MessageFailure): void;
}

/** A queue pair whose wire may gather payload for many packets before it needs any of it. */
export interface DeferringUser extends WireUser {
  /** As `gather`; the bytes may be missing until `gatheringEnded`. */
  gatherLater(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): Fault;
  /** As `gatherReadSource`; the bytes may be missing until `gatheringEnded`. */
  gatherReadSourceLater(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): Fault;
  /**
   * All that was to be gathered later is in its targets now. `memoryLost` when payload of a work
   * request is gone: a flush reports whose it was. `stagInvalid` when only sources of Reads are.
   */
  gatheringEnded(): Fault;
  /**
   * Data that came is on its way to memory that takes its time: nothing of it may be acknowledged.
   * The wire is pumped once it is there.
   */
  readonly placing: boolean;
}
