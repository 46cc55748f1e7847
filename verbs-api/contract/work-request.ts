/** Work requests: what a consumer posts to a queue. */
import type { WROpcode } from './enums.ts';

/** Scatter/gather element (`struct ibv_sge`). */
export interface SGE {
  /** Address as the memory region counts it (`mr.address` plus an offset). */
  readonly addr: number | bigint;
  /** Octets. */
  readonly length: number;
  /** Local key of the memory region. */
  readonly lkey: number;
}

/** Parameters of a memory-window bind (`struct ibv_mw_bind_info`). */
export interface BindInfo {
  /** lkey of the memory region behind the window. */
  readonly lkey: number;
  readonly addr: number | bigint;
  /** Octets; 0 unbinds a type 1 window. */
  readonly length: number;
  /** Remote access bits of `Access`, and `Access.zeroBased`. */
  readonly access: number;
}

/** A send work request (`struct ibv_send_wr`). */
export interface SendWR {
  /** Comes back in the completion. Default 0. */
  readonly wrId?: number | bigint;
  readonly opcode: WROpcode;
  /** Bits of `SendFlag`. Default 0. */
  readonly flags?: number;
  readonly sgList?: readonly SGE[];
  /** With `SendFlag.inline`: the payload itself, instead of `sgList`. */
  readonly inlineData?: Uint8Array;
  /** RDMA and atomics: address and key at the peer. */
  readonly remoteAddr?: number | bigint;
  readonly rkey?: number;
  /** sendWithInv: the peer's STag to invalidate. localInv: our own. */
  readonly invalidateRkey?: number;
  /** immediate and rdmaWriteWithImm: 8 octets as a number in network order (RFC 7306 §6). */
  readonly immData?: number | bigint;
  /** atomicFetchAndAdd: the addend. atomicCmpAndSwap: the value to compare with. */
  readonly compareAdd?: number | bigint;
  /** atomicCmpAndSwap: the new value. */
  readonly swap?: number | bigint;
  /** bindMW: the window's new rkey (from `incRkey`) and what it covers. */
  readonly bind?: BindInfo & { readonly rkey: number };
}

/** A receive work request (`struct ibv_recv_wr`). */
export interface RecvWR {
  readonly wrId?: number | bigint;
  readonly sgList: readonly SGE[];
}
