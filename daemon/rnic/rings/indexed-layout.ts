/**
 * Elements of rings with indices, as rdma-core's provider for rxe writes and reads them
 * (`rdma/rdma_user_rxe.h`). All numbers are little endian, except immediate data (big endian). Not
 * listed: fields that the provider leaves as they were in the slot's last use.
 */
import { SGE_BYTES } from '#contract/protocol/queue-layout';

/** Byte positions in a send queue element. */
export const SendElement = {
  /** u64 */
  wrId: 0,
  /** u32, `enum ibv_wr_opcode`. */
  opcode: 12,
  /** u32, `enum ibv_send_flags`. */
  flags: 16,
  /** u32: immediate data, big endian, or the key to invalidate. */
  immediate: 20,
  /** RDMA and atomics: u64 address, then u32 key, or two u64 operands and the key. */
  remoteAddress: 24,
  remoteKey: 32,
  compareAdd: 32,
  swap: 40,
  atomicKey: 48,
  /** Datagrams, u32 each. */
  remoteQpn: 24,
  qkey: 28,
  addressHandle: 36,
  /** Windows: u64 address, u64 length, u32 region, window, new key, rights. */
  windowAddress: 24,
  windowLength: 32,
  regionKey: 40,
  windowKey: 44,
  newKey: 48,
  access: 52,
  /** u32: sum of the SGEs, or bytes of inline payload. */
  length: 184,
  /** u32 */
  numSge: 196,
  /** SGEs, or inline payload. */
  sge: 208,
} as const;

/** Byte positions in a receive element. */
export const ReceiveElement = { wrId: 0, numSge: 28, sge: 40 } as const;

/** Byte positions in a completion: those of `struct ibv_wc`. */
export const CompletionElement = {
  wrId: 0,
  status: 8,
  opcode: 12,
  vendorError: 16,
  byteLen: 20,
  immediate: 24,
  qpn: 28,
  sourceQpn: 32,
  flags: 36,
  /** u16 each. */
  pkeyIndex: 40,
  slid: 42,
  /** u8 each. */
  sl: 44,
  dlidPathBits: 45,
  port: 46,
  end: 48,
} as const;

/** Most SGEs of a work request, and of one of a shared receive queue: rxe's limits. */
export const INDEXED_SGE_MAX = 32;
export const INDEXED_SRQ_SGE_MAX = 27;
/** Maximum bytes of inline payload. */
export const INDEXED_INLINE_MAX = 512;
/** Bytes of a send queue element with room for these SGEs or inline bytes. */
export function sendElementBytes(sges: number, inlineBytes: number): number {
  return SendElement.sge + Math.max(sges * SGE_BYTES, inlineBytes);
}

/** Bytes of a receive element with room for these SGEs. */
export function receiveElementBytes(sges: number): number {
  return ReceiveElement.sge + sges * SGE_BYTES;
}
