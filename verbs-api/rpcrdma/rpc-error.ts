/** Why a call returned no result. */
import type { ReplyOutcome } from './core/rpc-message.ts';

/**
 * Stable error codes. Those in capitals are RFC 5531's and RFC 8166's own names.
 *
 * - `PROG_UNAVAIL` … `AUTH_ERROR`: what the server's reply says.
 * - `ERR_VERS`, `ERR_CHUNK`: the server sent RDMA_ERROR.
 * - `badReply`: the reply does not decode, or breaks the binding.
 * - `unfit`: the call cannot be sent: too long, or its argument breaks the XDR; nothing was sent.
 * - `timeout`, `connectionLost`, `closed`, `aborted`: no reply arrived.
 */
export type RpcErrorCode =
  | 'PROG_UNAVAIL'
  | 'PROG_MISMATCH'
  | 'PROC_UNAVAIL'
  | 'GARBAGE_ARGS'
  | 'SYSTEM_ERR'
  | 'RPC_MISMATCH'
  | 'AUTH_ERROR'
  | 'ERR_VERS'
  | 'ERR_CHUNK'
  | 'badReply'
  | 'unfit'
  | 'timeout'
  | 'connectionLost'
  | 'closed'
  | 'aborted';

/** A call failed. `code` is stable; `message` is human-readable. */
export class RpcError extends Error {
  /** Stable code. */
  readonly code: RpcErrorCode;
  /**
   * True if the server may or may not have executed the call. Memory for its bulk results may then
   * have been written to (RFC 8267 §4).
   */
  readonly outcomeUnknown: boolean;

  constructor(code: RpcErrorCode, message: string, outcomeUnknown = false) {
    super(message);
    this.code = code;
    this.outcomeUnknown = outcomeUnknown;
  }

  override get name(): string {
    return 'RpcError';
  }
}

const CODES: Readonly<Record<Exclude<ReplyOutcome['status'], 'success'>, RpcErrorCode>> = {
  progUnavail: 'PROG_UNAVAIL',
  progMismatch: 'PROG_MISMATCH',
  procUnavail: 'PROC_UNAVAIL',
  garbageArgs: 'GARBAGE_ARGS',
  systemErr: 'SYSTEM_ERR',
  rpcMismatch: 'RPC_MISMATCH',
  authError: 'AUTH_ERROR',
};

/** The error for a reply other than success. */
export function errorOfOutcome(
  outcome: Exclude<ReplyOutcome, { status: 'success' }>,
  called: string,
): RpcError {
  const code = CODES[outcome.status];
  switch (outcome.status) {
    case 'progMismatch':
    case 'rpcMismatch':
      return new RpcError(
        code,
        `${called}: ${code}, the server supports versions ${outcome.low} to ${outcome.high}`,
      );
    case 'authError':
      return new RpcError(code, `${called}: AUTH_ERROR ${outcome.authStatus}`);
    default:
      return new RpcError(code, `${called}: ${code}`);
  }
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
