/** Work requests, which a consumer posts to a queue. */
import type { Access, SendFlag, WROpcode } from './enums.ts';

/** Scatter/gather element (`struct ibv_sge`). `MR.sge` makes them. */
export interface SGE {
  /** Address in the memory region (`mr.address` plus an offset). */
  readonly addr: number | bigint;
  /** Bytes. */
  readonly length: number;
  /** Local key of the memory region. */
  readonly lkey: number;
}

/** Parameters of a memory-window bind (`struct ibv_mw_bind_info`). */
export interface BindInfo {
  /** lkey of the window's memory region. */
  readonly lkey: number;
  /** First address of the window, in the region's addresses. */
  readonly addr: number | bigint;
  /** Bytes; 0 unbinds a type 1 window. */
  readonly length: number;
  /** Remote access bits of `Access`, and `Access.zeroBased`. */
  readonly access: Access;
}

/** Fields that every send work request may have. */
interface AnySendWR {
  /** Returned in the completion. Default 0. */
  readonly wrId?: number | bigint | undefined;
  /** Bits of `SendFlag`. Default: none. */
  readonly flags?: SendFlag | undefined;
}

/** The bytes of a Send or a Write: elements, or inline data, or neither for an empty message. */
interface PayloadWR extends AnySendWR {
  /** Registered memory to send from. The bytes must not change until the request completes. */
  readonly sgList?: readonly SGE[] | undefined;
  /**
   * The payload itself, instead of `sgList`; implies `SendFlag.inline`. It is copied before
   * `postSend` returns and needs no registration.
   */
  readonly inlineData?: Uint8Array | undefined;
}

/** The memory at the peer that an RDMA operation reads or writes. */
interface RemoteWR {
  /** Address in the peer's memory region. */
  readonly remoteAddr: number | bigint;
  /** Remote key of the peer's memory region or window. */
  readonly rkey: number;
}

/** Data for the peer's completion. */
interface ImmediateField {
  /** A number: 32 bits on RoCE, 64 bits on iWARP (RFC 7306 §6). */
  readonly immData: number | bigint;
}

/** An address handle as a work request names it; an `AH` is one. */
export interface AddressHandleRef {
  /** The protection domain of the handle. */
  readonly pd: object;
  /** The device's number of the handle. */
  readonly number: number;
}

/** The destination of a datagram (`wr.ud` of `struct ibv_send_wr`). */
export interface DatagramDestination {
  /** An address handle (`AH`) of the queue pair's protection domain. */
  readonly ah: AddressHandleRef;
  /** Number of the queue pair that receives, or 0xffffff for those of a multicast group. */
  readonly remoteQpNum: number;
  /** That queue pair's key: with another one, the datagram is dropped. */
  readonly remoteQkey: number;
}

/** Field of a Send on a queue pair of type UD, where it is required. */
interface DatagramField {
  /** Where the datagram goes. Queue pairs of other types ignore it. */
  readonly ud?: DatagramDestination | undefined;
}

/** An atomic operation on 8 bytes of the peer (RFC 7306 §5). */
interface AtomicWR extends AnySendWR, RemoteWR {
  /** One element of 8 bytes: receives the value before the operation. */
  readonly sgList: readonly SGE[];
}

/** Sends a message to the peer's next receive (RFC 5040 §5.1). */
export interface PlainSendWR extends PayloadWR, DatagramField {
  readonly opcode: typeof WROpcode.send;
}

/** Sends a message with immediate data to the peer's next receive. RoCE only. */
export interface SendWithImmWR extends PayloadWR, ImmediateField, DatagramField {
  readonly opcode: typeof WROpcode.sendWithImm;
}

/** Sends a message and invalidates an STag of the peer (RFC 5040 §5.1). */
export interface SendWithInvWR extends PayloadWR {
  readonly opcode: typeof WROpcode.sendWithInv;
  /** The peer's STag to invalidate. */
  readonly invalidateRkey: number;
}

/** Writes into the peer's memory (RFC 5040 §5.2). */
export interface WriteWR extends PayloadWR, RemoteWR {
  readonly opcode: typeof WROpcode.rdmaWrite;
}

/** Writes into the peer's memory, then completes the peer's next receive with immediate data. */
export interface WriteWithImmWR extends PayloadWR, RemoteWR, ImmediateField {
  readonly opcode: typeof WROpcode.rdmaWriteWithImm;
}

/** Reads from the peer's memory (RFC 5040 §5.3). */
export interface ReadWR extends AnySendWR, RemoteWR {
  readonly opcode: typeof WROpcode.rdmaRead;
  /** Where the bytes go: at most one element. */
  readonly sgList?: readonly SGE[] | undefined;
}

/** Adds to 8 bytes of the peer and returns the previous value (RFC 7306 §5.1). */
export interface FetchAddWR extends AtomicWR {
  readonly opcode: typeof WROpcode.atomicFetchAndAdd;
  /** The addend; 64 bits, wraps. */
  readonly compareAdd: number | bigint;
}

/**
 * Replaces 8 bytes of the peer if they equal a value, and returns the previous value (RFC 7306
 * §5.2).
 */
export interface CompareSwapWR extends AtomicWR {
  readonly opcode: typeof WROpcode.atomicCmpAndSwap;
  /** The value to compare with. */
  readonly compareAdd: number | bigint;
  /** The new value. */
  readonly swap: number | bigint;
}

/** Sends 8 bytes of Immediate Data to the peer's next receive (RFC 7306 §6). iWARP only. */
export interface ImmediateWR extends AnySendWR, ImmediateField {
  readonly opcode: typeof WROpcode.immediate;
}

/** Invalidates an STag of this side. */
export interface LocalInvWR extends AnySendWR {
  readonly opcode: typeof WROpcode.localInv;
  /** The STag to invalidate. */
  readonly invalidateRkey: number;
}

/** Binds a memory window. */
export interface BindMWWR extends AnySendWR {
  readonly opcode: typeof WROpcode.bindMW;
  /** The window's new rkey (from `incRkey`) and its range. */
  readonly bind: BindInfo & { readonly rkey: number };
}

/** A send work request (`struct ibv_send_wr`). Its opcode decides which other fields it has. */
export type SendWR =
  | PlainSendWR
  | SendWithImmWR
  | SendWithInvWR
  | WriteWR
  | WriteWithImmWR
  | ReadWR
  | FetchAddWR
  | CompareSwapWR
  | ImmediateWR
  | LocalInvWR
  | BindMWWR;

/**
 * A send work request as a queue reads it: any field may be missing, since callers can bypass the
 * compiler. Every `SendWR` is a `SendFields`.
 */
export interface SendFields extends PayloadWR, DatagramField {
  readonly opcode: WROpcode;
  readonly remoteAddr?: number | bigint | undefined;
  readonly rkey?: number | undefined;
  readonly invalidateRkey?: number | undefined;
  readonly immData?: number | bigint | undefined;
  readonly compareAdd?: number | bigint | undefined;
  readonly swap?: number | bigint | undefined;
  readonly bind?: (BindInfo & { readonly rkey: number }) | undefined;
}

/** A receive work request (`struct ibv_recv_wr`). */
export interface RecvWR {
  /** Returned in the completion. Default 0. */
  readonly wrId?: number | bigint | undefined;
  /** Destination of the message. The bytes belong to the device until the receive completes. */
  readonly sgList: readonly SGE[];
}
