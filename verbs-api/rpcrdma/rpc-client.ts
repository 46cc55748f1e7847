/** Calls procedures of a server over RDMA. */
import type { CancelSignal } from '../contract/provider.ts';
import type { Credential } from './core/credential.ts';
import type { AnyProgram, ArgsOf, ResultOf } from './core/program.ts';

/** Options of a call. */
export interface CallOptions {
  /** Who calls. Default: the client's. */
  readonly credential?: Credential;
  /** Limit for the reply. Default: the client's. */
  readonly timeoutMs?: number;
  readonly signal?: CancelSignal;
  /**
   * Memory for the bulk results, in order: results that come by RDMA are placed there, and the
   * result's views are views of it. Each must be as long as the procedure's `writeChunks` says.
   * Default: memory of the call's own, which the caller keeps. Whatever the result says, octets
   * behind its end have no defined content afterwards.
   */
  readonly bulkInto?: readonly Uint8Array[];
}

/** A connection to a server, made anew when it is lost. */
export interface RpcClient extends AsyncDisposable {
  /**
   * Calls a procedure.
   *
   * Effect: resolves with the result once the server's access to the call's memory has ended. Octets
   * of `args` must stay as they are until then. Rejects with `RpcError`. Notes: calls wait for
   * credits in the order they were made; replies come in any order.
   */
  call<P extends AnyProgram, K extends keyof P['procedures']>(
    program: P,
    procedure: K,
    args: ArgsOf<P['procedures'][K]>,
    options?: CallOptions,
  ): Promise<ResultOf<P['procedures'][K]>>;
  /**
   * Memory that the device reaches best, for bulk arguments and `bulkInto`; use it for many calls.
   * It goes with the client.
   */
  allocate(lengthBytes: number): Promise<Uint8Array>;
  /** Ends the connection; calls under way reject with `closed`. Twice does no harm. */
  close(): Promise<void>;
}
