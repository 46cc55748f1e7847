/** A TCP peer that sends exactly the bytes of a test, and records what it receives. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { emitFpdu, mpaReply, mpaRequest } from './mpa-frames.ts';
import { until } from './patience.ts';

/** One end of a TCP connection, without any protocol. */
export class RawPeer {
  readonly #socket: Socket;
  readonly #received: Uint8Array[] = [];
  receivedBytes = 0;
  /** The other side's FIN was received. */
  ended = false;
  /** errno name of the error that ended it. */
  errorCode: string | undefined;
  closed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (bytes: Uint8Array) => {
      this.#received.push(bytes);
      this.receivedBytes += bytes.length;
    });
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.errorCode = error.code;
    });
    socket.on('close', () => {
      this.closed = true;
    });
  }

  /** Connects to a listener of loopback, from `localAddress` if given. */
  static async dial(port: number, host = '127.0.0.1', localAddress?: string): Promise<RawPeer> {
    const from = localAddress === undefined ? {} : { localAddress };
    const socket = connect({ port, host, allowHalfOpen: true, ...from });
    const peer = new RawPeer(socket);
    // A refusing listener may reset before the connection is reported.
    await until('TCP to connect', () => !socket.connecting || peer.closed);
    return peer;
  }

  get localPort(): number | undefined {
    return this.#socket.localPort;
  }

  /** All bytes received so far. */
  get received(): Buffer {
    return Buffer.concat(this.#received);
  }

  say(...parts: readonly Uint8Array[]): void {
    for (const part of parts) this.#socket.write(part);
  }

  finish(): void {
    this.#socket.end();
  }

  reset(): void {
    this.#socket.resetAndDestroy();
  }

  /** Stops reading, so the other side's bytes pile up. */
  stopReading(): void {
    this.#socket.pause();
  }

  resumeReading(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  async receive(bytes: number): Promise<Buffer> {
    await until(
      `${bytes} bytes, received ${this.receivedBytes}`,
      () => this.receivedBytes >= bytes,
    );
    return this.received;
  }

  /** Waits for the end of the connection by FIN or reset. */
  async overs(): Promise<void> {
    await until('the end of the connection', () => this.ended || this.closed);
  }

  /** As initiator: sends the Request, receives the Reply and keeps it. */
  async initiate(privateData = new Uint8Array(0)): Promise<void> {
    this.say(mpaRequest({ privateData }));
    await this.receive(20);
  }

  /** As responder: receives the Request, and sends the Reply. */
  async respond(privateData = new Uint8Array(0)): Promise<void> {
    await this.receive(20);
    this.say(mpaReply({ privateData }));
  }

  sayFpdu(ulpdu: Uint8Array): void {
    this.say(emitFpdu(ulpdu));
  }
}

/** A listener whose connections become raw peers. */
export class RawListener {
  readonly #server: Server;
  readonly peers: RawPeer[] = [];

  private constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket) => this.peers.push(new RawPeer(socket)));
  }

  static async open(host = '127.0.0.1'): Promise<RawListener> {
    const server = createServer({ allowHalfOpen: true });
    const listener = new RawListener(server);
    await new Promise<void>((resolve) => server.listen(0, host, resolve));
    return listener;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  async peer(): Promise<RawPeer> {
    await until('a connection', () => this.peers.length > 0);
    const peer = this.peers.shift();
    if (peer === undefined) throw new Error('no peer');
    return peer;
  }

  close(): void {
    this.#server.close();
    for (const peer of this.peers) peer.destroy();
  }
}
