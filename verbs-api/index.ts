/**
 * The public surface of the package: the verbs of an RDMA device, typed, over a running daemon.
 * The same verbs without a daemon are in `iwarpd/embedded`.
 */
export { DaemonControl, type DaemonControlOptions } from './client/daemon-control.ts';
export { incRkey } from './client/memory-window.ts';
export {
  type Connection,
  type ConnectionParts,
  type ConnectionRequest,
  type ConnectOptions,
  connect,
  type EndpointOptions,
  type Listener,
  type ListenOptions,
  listen,
} from './connect.ts';
export { type ConnectDaemonOptions, connectDaemon } from './connect-daemon.ts';
export type {
  DeviceAttributes,
  DeviceBackend,
  DeviceInfo,
  PortAttributes,
  QPAttributes,
  QPCapabilities,
  SRQAttributes,
} from './contract/attributes.ts';
export type { AsyncEvent, WC } from './contract/completion.ts';
export { ConnectionRejectedError } from './contract/connect-errors.ts';
export type {
  ConnectionSummary,
  CQSummary,
  MRSummary,
  ObjectFilter,
  QPSummary,
  ResetReport,
} from './contract/control.ts';
export {
  Access,
  AsyncEventType,
  CMEventType,
  MWType,
  QPState,
  SendFlag,
  WC_STATUS_TEXT,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from './contract/enums.ts';
export {
  ERRNO,
  type ErrnoCode,
  isErrnoCode,
  isVerbsError,
  VerbsError,
  type VerbsErrorFields,
} from './contract/errors.ts';
export type {
  FaultKind,
  FaultOpcode,
  FaultSpec,
  FaultStatus,
  FaultVerb,
} from './contract/faults.ts';
export type {
  ClientStatus,
  ClientUsage,
  DaemonStatus,
  DeviceStatus,
  HttpReady,
} from './contract/ipc-admin.ts';
export type {
  CancelSignal,
  CMEvent,
  CompChannel,
  ConnectionId,
  ConnectionParameters,
  Context,
  CQ,
  CQInit,
  MemoryTier,
  MR,
  MROptions,
  MW,
  PD,
  Provider,
  QP,
  QPInit,
  SocketAddress,
  SRQ,
  SRQInit,
  VerbsObject,
  WireOptions,
} from './contract/provider.ts';
export type {
  TraceRecord,
  TraceRecordKind,
  TraceRequest,
  TraceSample,
} from './contract/trace-sample.ts';
export type { BindInfo, RecvWR, SendWR, SGE } from './contract/work-request.ts';
