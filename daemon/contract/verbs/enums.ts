/**
 * The numbers of the verbs: rdma-core's (`infiniband/verbs.h`), so that logs, tools and programs
 * of both worlds agree.
 *
 * Each set is a constant for programs, typed by a declared enum. The enum emits no code. It keeps the
 * sets apart: the compiler rejects a queue pair's state where an opcode belongs.
 */

/**
 * The named members of an enum. `& number` keeps a member's own type where it is inferred, as in
 * `const wr = { opcode: WROpcode.send }`, which TypeScript otherwise widens to the whole enum.
 */
type Members<E> = { readonly [Name in Extract<keyof E, string>]: E[Name] & number };

/** Type of the members of `Access`. */
declare enum AccessBit {
  none = 0,
  localWrite = 1,
  remoteWrite = 2,
  remoteRead = 4,
  remoteAtomic = 8,
  mwBind = 16,
  zeroBased = 32,
}
/** Access rights of a memory region or window, and of a queue pair (`enum ibv_access_flags`). */
export const Access: Members<typeof AccessBit> = {
  none: 0,
  /** The device may write, as receives and Read Responses do (`IBV_ACCESS_LOCAL_WRITE`). */
  localWrite: 1,
  /** Peers may write; needs `localWrite`. */
  remoteWrite: 2,
  /** Peers may read. */
  remoteRead: 4,
  /** Peers may execute atomics; needs `localWrite`. */
  remoteAtomic: 8,
  /** Memory windows may be bound to the region. */
  mwBind: 16,
  /** Peers address the first byte as 0. */
  zeroBased: 32,
};
export type Access = AccessBit;

/** All access bits that this device knows. */
export const ACCESS_MASK = 63;

/** Type of the members of `QPState`. */
declare enum QPStateNumber {
  RESET = 0,
  INIT = 1,
  RTR = 2,
  RTS = 3,
  SQD = 4,
  SQE = 5,
  ERR = 6,
}
/** State of a queue pair (`enum ibv_qp_state`). */
export const QPState: Members<typeof QPStateNumber> = {
  RESET: 0,
  INIT: 1,
  RTR: 2,
  RTS: 3,
  SQD: 4,
  SQE: 5,
  ERR: 6,
};
export type QPState = QPStateNumber;

/** Type of the members of `QPType`. */
declare enum QPTypeNumber {
  rc = 2,
  uc = 3,
  ud = 4,
}
/** Type of a queue pair (`enum ibv_qp_type`): reliable, unreliable, datagrams. */
export const QPType: Members<typeof QPTypeNumber> = { rc: 2, uc: 3, ud: 4 };
export type QPType = QPTypeNumber;

/** Key of the queue pairs of datagram ids, as in rdma_cm. */
export const RDMA_UDP_QKEY = 0x0123_4567;

/** Type of the members of `MTU`. */
declare enum MTUNumber {
  mtu256 = 1,
  mtu512 = 2,
  mtu1024 = 3,
  mtu2048 = 4,
  mtu4096 = 5,
}
/** Payload of a packet (`enum ibv_mtu`): the number in the name is in bytes. */
export const MTU: Members<typeof MTUNumber> = {
  mtu256: 1,
  mtu512: 2,
  mtu1024: 3,
  mtu2048: 4,
  mtu4096: 5,
};
export type MTU = MTUNumber;

/** Type of the members of `WROpcode`. */
declare enum WROpcodeNumber {
  rdmaWrite = 0,
  rdmaWriteWithImm = 1,
  send = 2,
  sendWithImm = 3,
  rdmaRead = 4,
  atomicCmpAndSwap = 5,
  atomicFetchAndAdd = 6,
  localInv = 7,
  bindMW = 8,
  sendWithInv = 9,
  immediate = 64,
}
/** Opcode of a send work request (`enum ibv_wr_opcode`; `immediate` is iWARP's own, RFC 7306 §6). */
export const WROpcode: Members<typeof WROpcodeNumber> = {
  rdmaWrite: 0,
  /** An RDMA Write with immediate data; on iWARP a Write and an Immediate Data message. */
  rdmaWriteWithImm: 1,
  send: 2,
  /** A Send with 4 bytes of immediate data; RoCE only. */
  sendWithImm: 3,
  rdmaRead: 4,
  atomicCmpAndSwap: 5,
  atomicFetchAndAdd: 6,
  localInv: 7,
  bindMW: 8,
  sendWithInv: 9,
  /** An Immediate Data message without a Write: 8 bytes to the peer's next receive; iWARP only. */
  immediate: 64,
};
export type WROpcode = WROpcodeNumber;

/** Type of the members of `SendFlag`. */
declare enum SendFlagBit {
  none = 0,
  fence = 1,
  signaled = 2,
  solicited = 4,
  inline = 8,
}
/** Flags of a send work request (`enum ibv_send_flags`). */
export const SendFlag: Members<typeof SendFlagBit> = {
  none: 0,
  /** Wait for earlier RDMA Reads and atomics (`IBV_SEND_FENCE`). */
  fence: 1,
  /** Ask for a completion (`IBV_SEND_SIGNALED`). */
  signaled: 2,
  /** Raise a solicited event at the peer (`IBV_SEND_SOLICITED`). */
  solicited: 4,
  /** Copy the payload when posting; buffers need no registration (`IBV_SEND_INLINE`). */
  inline: 8,
};
export type SendFlag = SendFlagBit;

