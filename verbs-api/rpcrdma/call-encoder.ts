/** The RPC message of a call, and the result in its reply. */
import type { Credential } from './core/credential.ts';
import type { AnyProcedure, AnyProgram } from './core/program.ts';
import type { CallOutcome, CallRequest } from './core/requester-types.ts';
import {
  emitCredential,
  NO_AUTH,
  type OpaqueAuth,
  REPLY_HEADER_MIN_BYTES,
  readReplyHeader,
  writeCallHeader,
} from './core/rpc-message.ts';
import { type OpaquePadding, XdrError, XdrReader } from './core/xdr-reader.ts';
import { type Payload, XdrWriter } from './core/xdr-writer.ts';
import { nowMs } from './deadline-timer.ts';
import type { CallOptions, RpcClientOptions } from './rpc-client-types.ts';
import { errorOfOutcome } from './rpc-error.ts';

const DEFAULT_TIMEOUT_MS = 30_000;
const NO_RESULTS: readonly number[] = [];
const NO_MEMORY: readonly Uint8Array[] = [];

export interface Invocation {
  readonly program: AnyProgram;
  readonly name: string;
  readonly procedure: AnyProcedure;
  readonly args: unknown;
  readonly options: CallOptions;
}

/** State of a call until its reply. */
export interface CallInProgress {
  readonly xid: number;
  readonly procedure: AnyProcedure;
  readonly program: AnyProgram;
  readonly name: string;
  /** Holds the message: give it back when the call has completed. */
  readonly writer: XdrWriter;
}

type Reply = CallOutcome & { readonly type: 'reply' };

export class CallEncoder {
  readonly #options: RpcClientOptions;
  readonly #writers: XdrWriter[] = [];
  #lastCredential: { readonly credential: Credential; readonly wire: OpaqueAuth } | undefined;

  constructor(options: RpcClientOptions) {
    this.#options = options;
  }

  /** A writer; give it back. */
  takeWriter(): XdrWriter {
    return this.#writers.pop() ?? new XdrWriter();
  }

  giveBack(writer: XdrWriter): void {
    this.#writers.push(writer);
  }

  /**
   * Encodes a call into `writer`, as the requester takes it. Throws for arguments that do not fit
   * their description.
   */
  encode(xid: number, invocation: Invocation, writer: XdrWriter): CallRequest {
    const { procedure, args, options } = invocation;
    const { padding, verifierMaxBytes = 0, timeoutMs = DEFAULT_TIMEOUT_MS } = this.#options;
    const resultBytes = procedure.writeChunks?.(args) ?? NO_RESULTS;
    const bulkInto = options.bulkInto ?? NO_MEMORY;
    for (const [i, into] of bulkInto.entries()) {
      const neededBytes = resultBytes[i];
      // RPCR-3.6-04 Chunks can only be offered for results that the binding names.
      if (neededBytes === undefined) throw new RangeError(`no bulk result for bulkInto[${i}]`);
      // RPCR2-3.4.6-01 Room for the largest result.
      if (into.length < neededBytes) {
        throw new RangeError(`bulkInto[${i}] of ${into.length} bytes, ${neededBytes} are needed`);
      }
    }
    let padded: CallRequest['padded'];
    if (padding !== undefined) {
      const { stream, ...rest } = this.#message(xid, invocation, writer, padding);
      padded = { padding, payload: { ...rest, stream: stream.slice() } };
    }
    return {
      payload: this.#message(xid, invocation, writer, undefined),
      padded,
      resultBytes,
      replyMaxBytes: REPLY_HEADER_MIN_BYTES + verifierMaxBytes + procedure.resultMaxBytes(args),
      idempotent: procedure.idempotent ?? false,
      deadlineMs: nowMs() + (options.timeoutMs ?? timeoutMs),
    };
  }

  #message(
    xid: number,
    { program, procedure, args, options }: Invocation,
    writer: XdrWriter,
    padding: OpaquePadding | undefined,
  ): Payload {
    writer.reset();
    writeCallHeader(writer, {
      xid,
      program: program.number,
      version: program.version,
      procedure: procedure.number,
      credential: this.#wireCredential(options.credential ?? this.#options.credential),
      verifier: NO_AUTH,
    });
    writer.limitBulk(procedure.readChunksMax ?? 0);
    if (padding !== undefined) writer.pad(padding);
    procedure.args.encode(writer, args);
    return writer.payload();
  }

  /** Most calls use the same credential: encode it once. */
  #wireCredential(credential: Credential | undefined): OpaqueAuth {
    if (credential === undefined) return NO_AUTH;
    if (this.#lastCredential?.credential !== credential) {
      this.#lastCredential = { credential, wire: emitCredential(credential) };
    }
    return this.#lastCredential.wire;
  }
}

/** Program and procedure, for errors. */
export function calledName(program: AnyProgram, name: string): string {
  return `${program.name} ${name}`;
}

/**
 * The result of a call, from the bytes of its reply. The result may contain views of these bytes.
 * Throws `XdrError` for an unreadable reply, `RpcError` for an error reply.
 */
export function decodeResult(call: CallInProgress, bytes: Uint8Array, reply: Reply): unknown {
  const reader = new XdrReader(bytes, reply.bulk);
  const header = readReplyHeader(reader);
  if (header.xid !== call.xid) throw new XdrError('the XID is that of another call');
  if (header.outcome.status !== 'success') {
    throw errorOfOutcome(header.outcome, calledName(call.program, call.name));
  }
  if (reply.padding !== undefined) reader.expectPadding(reply.padding);
  const result = call.procedure.result.decode(reader);
  reader.finish();
  return result;
}
