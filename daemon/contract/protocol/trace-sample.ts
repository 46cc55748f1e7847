/**
 * A sample of a daemon's activity: work requests, the traffic they cause, completions. One bounded
 * reply to one request (`recordTrace` of control.ts), for occasional looks; use a tap for complete
 * traffic (tap-records.ts).
 */

/** Default and maximum number of records of a sample. */
export const TRACE_LIMIT_DEFAULT = 1000;
export const TRACE_LIMIT_MAX = 10_000;
/** Default and maximum duration of a sample, in milliseconds. */
export const TRACE_MS_DEFAULT = 1000;
export const TRACE_MS_MAX = 10_000;
/** Concurrent samples; EBUSY above. */
export const TRACE_SAMPLES_MAX = 4;
/** Characters of a record's text; a longer text is truncated. */
export const TRACE_TEXT_MAX = 148;

/** Selects and limits a sample: it ends when `limit` records have arrived or `ms` have passed. */
export interface TraceRequest {
  /** Records, 1 to 10,000. Default 1,000. */
  readonly limit?: number;
  /** Milliseconds, 1 to 10,000. Default 1,000. */
  readonly ms?: number;
  /** Only this device. */
  readonly device?: string;
  /** Only this queue pair, and its links. */
  readonly qp?: number;
}

/** Kind of a record. */
export type TraceRecordKind =
  /** A work request that the device took from a send, receive or shared receive queue. */
  | 'wqe'
  /** A completion that a device wrote. */
  | 'cqe'
  /** An MPA Request or Reply. */
  | 'mpa'
  | 'fpdu'
  /** A packet of RoCEv2 or SCTP. */
  | 'packet'
  /** Bytes of a link, or a packet, that cannot be decoded. */
  | 'error'
  /** One direction of a link has ended: a FIN or a reset. */
  | 'end';

/** One record. Fields that do not apply to its kind are absent. */
export interface TraceRecord {
  /** Microseconds since 1970; records are in this order. */
  readonly micros: number;
  /** The kind of event. */
  readonly kind: TraceRecordKind;
  /** Device of the queue pair. Wire records: device of the watched end, if it has a queue pair. */
  readonly device?: string;
  /** Number of the queue pair. Wire records: of the watched end. */
  readonly qpn?: number;
  /**
   * Wire records, if both ends are devices of this daemon: device of the other end's queue pair.
   */
  readonly peerDevice?: string;
  /** Number of that queue pair. */
  readonly peerQpn?: number;
  /** Number of the link; records of links only. */
  readonly link?: number;
  /** Sender: the watched end or the other one. The watched end of a packet is its sender. */
  readonly by?: 'us' | 'peer';
  /** wqe and cqe: 'SEND', 'RDMA_WRITE', 'RECV' …; fpdu: the RDMAP message, 'Send', 'Write' …; packet: 'RC SEND Only' …. */
  readonly opcode?: string;
  /** wqe and cqe: '0x…', 64 bits in hexadecimal. */
  readonly wrId?: string;
  /** wqe: bytes of the request; cqe: byte_len; fpdu and packet: bytes of payload. */
  readonly bytes?: number;
  /** cqe: rdma-core's name, 'IBV_WC_SUCCESS', 'IBV_WC_REM_ACCESS_ERR' …. */
  readonly status?: string;
  /** One readable line: the line of `iwarpd trace` without its time and place. */
  readonly text: string;
}

/** A sample. */
export interface TraceSample {
  /**
   * In order of time. A Send or Write completes when it is framed, and TCP takes it right after:
   * its 'cqe' precedes its (last) 'fpdu'. A receive's 'wqe' follows the 'fpdu' that took it.
   */
  readonly records: readonly TraceRecord[];
  /** Records that arrived with the last ones and exceeded the limit. */
  readonly lost: number;
}