/** Type of the members of `WCOpcode`. */
declare enum WCOpcodeNumber {
  send = 0,
  rdmaWrite = 1,
  rdmaRead = 2,
  compSwap = 3,
  fetchAdd = 4,
  bindMW = 5,
  localInv = 6,
  recv = 128,
  recvImmediate = 129,
}
/** Opcode of a work completion (`enum ibv_wc_opcode`). */
export const WCOpcode: Members<typeof WCOpcodeNumber> = {
  send: 0,
  rdmaWrite: 1,
  rdmaRead: 2,
  compSwap: 3,
  fetchAdd: 4,
  bindMW: 5,
  localInv: 6,
  recv: 128,
  /** A receive taken by an RDMA Write with immediate data, or by Immediate Data of iWARP. */
  recvImmediate: 129,
};
export type WCOpcode = WCOpcodeNumber;

/** Type of the members of `WCStatus`. */
declare enum WCStatusNumber {
  success = 0,
  locLenErr = 1,
  locQpOpErr = 2,
  locProtErr = 4,
  wrFlushErr = 5,
  mwBindErr = 6,
  badRespErr = 7,
  locAccessErr = 8,
  remInvReqErr = 9,
  remAccessErr = 10,
  remOpErr = 11,
  retryExcErr = 12,
  rnrRetryExcErr = 13,
  fatalErr = 19,
  generalErr = 21,
}
/** Status of a work completion (`enum ibv_wc_status`). */
export const WCStatus: Members<typeof WCStatusNumber> = {
  success: 0,
  locLenErr: 1,
  locQpOpErr: 2,
  locProtErr: 4,
  wrFlushErr: 5,
  mwBindErr: 6,
  badRespErr: 7,
  locAccessErr: 8,
  remInvReqErr: 9,
  remAccessErr: 10,
  remOpErr: 11,
  retryExcErr: 12,
  rnrRetryExcErr: 13,
  fatalErr: 19,
  generalErr: 21,
};
export type WCStatus = WCStatusNumber;

/** `ibv_wc_status_str` for each status. */
export const WC_STATUS_TEXT: Readonly<Record<WCStatus, string>> = {
  0: 'success',
  1: 'local length error',
  2: 'local QP operation error',
  4: 'local protection error',
  5: 'Work Request Flushed Error',
  6: 'memory management operation error',
  7: 'bad response error',
  8: 'local access error',
  9: 'remote invalid request error',
  10: 'remote access error',
  11: 'remote operation error',
  12: 'transport retry counter exceeded',
  13: 'RNR retry counter exceeded',
  19: 'fatal error',
  21: 'general error',
};

/** Type of the members of `WCFlag`. */
declare enum WCFlagBit {
  grh = 1,
  withImm = 2,
  withInv = 8,
}
/** Flags of a work completion (`enum ibv_wc_flags`). */
export const WCFlag: Members<typeof WCFlagBit> = {
  /** A datagram: its buffer begins with a GRH of `GRH_BYTES`. */
  grh: 1,
  /** `immData` holds what the peer sent. */
  withImm: 2,
  /** The peer invalidated `invalidatedRkey`. */
  withInv: 8,
};
export type WCFlag = WCFlagBit;

/** Type of the members of `AsyncEventType`. */
declare enum AsyncEventTypeNumber {
  cqErr = 0,
  qpFatal = 1,
  qpReqErr = 2,
  qpAccessErr = 3,
  commEst = 4,
  sqDrained = 5,
  deviceFatal = 8,
  portActive = 9,
  portErr = 10,
  srqLimitReached = 15,
  qpLastWqeReached = 16,
  gidChange = 18,
}
/** Type of an asynchronous event (`enum ibv_event_type`). */
export const AsyncEventType: Members<typeof AsyncEventTypeNumber> = {
  cqErr: 0,
  qpFatal: 1,
  qpReqErr: 2,
  qpAccessErr: 3,
  commEst: 4,
  sqDrained: 5,
  deviceFatal: 8,
  portActive: 9,
  portErr: 10,
  srqLimitReached: 15,
  qpLastWqeReached: 16,
  /** An address of the host changed, and with it the GID table of a RoCE device. */
  gidChange: 18,
};
export type AsyncEventType = AsyncEventTypeNumber;

/** Type of the members of `MWType`. */
declare enum MWTypeNumber {
  type1 = 1,
  type2 = 2,
}
/** Type of a memory window (`enum ibv_mw_type`). */
export const MWType: Members<typeof MWTypeNumber> = { type1: 1, type2: 2 };
export type MWType = MWTypeNumber;

/** Type of the members of `CMEventType`. */
declare enum CMEventTypeNumber {
  addrResolved = 0,
  addrError = 1,
  routeResolved = 2,
  routeError = 3,
  connectRequest = 4,
  connectResponse = 5,
  connectError = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  deviceRemoval = 11,
  timewaitExit = 15,
}
/** Event of a connection id (`enum rdma_cm_event_type`). */
export const CMEventType: Members<typeof CMEventTypeNumber> = {
  addrResolved: 0,
  addrError: 1,
  routeResolved: 2,
  routeError: 3,
  connectRequest: 4,
  connectResponse: 5,
  connectError: 6,
  unreachable: 7,
  rejected: 8,
  established: 9,
  disconnected: 10,
  deviceRemoval: 11,
  timewaitExit: 15,
};
export type CMEventType = CMEventTypeNumber;

/** The types of the constants, for generated declarations. */
export type {
  AccessBit,
  AsyncEventTypeNumber,
  CMEventTypeNumber,
  MTUNumber,
  MWTypeNumber,
  QPStateNumber,
  QPTypeNumber,
  SendFlagBit,
  WCFlagBit,
  WCOpcodeNumber,
  WCStatusNumber,
  WROpcodeNumber,
};
