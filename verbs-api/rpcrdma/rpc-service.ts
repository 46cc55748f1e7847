/**
 * The programs that a server offers, and how a call becomes a reply. It knows no transport: the
 * RDMA server gives it messages, and a stream server could as well.
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

/** Who a message came from, and what its transport does for handlers. */
export interface Caller {
  /** The peer's address, for messages to people and for exports by host. */
  readonly address: string;
  /**
   * Memory for a bulk result: what is put there is sent without another copy. It is the handler's
   * until the reply has gone. ENOMEM when the connection has its share already.
   */
  bulkBuffer(lengthBytes: number): Promise<Uint8Array>;
}

/** What a handler may want to know besides the arguments. */
export interface ServerCall extends Caller {
  readonly xid: number;
  readonly credential: Credential;
}

/**
 * Carries out a procedure. `args`, and every view in them, are valid until it is done. A bulk
 * result should lie in memory of `call.bulkBuffer`; other octets are copied once. When it throws,
 * the caller gets SYSTEM_ERR.
 */
export type Handler<P> = (args: ArgsOf<P>, call: ServerCall) => ResultOf<P> | Promise<ResultOf<P>>;

/** Handlers by the names of a program's procedures; one that is missing is PROC_UNAVAIL. */
export type Handlers<P extends AnyProgram> = {
  readonly [K in keyof P['procedures']]?: Handler<P['procedures'][K]>;
};

interface Offered {
  readonly procedure: AnyProcedure;
  readonly handle: Handler<AnyProcedure>;
}

/** What a service tells about calls that went wrong, for logs. */
export interface ServiceObserver {
  /** A handler threw, or its result cannot be encoded. */
  handlerFailed(program: string, procedure: number, error: unknown): void;
}

const SILENT: ServiceObserver = { handlerFailed: () => undefined };

/** See the module's comment. */
export class RpcService {
  /** Program → version → procedure number → what carries it out. */
  readonly #programs = new Map<number, Map<number, Map<number, Offered>>>();
  readonly #observer: ServiceObserver;

  constructor(observer: ServiceObserver = SILENT) {
    this.#observer = observer;
  }

  /** Offers a version of a program. RangeError when it is offered already. */
  register<P extends AnyProgram>(program: P, handlers: Handlers<P>): this {
    const versions = this.#programs.get(program.number) ?? new Map<number, Map<number, Offered>>();
    if (versions.has(program.version)) {
      throw new RangeError(`${program.name} version ${program.version} is offered already`);
    }
    const procedures = new Map<number, Offered>();
    // The names of the handlers say which types go with them; here all are alike.
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
   * Reads a call and writes its reply, header and results. Returns undefined when that is done, or
   * a promise of it, which never rejects, when the handler takes its time. Throws `XdrError` for a
   * message that is no call: it cannot be answered.
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
      // Anything else than an XdrError is a fault of the codec, not of the caller.
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
