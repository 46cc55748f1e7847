/** Serves an `RpcService` over TCP, for the small calls of MOUNT. */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import type { Caller, RpcService } from '#verbs-api/rpcrdma/rpc-service';
import { emitRecord, RecordAssembler } from './record-marking.ts';

/** Maximum bytes of a call; a MOUNT path has at most 1,024. */
const CALL_MAX_BYTES = 16_384;
const CONNECTIONS_MAX = 64;
/** Disconnects clients idle for this long; they reconnect when needed. */
const IDLE_MS = 60_000;
/** Maximum bytes of replies that a client has not received. */
const BACKLOG_MAX_BYTES = 4 << 20;

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

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Stops listening and ends every connection. */
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
    // The close event that follows is sufficient.
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('data', (bytes) => {
      const records = assembler.handle(bytes);
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
    // Not a call: cannot be answered, and the rest of the stream cannot be trusted.
    socket.destroy();
  }
}
