/**
 * The public surface of the package: the verbs of an RDMA device, typed, over a running daemon.
 * The same verbs without a daemon are in `iwarpd/embedded`.
 */

export type {
  ConnectionPhase,
  ConnectionSummary,
  CQSummary,
  MRSummary,
  ObjectFilter,
  QPSummary,
  ResetReport,
} from '#contract/protocol/control';
export type {
  FaultKind,
  FaultOpcode,
  FaultSpec,
  FaultStatus,
  FaultVerb,
} from '#contract/protocol/faults';
export type {
  ClientStatus,
  ClientUsage,
  DaemonStatus,
  DeviceStatus,
  HttpReady,
} from '#contract/protocol/ipc-admin';
export type {
  TraceRecord,
  TraceRecordKind,
  TraceRequest,
  TraceSample,
} from '#contract/protocol/trace-sample';
export type {
  AHAttributes,
  DeviceAttributes,
  DeviceBackend,
  DeviceInfo,
  DeviceLowerLayer,
  DeviceTransport,
  GidEntry,
  GlobalRoute,
  PortAttributes,
  QPCapabilities,
  SRQAttributes,
} from '#contract/verbs/attributes';
export type { AsyncEvent, WC } from '#contract/verbs/completion';
export { ConnectionRejectedError, OperationError } from '#contract/verbs/connect-errors';
export {
  Access,
  type AccessBit,
  AsyncEventType,
  type AsyncEventTypeNumber,
  CMEventType,
  type CMEventTypeNumber,
  MTU,
  type MTUNumber,
  MWType,
  type MWTypeNumber,
  QPState,
  type QPStateNumber,
  QPType,
  type QPTypeNumber,
  RDMA_UDP_QKEY,
  SendFlag,
  type SendFlagBit,
  WC_STATUS_TEXT,
  WCFlag,
  type WCFlagBit,
  WCOpcode,
  type WCOpcodeNumber,
  WCStatus,
  type WCStatusNumber,
  WROpcode,
  type WROpcodeNumber,
} from '#contract/verbs/enums';
export {
  ERRNO,
  type ErrnoCode,
  isErrnoCode,
  isVerbsError,
  VerbsError,
  type VerbsErrorFields,
} from '#contract/verbs/errors';
export { GRH_BYTES, type Grh, parseGrh } from '#contract/verbs/gid';
export type {
  AH,
  CancelSignal,
  CMEvent,
  CompChannel,
  ConnectionId,
  ConnectionIdInit,
  ConnectionParameters,
  Context,
  CQ,
  CQInit,
  CQWaitOptions,
  MemoryTier,
  MR,
  MROptions,
  MW,
  PD,
  Provider,
  QP,
  QPInit,
  ResolveOptions,
  ServiceAddress,
  SocketAddress,
  SRQ,
  SRQInit,
  VerbsObject,
  WaitLimit,
  WireOptions,
} from '#contract/verbs/provider';
export type {
  QPAttributes,
  QPModification,
  QPPathAttributes,
  SomePathAttributes,
} from '#contract/verbs/qp-attributes';
export { parseRemoteMemory, type RemoteMemory } from '#contract/verbs/remote-memory';
export type {
  AddressHandleRef,
  BindInfo,
  BindMWWR,
  CompareSwapWR,
  DatagramDestination,
  FetchAddWR,
  ImmediateWR,
  LocalInvWR,
  PlainSendWR,
  ReadWR,
  RecvWR,
  SendWithImmWR,
  SendWithInvWR,
  SendWR,
  SGE,
  WriteWithImmWR,
  WriteWR,
} from '#contract/verbs/work-request';
export { addressGid } from './address-gid.ts';
export { DaemonControl, type DaemonControlOptions } from './client/daemon-control.ts';
export { incRkey } from './client/memory-window.ts';
export {
  type ConnectionRequest,
  type ConnectOptions,
  connect,
  type EndpointOptions,
  type Listener,
  type ListenOptions,
  listen,
} from './connect.ts';
export { type ConnectDaemonOptions, connectDaemon } from './connect-daemon.ts';
export type { Connection, ConnectionParts } from './connection.ts';
export type { Ending, RemoteOptions } from './connection-traffic.ts';
export {
  type AcceptDatagramsOptions,
  type AnswerDatagramsOptions,
  type DatagramEndpoint,
  type DatagramListener,
  type DatagramOptions,
  type DatagramRequest,
  type DatagramService,
  listenDatagrams,
  type OpenDatagramsOptions,
  type OwnedDestination,
  openDatagrams,
  type ResolveDatagramsOptions,
  resolveDatagrams,
} from './datagrams.ts';
export type { MessageOptions } from './message-window.ts';
