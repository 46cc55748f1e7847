/** The public surface of RPC over RDMA: see `README.md` beside this file. */
export { AuthFlavor, type Credential } from './core/credential.ts';
export { NFS_RDMA_PORT } from './core/nfs-port.ts';
export {
  type AnyProcedure,
  type AnyProgram,
  type ArgsOf,
  defineProcedure,
  defineProgram,
  type Procedure,
  type Program,
  type ResultOf,
  voidCodec,
  type XdrCodec,
} from './core/program.ts';
export type { RequesterCounters, RequesterOptions } from './core/requester-types.ts';
export type { ResponderOptions } from './core/responder-types.ts';
export {
  type BulkSource,
  type OpaquePadding,
  roundup,
  XdrError,
  XdrReader,
} from './core/xdr-reader.ts';
export { type BulkItem, emitPayload, type Payload, XdrWriter } from './core/xdr-writer.ts';
export { connectRpc } from './rpc-client.ts';
export type { CallOptions, RpcClient, RpcClientOptions } from './rpc-client-types.ts';
export { RpcError, type RpcErrorCode } from './rpc-error.ts';
export { listenRpc, type RpcServer, type RpcServerOptions } from './rpc-server.ts';
export {
  type Caller,
  type Handler,
  type Handlers,
  RpcService,
  type ServerCall,
  type ServiceObserver,
} from './rpc-service.ts';
