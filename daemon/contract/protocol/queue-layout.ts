/**
 * The layout of the queues that a device and its client share in memory.
 *
 * It is the queue ABI of Linux's siw (`rdma/siw-abi.h`), since that is what rdma-core's provider
 * writes; TypeScript clients use the same rings, with opcodes and fields added where the siw ABI
 * has none (memory windows, Immediate Data, atomics). All numbers are little endian; indices are
 * free-running and are taken modulo the ring's size, a power of two.
 *
 * Only the flags of an element are shared state. The producer writes the body, then stores flags
 * with VALID; the consumer copies the body, then stores 0. A send-queue producer rings the
 * doorbell when the element before its first new one is no longer VALID; therefore a consumer that
 * has cleared an element looks at the next one once more before it goes idle.
 */

/** Bytes of a send-queue element: wr_id, flags, num_sge, opcode, rkey, raddr, then 6 SGEs. */
export const SQE_BYTES = 120;
/** Bytes of a receive-queue element. */
export const RQE_BYTES = 112;
/** Bytes of a completion-queue element. */
export const CQE_BYTES = 32;
/** Bytes of a scatter/gather element: u64 address, u32 length, u32 lkey. */
export const SGE_BYTES = 16;
/** Scatter/gather elements that fit an element. */
export const SGE_MAX = 6;
/** Bytes of inline payload that fit a send-queue element (from `SQE.inline` on). */
export const INLINE_MAX = 80;
/** Bytes of the control block after the last CQE: u32 notify flags, u32 CQEs written so far. */
const CQ_CONTROL_BYTES = 8;

/** Byte positions in a send-queue element. */
export const SQE = {
  /** u64, opaque to the device. */
  wrId: 0,
  /** u16 of `QueueFlag`; all bits fit its low byte. */
  flags: 8,
  /** u8 */
  numSge: 10,
  /** u8 of `SQOpcode` */
  opcode: 11,
  /**
   * u32: remote key; for sendRemoteInv, localInv and bindMW the STag concerned; for a datagram
   * (extension) the destination's Q_Key.
   */
  rkey: 12,
  /**
   * u64: remote address (Tagged Offset). For a datagram (extension) u32 number of the destination's
   * queue pair, u32 number of the address handle.
   */
  raddr: 16,
  /** First SGE. With INLINE its length field is the payload's length. */
  sge: 24,
  /** Inline payload. */
  inline: 40,
  /** u64: for `immediate` and `writeWithImm` (RFC 7306 extension), and for `sendWithImm` (RoCE). */
  immediate: 104,
  /** Atomics (extension): the result goes to sge[0]; operands follow it. u64 each. */
  atomicOperand: 40,
  atomicCompare: 48,
  /** bindMW (extension): new key u8 @40 .. access u32 @44, parent lkey u32 @48; raddr is the
   * window's start, length u64 @56. */
  bindKey: 40,
  bindAccess: 44,
  bindLkey: 48,
  bindLength: 56,
} as const;

/** Byte positions in a receive-queue element. */
export const RQE = { wrId: 0, flags: 8, numSge: 10, sge: 16 } as const;

/** Byte positions in a completion-queue element. */
export const CQE = {
  /** u64 */
  wrId: 0,
  /** u8 of `QueueFlag`: VALID; SOLICITED; REM_INVAL when `immediate` holds an invalidated STag. */
  flags: 8,
  /** u8 of `SQOpcode` */
  opcode: 9,
  /** u16 of `CQEStatus` */
  status: 10,
  /** u32 */
  bytes: 12,
  /** u64: Immediate Data, or the invalidated STag. */
  immediate: 16,
  /** u32: QP number. */
  qpn: 24,
  /**
   * u32, zero in siw. For a datagram: the sender's QP number in the low 24 bits, and above them the kind
   * of its GRH, which is not zero.
   */
  source: 28,
} as const;

/** Bits of `CQE.source` that hold the sender's QP number. */
export const SOURCE_QPN_MASK = 0xff_ffff;

/** Bits of the flags field. */
export const QueueFlag = {
  valid: 1,
  inline: 2,
  signalled: 4,
  solicited: 8,
  /** Wait for earlier reads (fence). */
  readFence: 16,
  remoteInvalidate: 32,
  completed: 64,
  /** CQE: `immediate` holds Immediate Data (extension). */
  immediate: 128,
} as const;

/** Operation of a queue element. 0 to 11 are siw's; those from 16 on are extensions. */
export const SQOpcode = {
  write: 0,
  read: 1,
  readLocalInv: 2,
  send: 3,
  sendWithImm: 4,
  sendRemoteInv: 5,
  fetchAndAdd: 6,
  compAndSwap: 7,
  receive: 8,
  readResponse: 9,
  immediate: 16,
  writeWithImm: 17,
  bindMW: 18,
  localInv: 19,
  /** CQE: a receive that a Send with immediate data took (RoCE). */
  receiveWithImm: 20,
} as const;
export type SQOpcode = (typeof SQOpcode)[keyof typeof SQOpcode];

/** Status of a completion-queue element (siw's numbers; those from 10 on are extensions). */
export const CQEStatus = {
  success: 0,
  locLenErr: 1,
  locProtErr: 2,
  locQpOpErr: 3,
  wrFlushErr: 4,
  badRespErr: 5,
  locAccessErr: 6,
  remAccessErr: 7,
  remInvReqErr: 8,
  generalErr: 9,
  mwBindErr: 10,
  remOpErr: 11,
  retryExcErr: 12,
  rnrRetryExcErr: 13,
} as const;
export type CQEStatus = (typeof CQEStatus)[keyof typeof CQEStatus];

/** Values of a completion queue's notify word. */
export const Notify = {
  none: 0,
  /** Fire at the next solicited or failed completion. */
  solicited: 1,
  /** Fire at the next completion. The client stores `solicited | any`. */
  any: 2,
} as const;

/** Bytes of a send ring of `count` elements. */
export function sqBytes(count: number): number {
  return count * SQE_BYTES;
}
/** Bytes of a receive ring of `count` elements. */
export function rqBytes(count: number): number {
  return count * RQE_BYTES;
}
/** Bytes of a completion ring of `count` elements, control block included. */
export function cqBytes(count: number): number {
  return count * CQE_BYTES + CQ_CONTROL_BYTES;
}
/** The ring size for at least `entries` entries: the next power of two, at least 1. */
export function ringCount(entries: number): number {
  let count = 1;
  while (count < entries) count *= 2;
  return count;
}
