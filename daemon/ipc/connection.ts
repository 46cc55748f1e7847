/** One accepted connection: octets in and out, who is at the other end, and bounds. */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import { duplicateDescriptor } from '../../native-bridge/libc/descriptor.ts';
import { DirectWriter } from '../../native-bridge/libc/direct-writer.ts';
import {
  descriptorOf,
  type PeerCredentials,
  peerCredentials,
} from '../../native-bridge/libc/unix-socket.ts';

/** Errors of a socket whose peer ended without a word, as a killed process does. */
const PEER_GONE: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/** See the module's comment. */
export class Connection {
  readonly credentials: PeerCredentials;
  readonly #socket: Socket;
  readonly #writer: DirectWriter;
  /** Receives octets; they are borrowed until it returns. */
  onOctets: (octets: Uint8Array) => void = () => undefined;
  /** Called once, when the connection is over; `reason` is undefined when the peer closed. */
  onClosed: (reason: string | undefined) => void = () => undefined;
  /** Called after `onClosed`: for whoever counts connections. */
  onEnded: () => void = () => undefined;
  /** More unread octets than this cut the connection. */
  unreadMaxBytes: number;
  #reason: string | undefined;
  #closed = false;
  #overdue = false;

  /**
   * Takes over an accepted socket that does not read yet. `readBuffer` may be shared by all
   * connections, since octets are used up before the next read. Throws `SystemCallError`.
   */
  constructor(accepted: Socket, readBuffer: Uint8Array, unreadMaxBytes: number) {
    const fd = descriptorOf(accepted);
    if (fd === undefined) throw new Error('an accepted socket without a descriptor');
    this.credentials = peerCredentials(fd);
    this.unreadMaxBytes = unreadMaxBytes;
    // A server's sockets read into a new buffer each time; one made from a descriptor need not.
    const own = duplicateDescriptor(fd);
    accepted.destroy();
    const options: SocketConstructorOpts & { readonly onread: OnReadOpts } = {
      fd: own,
      readable: true,
      writable: true,
      onread: {
        buffer: readBuffer,
        callback: (length, buffer) => {
          if (!this.#closed) this.onOctets(buffer.subarray(0, length));
          return !this.#closed;
        },
      },
    };
    this.#socket = new Socket(options);
    this.#writer = new DirectWriter(this.#socket);
    this.#socket.on('error', (error) => {
      if (!PEER_GONE.has(`${Reflect.get(error, 'code')}`)) this.#reason ??= error.message;
    });
    this.#socket.on('end', () => this.#finish());
    this.#socket.on('close', () => this.#finish());
    this.#socket.resume();
  }

  /** The descriptor while the connection is open. */
  get fd(): number | undefined {
    return this.#closed ? undefined : descriptorOf(this.#socket);
  }

  /** True when written octets wait for the peer to read. */
  get congested(): boolean {
    return this.#writer.congested;
  }

  /** Octets that wait for the peer to read. */
  get pendingBytes(): number {
    return this.#writer.pendingBytes;
  }

  /** True once it is over. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Sends octets, which may be reused when the call returns. A peer that does not read is cut. */
  write(octets: Uint8Array): void {
    if (this.#closed) return;
    this.#writer.write(octets);
    this.#judgeBacklog();
  }

  /** As `write`, but at the end of this turn, together; the octets stay the connection's. */
  gather(octets: Uint8Array): void {
    if (this.#closed) return;
    this.#writer.gather(octets);
    this.#judgeBacklog();
  }

  /** Sends octets, which are the connection's until `onDone`; nothing happens once it is over. */
  lend(octets: Uint8Array, onDone: () => void): void {
    if (this.#closed) return;
    this.#writer.lend(octets, onDone);
    this.#judgeBacklog();
  }

  #judgeBacklog(): void {
    const { pendingBytes } = this.#writer;
    if (pendingBytes <= this.unreadMaxBytes || this.#overdue) return;
    this.#overdue = true;
    // Not now: whoever writes may be in the middle of what the end of a client takes down.
    queueMicrotask(() => this.cut(`${pendingBytes} octets wait to be read`));
  }

  /**
   * Ends the connection now, after telling `farewell` if the peer takes it at once. `onClosed` is
   * called before this returns.
   */
  cut(reason: string, farewell?: Uint8Array): void {
    if (this.#closed) return;
    this.#reason ??= reason;
    this.#writer.flush();
    if (farewell !== undefined && !this.congested) this.#writer.write(farewell);
    this.#finish();
  }

  /** Ends the connection without a reason to tell. */
  close(): void {
    this.#finish();
  }

  #finish(): void {
    if (this.#closed) return;
    this.#closed = true;
    // Cleaned up before the peer sees the end, so that whoever waits for the end finds it done.
    try {
      this.onClosed(this.#reason);
    } finally {
      this.#socket.destroy();
      this.onEnded();
    }
  }
}
