/** Calls RPC procedures over a stream, one at a time, for MOUNT and rpcbind. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import type { AnyProgram, ArgsOf, ResultOf } from '#verbs-api/rpcrdma/core/program';
import {
  emitCredential,
  NO_AUTH,
  readReplyHeader,
  writeCallHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { errorOfOutcome, RpcError } from '#verbs-api/rpcrdma/rpc-error';
import { emitRecord, RecordAssembler } from './record-marking.ts';

const REPLY_MAX_BYTES = 4 << 20;
const TIMEOUT_MS = 10_000;

export class TcpRpcClient implements AsyncDisposable {
  readonly #socket: Socket;
  readonly #credential: Credential;
  readonly #assembler = new RecordAssembler(REPLY_MAX_BYTES);
  readonly #replies: Buffer[] = [];
  #xid = randomInt(2 ** 32);
  #wake: (() => void) | undefined;

  private constructor(socket: Socket, credential: Credential) {
    this.#socket = socket;
    this.#credential = credential;
  }

  /** Connects. Throws the failed system call, or ETIMEDOUT. */
  static async connect(host: string, port: number, credential: Credential): Promise<TcpRpcClient> {
    return await TcpRpcClient.#over(connect({ host, port }), `${host}:${port}`, credential);
  }

  /** Connects to a Unix socket, on which the server knows the caller. */
  static async connectLocal(path: string, credential: Credential): Promise<TcpRpcClient> {
    return await TcpRpcClient.#over(connect({ path }), path, credential);
  }

  static async #over(socket: Socket, name: string, credential: Credential): Promise<TcpRpcClient> {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    try {
      await once(socket, 'connect', { signal });
    } catch (error) {
      socket.destroy();
      if (!signal.aborted) throw error;
      const late = new Error(`connect ETIMEDOUT ${name}`);
      throw Object.assign(late, { code: 'ETIMEDOUT' });
    }
    const client = new TcpRpcClient(socket, credential);
    client.#listen();
    return client;
  }

  /** Calls a procedure. `RpcError` for an error reply, a lost connection or a timeout. */
  async call<P extends AnyProgram, K extends keyof P['procedures'] & string>(
    program: P,
    name: K,
    args: ArgsOf<P['procedures'][K]>,
  ): Promise<ResultOf<P['procedures'][K]>> {
    const procedure = program.procedures[name];
    if (procedure === undefined) throw new RangeError(`${program.name} has no ${name}`);
    this.#xid = (this.#xid + 1) >>> 0;
    const writer = new XdrWriter();
    writeCallHeader(writer, {
      xid: this.#xid,
      program: program.number,
      version: program.version,
      procedure: procedure.number,
      credential: emitCredential(this.#credential),
      verifier: NO_AUTH,
    });
    procedure.args.encode(writer, args);
    this.#socket.write(emitRecord(writer.payload()));
    const reader = new XdrReader(await this.#nextReply());
    const header = readReplyHeader(reader);
    if (header.xid !== this.#xid)
      throw new RpcError('badReply', 'the reply belongs to another call');
    if (header.outcome.status !== 'success') {
      throw errorOfOutcome(header.outcome, `${program.name} ${name}`);
    }
    const result = procedure.result.decode(reader);
    reader.finish();
    return result as ResultOf<P['procedures'][K]>;
  }

  async close(): Promise<void> {
    this.#socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #listen(): void {
    // The close event that follows ends the waiting call.
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => this.#wake?.());
    this.#socket.on('data', (bytes) => {
      const records = this.#assembler.handle(bytes);
      if (records === undefined) this.#socket.destroy();
      else this.#replies.push(...records);
      if (this.#replies.length > 0) this.#wake?.();
    });
  }

  async #nextReply(): Promise<Buffer> {
    if (this.#replies.length === 0 && !this.#socket.destroyed) await this.#change();
    const reply = this.#replies.shift();
    if (reply === undefined)
      throw new RpcError('connectionLost', 'the server closed the connection');
    return reply;
  }

  /** Resolves when a reply has arrived or the connection has ended. */
  #change(): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new RpcError('timeout', 'no answer')), TIMEOUT_MS);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
