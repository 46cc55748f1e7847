/** Public types of an RPC client: its options and calls. */
import type { CancelSignal, SocketAddress, WireOptions } from '#contract/verbs/provider';
import type { Credential } from './core/credential.ts';
import type { AnyProgram, ArgsOf, ResultOf } from './core/program.ts';
import type { RequesterCounters, RequesterOptions } from './core/requester-types.ts';
import type { OpaquePadding } from './core/xdr-reader.ts';

/** Options of `connectRpc`. */
export interface RpcClientOptions {
  /** Name or IPv4 or IPv6 address. */
  readonly host: string;
  /** Default: the NFS over RDMA port. */
  readonly port?: number;
  /** Local address to connect from; also selects the device. */
  readonly source?: SocketAddress;
  /** Default credential of calls. Default: AUTH_NONE. */
  readonly credential?: Credential;
  /** Default timeout of calls. Default 30 000. */
  readonly timeoutMs?: number;
  /**
   * Bytes of a Send and of a receive, including the header, rounded down to a KiB. Default 4096.
   */
  readonly inlineBytes?: number;
  /**
   * Maximum bytes of a reply's verifier, to reserve space. Default 0: servers that accept AUTH_NONE
   * and AUTH_SYS return an empty one.
   */
  readonly verifierMaxBytes?: number;
  /** Credits, retries, RFC 5666 features. */
  readonly requester?: RequesterOptions;
  /** The server's preferred padding: calls that fit are sent as RDMA_MSGP. Default: none. */
  readonly padding?: OpaquePadding;
  /** Wire options of the connections. */
  readonly wire?: WireOptions;
}

/** Options of a call. */
export interface CallOptions {
  /** The caller's credential. Default: the client's. */
  readonly credential?: Credential;
  /** Timeout for the reply. Default: the client's. */
  readonly timeoutMs?: number;
  /** Aborts the call, which rejects with code `aborted`. */
  readonly signal?: CancelSignal;
  /**
   * Memory for the bulk results, in order: results that arrive by RDMA are placed there and returned as
   * views of it. Each must be as long as the procedure's `writeChunks` says. Default: memory allocated
   * by the call, which the caller keeps. Content past the end of a result is undefined afterwards.
   */
  readonly bulkInto?: readonly Uint8Array[];
}

/** A connection to a server, re-established when it is lost. */
export interface RpcClient extends AsyncDisposable {
  /**
   * Calls a procedure.
   *
   * Resolves with the result once the server's access to the call's memory has ended. Bytes of
   * `args` must not change until then. Rejects with `RpcError`. Calls wait for credits in FIFO
   * order; replies arrive in any order.
   */
  call<P extends AnyProgram, K extends keyof P['procedures'] & string>(
    program: P,
    procedure: K,
    args: ArgsOf<P['procedures'][K]>,
    options?: CallOptions,
  ): Promise<ResultOf<P['procedures'][K]>>;
  /**
   * Allocates memory for bulk arguments and `bulkInto`, for use in many calls. The device accesses
   * it fastest, and calls open it to the server without a registration. Freed with the client.
   */
  allocate(lengthBytes: number): Promise<Uint8Array>;
  /** Totals of calls, replies and registrations so far. */
  readonly counters: Readonly<RequesterCounters>;
  /** Ends the connection; pending calls reject with `closed`. Idempotent. */
  close(): Promise<void>;
}
