/** Serves an `RpcService` over TCP, for the small calls of MOUNT. */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { XdrError, XdrReader } from '../../verbs-api/rpcrdma/core/xdr-reader.ts';
import { XdrWriter } from '../../verbs-api/rpcrdma/core/xdr-writer.ts';
import type { Caller, RpcService } from '../../verbs-api/rpcrdma/rpc-service.ts';
import { emitRecord, RecordAssembler } from './record-marking.ts';

/** Octets of a call at most; a path of MOUNT has 1,024. */
const CALL_MAX_BYTES = 16_384;
const CONNECTIONS_MAX = 64;
/** A client that says nothing for so long is disconnected; it connects again when it needs to. */
const IDLE_MS = 60_000;
/** Answers that a client does not take. */
const BACKLOG_MAX_BYTES = 4 << 20;

/** A listening server. */
export class TcpRpcServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(service: RpcService) {
    this.#server = createServer((socket) => this.#serve(socket, service));
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  /** Listens. Throws the failed system call. */
  static async listen(service: RpcService, host: string, port: number): Promise<TcpRpcServer> {
    const server = new TcpRpcServer(service);
    server.#server.listen(port, host);
    await once(server.#server, 'listening');
    return server;
  }

  /** Where it listens. */
  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Stops to listen and ends every connection. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #serve(socket: Socket, service: RpcService): void {
    this.#sockets.add(socket);
    const assembler = new RecordAssembler(CALL_MAX_BYTES);
    const caller: Caller = {
      address: socket.remoteAddress ?? '',
      bulkBuffer: async (lengthBytes) => new Uint8Array(lengthBytes),
    };
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    // The close that follows says all there is to say.
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('data', (octets) => {
      const records = assembler.handle(octets);
      if (records === undefined || socket.writableLength > BACKLOG_MAX_BYTES) {
        socket.destroy();
        return;
      }
      for (const record of records) answer(socket, service, caller, record);
    });
  }
}

function answer(socket: Socket, service: RpcService, caller: Caller, record: Buffer): void {
  const writer = new XdrWriter();
  const send = (): void => {
    if (!socket.destroyed) socket.write(emitRecord(writer.payload()));
  };
  try {
    const pending = service.answer(new XdrReader(record), writer, caller);
    if (pending === undefined) send();
    else pending.then(send, () => socket.destroy());
  } catch (error) {
    if (!(error instanceof XdrError)) throw error;
    // No call: nothing to answer, and no telling what comes next.
    socket.destroy();
  }
}
