/** A client of the daemon's socket that sends arbitrary bytes. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitFrame,
  emitHello,
  FrameType,
  IpcFrameReader,
  parseWelcome,
  Role,
  type Welcome,
} from '#contract/protocol/ipc-frames';
import { decodeValue, encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { sendNow } from '#native-bridge/libc/descriptor';
import { descriptorOf } from '#native-bridge/libc/unix-socket';

/** A received frame, its payload decoded. */
interface ReceivedFrame {
  readonly type: number;
  readonly id: number;
  readonly value: IpcValue;
}

export class IpcClient {
  readonly socket: Socket;
  readonly #frames: ReceivedFrame[] = [];
  #welcome: Welcome | undefined;
  #wake: () => void = () => undefined;
  #closed = false;

  constructor(path: string) {
    const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => {
      if (frame.type === FrameType.welcome) this.#welcome = parseWelcome(frame);
      else {
        const { type, id } = frame;
        this.#frames.push({ type, id, value: decodeValue(frame.payload) });
      }
    });
    this.socket = connect(path);
    this.socket.on('data', (bytes) => {
      // After the greeting some roles use bare records.
      if (this.#welcome === undefined || this.#framed) reader.push(bytes);
      this.#wake();
    });
    this.socket.on('close', () => {
      this.#closed = true;
      this.#wake();
    });
    // A reset counts as an answer here.
    this.socket.on('error', () => undefined);
  }

  #framed = true;

  static async open(path: string, role: Role = Role.control, token?: Uint8Array) {
    const client = new IpcClient(path);
    client.#framed = role === Role.control || role === Role.admin;
    await once(client.socket, 'connect');
    // A daemon that refuses at once may have closed the connection already: Node's own write would then
    // destroy the socket, and its answer would be lost.
    sendNow(descriptorOf(client.socket) ?? -1, emitHello(role, token));
    await client.welcome();
    return client;
  }

  send(bytes: Uint8Array): void {
    this.socket.write(bytes);
  }

  request(id: number, value: IpcValue): void {
    this.send(emitFrame(FrameType.request, id, encodeValue(value)));
  }

  /** The answer to the greeting. */
  async welcome(): Promise<Welcome> {
    return await this.#until(() => this.#welcome);
  }

  async frame(): Promise<ReceivedFrame> {
    return await this.#until(() => this.#frames.shift());
  }

  /** Waits until the daemon closed the connection. */
  async closed(): Promise<void> {
    await this.#until(() => (this.#closed ? true : undefined), true);
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  async #until<T>(look: () => T | undefined, evenClosed = false): Promise<T> {
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      if (this.#closed && !evenClosed) throw new Error('the daemon closed the connection');
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
