/**
 * The programs that a server offers, and how a call becomes a reply. It is independent of the
 * transport: the RDMA server passes it messages, and a stream server can too.
 */
import type { Credential } from './core/credential.ts';
import type { AnyProcedure, AnyProgram, ArgsOf, ResultOf } from './core/program.ts';
import {
  AuthStatus,
  type CallHeader,
  parseCredential,
  type ReplyOutcome,
  RPC_VERSION,
  readCallHeader,
  writeReplyHeader,
} from './core/rpc-message.ts';
import type { XdrReader } from './core/xdr-reader.ts';
import { XdrError } from './core/xdr-reader.ts';
import type { XdrWriter } from './core/xdr-writer.ts';
import { checkRpc } from './signatures.ts';

/** The sender of a message, and what its transport offers to handlers. */
export interface Caller {
  /** The peer's address, for messages and for exports by host. */
  readonly address: string;
  /**
   * Allocates memory for a bulk result; its content is sent without another copy. The handler owns
   * it until the reply was sent. Fails with ENOMEM beyond the connection's limit.
   */
  bulkBuffer(lengthBytes: number): Promise<Uint8Array>;
}

/** Facts about a call for its handler, besides the arguments. */
export interface ServerCall extends Caller {
  /** The call's XID, chosen by the caller. */
  readonly xid: number;
  /** The caller's credential, as claimed. */
  readonly credential: Credential;
}

/**
 * Executes a procedure. `args` and all views in it are valid until it returns or its promise
 * settles. A bulk result should use memory from `call.bulkBuffer`; other bytes are copied once. If
 * it throws, the caller gets SYSTEM_ERR.
 */
export type Handler<P> = (args: ArgsOf<P>, call: ServerCall) => ResultOf<P> | Promise<ResultOf<P>>;

/** Handlers by procedure name; a missing one yields PROC_UNAVAIL. */
export type Handlers<P extends AnyProgram> = {
  readonly [K in keyof P['procedures']]?: Handler<P['procedures'][K]>;
};

interface Offered {
  readonly procedure: AnyProcedure;
  readonly handle: Handler<AnyProcedure>;
}

/** Observes failed calls, for logs. */
export interface ServiceObserver {
  /** A handler threw, or its result could not be encoded. */
  handlerFailed(program: string, procedure: number, error: unknown): void;
}

const SILENT: ServiceObserver = { handlerFailed: () => undefined };

/** The programs that a server offers: finds the handler of a call and writes its reply. */
export class RpcService {
  /** Program → version → procedure number → handler. */
  readonly #programs = new Map<number, Map<number, Map<number, Offered>>>();
  readonly #observer: ServiceObserver;

  constructor(observer: ServiceObserver = SILENT) {
    checkRpc.construct(observer);
    this.#observer = observer;
  }

  /** Offers a version of a program. RangeError if it is already offered. */
  register<P extends AnyProgram>(program: P, handlers: Handlers<P>): this {
    checkRpc.register(program, handlers);
    const versions = this.#programs.get(program.number) ?? new Map<number, Map<number, Offered>>();
    if (versions.has(program.version)) {
      throw new RangeError(`${program.name} version ${program.version} is offered already`);
    }
    const procedures = new Map<number, Offered>();
    // Each handler's type follows from its name; here they are treated alike.
    const byName = handlers as Readonly<Record<string, Handler<AnyProcedure> | undefined>>;
    for (const [name, procedure] of Object.entries(program.procedures)) {
      const handle = byName[name];
      if (handle !== undefined) procedures.set(procedure.number, { procedure, handle });
    }
    versions.set(program.version, procedures);
    this.#programs.set(program.number, versions);
    return this;
  }

  /**
   * Reads a call and writes its reply, header and results. Returns undefined when done, or a
   * promise that never rejects if the handler is asynchronous. Throws `XdrError` for a message that
   * is not a call: it cannot be answered.
   */
  answer(reader: XdrReader, writer: XdrWriter, caller: Caller): Promise<void> | undefined {
    const header = readCallHeader(reader);
    if ('rpcVersion' in header) {
      writeReplyHeader(writer, header.xid, {
        status: 'rpcMismatch',
        low: RPC_VERSION,
        high: RPC_VERSION,
      });
      return undefined;
    }
    const credential = credentialOf(header);
    if (credential === undefined) {
      writeReplyHeader(writer, header.xid, {
        status: 'authError',
        authStatus: AuthStatus.badCred,
      });
      return undefined;
    }
    const found = this.#find(header);
    if ('status' in found) {
      writeReplyHeader(writer, header.xid, found);
      return undefined;
    }
    return this.#run(found, header, reader, writer, {
      xid: header.xid,
      credential,
      address: caller.address,
      bulkBuffer: (lengthBytes) => caller.bulkBuffer(lengthBytes),
    });
  }

  #find(header: CallHeader): Offered | ReplyOutcome {
    const versions = this.#programs.get(header.program);
    if (versions === undefined) return { status: 'progUnavail' };
    const procedures = versions.get(header.version);
    if (procedures === undefined) {
      const known = [...versions.keys()];
      return { status: 'progMismatch', low: Math.min(...known), high: Math.max(...known) };
    }
    const offered = procedures.get(header.procedure);
    if (offered !== undefined) return offered;
    return { status: header.procedure === 0 ? 'success' : 'procUnavail' };
  }

  #run(
    offered: Offered,
    header: CallHeader,
    reader: XdrReader,
    writer: XdrWriter,
    call: ServerCall,
  ): Promise<void> | undefined {
    const { procedure, handle } = offered;
    const fail = (error: unknown): void => {
      writer.reset();
      writeReplyHeader(writer, header.xid, { status: 'systemErr' });
      this.#observer.handlerFailed(`${header.program}`, header.procedure, error);
    };
    let args: unknown;
    try {
      reader.limitBulk(procedure.readChunksMax ?? 0);
      args = procedure.args.decode(reader);
      reader.finish();
    } catch (error) {
      // Any error but an XdrError is a fault of the codec, not of the caller.
      if (error instanceof XdrError) {
        writeReplyHeader(writer, header.xid, { status: 'garbageArgs' });
      } else {
        fail(error);
      }
      return undefined;
    }
    const finish = (result: unknown): void => {
      writeReplyHeader(writer, header.xid, { status: 'success' });
      writer.limitBulk(procedure.writeChunks?.(args).length ?? 0);
      procedure.result.encode(writer, result);
    };
    try {
      const result = handle(args, call);
      if (result instanceof Promise) return result.then(finish).catch(fail);
      finish(result);
    } catch (error) {
      fail(error);
    }
    return undefined;
  }
}

function credentialOf(header: CallHeader): Credential | undefined {
  try {
    return parseCredential(header.credential);
  } catch (error) {
    if (error instanceof XdrError) return undefined;
    throw error;
  }
}
