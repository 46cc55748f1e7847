/** A TCP proxy that drops replies to calls that the server has carried out. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export class BreakingProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #breakAt: number[];
  #answers = 0;
  #breaks = 0;

  private constructor(targetPort: number, breakAt: readonly number[]) {
    this.#breakAt = [...breakAt];
    this.#server = createServer((client) => this.#relay(client, targetPort));
  }

  /**
   * Listens on a free port of 127.0.0.1 for `targetPort` there. Chunks from the server are counted
   * over all connections; a chunk with a number in `breakAt` is dropped and its connection reset.
   */
  static async start(targetPort: number, breakAt: readonly number[]): Promise<BreakingProxy> {
    const proxy = new BreakingProxy(targetPort, breakAt);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Connections that were reset so far. */
  get breaks(): number {
    return this.#breaks;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #relay(client: Socket, targetPort: number): void {
    const server = connect({ host: '127.0.0.1', port: targetPort, noDelay: true });
    client.setNoDelay(true);
    const both = [client, server];
    for (const socket of both) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        for (const other of both) other.destroy();
      });
    }
    client.pipe(server);
    server.on('data', (bytes) => {
      this.#answers += 1;
      if (this.#answers === this.#breakAt[0]) {
        this.#breakAt.shift();
        this.#breaks += 1;
        for (const socket of both) socket.resetAndDestroy();
        return;
      }
      if (!client.write(bytes)) {
        server.pause();
        client.once('drain', () => server.resume());
      }
    });
  }
}
