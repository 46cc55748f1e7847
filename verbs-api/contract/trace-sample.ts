/**
 * A sample of what passes in a daemon: work requests, what they put on the wire, completions. One
 * bounded answer to one request, for who looks now and then (`recordTrace` of control.ts); whoever
 * wants everything keeps a tap open instead (tap-records.ts).
 */

/** Records of a sample when the request does not say, and at most. */
export const TRACE_LIMIT_DEFAULT = 1000;
export const TRACE_LIMIT_MAX = 10_000;
/** Milliseconds that a sample takes when the request does not say, and at most. */
export const TRACE_MS_DEFAULT = 1000;
export const TRACE_MS_MAX = 10_000;
/** Samples that may be under way at once; EBUSY beyond them. */
export const TRACE_SAMPLES_MAX = 4;
/** Characters of a record's text; a longer one is cut. */
export const TRACE_TEXT_MAX = 148;

/** What to watch, and how long: until `limit` records came or `ms` passed, whichever is first. */
export interface TraceRequest {
  /** 1 to `TRACE_LIMIT_MAX`. Default: `TRACE_LIMIT_DEFAULT`. */
  readonly limit?: number;
  /** 1 to `TRACE_MS_MAX`. Default: `TRACE_MS_DEFAULT`. */
  readonly ms?: number;
  /** Only this device. */
  readonly device?: string;
  /** Only this queue pair, and the links that it has. */
  readonly qp?: number;
}

/** What a record is about. */
export type TraceRecordKind =
  /** A work request that the device took from a send, receive or shared receive queue. */
  | 'wqe'
  /** A completion that was written to a completion queue. */
  | 'cqe'
  /** An MPA Request or Reply. */
  | 'mpa'
  | 'fpdu'
  /** Octets of a link that cannot be read. */
  | 'error'
  /** One direction of a link is over: a FIN or a reset. */
  | 'end';

/** One record. Fields that mean nothing for its kind are absent. */
export interface TraceRecord {
  /** Microseconds since 1970; records come in this order. */
  readonly micros: number;
  readonly kind: TraceRecordKind;
  /** Device of the queue pair. On the wire: of the watched end, as far as it has a queue pair. */
  readonly device?: string;
  /** Number of the queue pair. On the wire: of the watched end. */
  readonly qpn?: number;
  /** On the wire, where both ends are devices of this daemon: the queue pair of the other end. */
  readonly peerDevice?: string;
  readonly peerQpn?: number;
  /** Number of the link; told for what passes on the wire. */
  readonly link?: number;
  /** Who sent it: the watched end or the other one. */
  readonly by?: 'us' | 'peer';
  /** wqe and cqe: 'SEND', 'RDMA_WRITE', 'RECV' …; fpdu: the RDMAP message, 'Send', 'Write' …. */
  readonly opcode?: string;
  /** wqe and cqe: '0x…', 64 bits in hexadecimal. */
  readonly wrId?: string;
  /** wqe: octets that it is about; cqe: byte_len; fpdu: octets of payload. */
  readonly bytes?: number;
  /** cqe: rdma-core's name, 'IBV_WC_SUCCESS', 'IBV_WC_REM_ACCESS_ERR' …. */
  readonly status?: string;
  /** One line for people, the line of `iwarpd trace` without its time and place. */
  readonly text: string;
}

/** A sample. */
export interface TraceSample {
  /**
   * In the order of time. A Send or Write completes when it is framed, and TCP takes it right after:
   * its 'cqe' stands before its (last) 'fpdu'. A receive's 'wqe' stands behind the 'fpdu' that took it.
   */
  readonly records: readonly TraceRecord[];
  /** Records that came with the last ones and went beyond the limit. */
  readonly lost: number;
}
