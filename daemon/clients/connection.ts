/** One accepted connection: its bytes, the peer's credentials, and limits. */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import { isVerbsError } from '#contract/verbs/errors';
import { duplicateDescriptor } from '#native-bridge/libc/descriptor';
import { DirectWriter } from '#native-bridge/libc/direct-writer';
import { SO_SNDBUF, setBuffer } from '#native-bridge/libc/internet-socket';
import { type PeerProcess, SocketPeer } from '#native-bridge/libc/peer-process';
import { descriptorOf } from '#native-bridge/libc/unix-socket';
import { SocketReading } from '../host/links/reading-share.ts';
import { noteWork } from '../host/turn-note.ts';
import { type CarryOut, CommandPace, CommandShare } from './command-pace.ts';
import type { InputAccount } from './kept-input.ts';
import type { UserShare } from './objects/daemon-budget.ts';

/** Socket errors after the peer was killed. */
const PEER_GONE: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/**
 * Kernel buffer of one connection, which counts twice as much with the kernel's overhead. It is Linux's
 * default, set explicitly so that a user's connections have the same limit on every machine.
 */
const SEND_BUFFER_BYTES = 106_496;

/** Options of a socket, with those that Node's types lack. */
interface SocketOptions extends SocketConstructorOpts {
  readonly onread: OnReadOpts;
  readonly writableHighWaterMark: number;
}

export class ProgramConnection implements InputAccount {
  readonly #peer: PeerProcess;
  /** Closes the handle of the peer's process, unless it belongs to another connection. */
  readonly #releasePeer: () => void;
  readonly #socket: Socket;
  readonly #writer: DirectWriter;
  /** Receives bytes, borrowed until it returns. */
  onBytes: (bytes: Uint8Array) => void = () => undefined;
  /** Called once, when the connection has ended; `reason` is undefined if the peer closed it. */
  onClosed: (reason: string | undefined) => void = () => undefined;
  /** Called after `onClosed`, for the owner's count of connections. */
  onEnded: () => void = () => undefined;
  /**
   * Created over another connection of the process: it may only join objects that the process has
   * open.
   */
  isPaired = false;
  /** Called when the peer has read all bytes that had to wait. */
  onDrained: () => void = () => undefined;
  /** Called before the descriptor is closed, or with undefined if it is closed already. */
  onClosing: (fd: number | undefined) => void = () => undefined;
  /** Limit of unread bytes; beyond it the connection is closed. */
  unreadMaxBytes: number;
  #commands = new CommandShare();
  #share: UserShare | undefined;
  #chargedBytes = 0;
  #keptBytes = 0;
  #reason: string | undefined;
  #closed = false;
  #overdue = false;
  readonly #reading: SocketReading;

  /**
   * Takes over an accepted socket that is not reading yet. `readBuffer` may be shared by all
   * connections, since bytes are consumed before the next read. `distinguishesUsers`: see `SocketPeer`; a
   * socket that other users cannot reach needs no such check. Throws `SystemCallError`.
   */
  static accept(
    accepted: Socket,
    readBuffer: Uint8Array,
    unreadMaxBytes: number,
    distinguishesUsers: boolean,
  ): ProgramConnection {
    const fd = descriptorOf(accepted);
    if (fd === undefined) throw new Error('the accepted socket has no descriptor');
    let current = (): number | undefined => fd;
    const peer = new SocketPeer(() => current(), true, distinguishesUsers);
    // A server's sockets allocate a buffer for each read; one made from a descriptor need not.
    const own = duplicateDescriptor(fd);
    accepted.destroy();
    const connection = new ProgramConnection(
      own,
      peer,
      () => peer.close(),
      readBuffer,
      unreadMaxBytes,
    );
    current = () => connection.fd;
    return connection;
  }

  /**
   * A connection over `own`, one end of a pair of sockets; the process `peer` gets the other end.
   * Takes ownership of the descriptor `own`; `peer` stays the caller's. Otherwise like `accept`.
   */
  static pair(
    own: number,
    peer: PeerProcess,
    readBuffer: Uint8Array,
    unreadMaxBytes: number,
  ): ProgramConnection {
    const connection = new ProgramConnection(
      own,
      peer,
      () => undefined,
      readBuffer,
      unreadMaxBytes,
    );
    connection.isPaired = true;
    return connection;
  }

  private constructor(
    own: number,
    peer: PeerProcess,
    releasePeer: () => void,
    readBuffer: Uint8Array,
    unreadMaxBytes: number,
  ) {
    this.#peer = peer;
    this.#releasePeer = releasePeer;
    this.unreadMaxBytes = unreadMaxBytes;
    setBuffer(own, SO_SNDBUF, SEND_BUFFER_BYTES);
    const options: SocketOptions = {
      fd: own,
      readable: true,
      writable: true,
      // Emits 'drain' whenever bytes had to wait, however few.
      writableHighWaterMark: 0,
      onread: {
        buffer: readBuffer,
        callback: (length, buffer) => {
          this.#commands.reading.note();
          if (!this.#closed) this.onBytes(buffer.subarray(0, length));
          return !this.#closed;
        },
      },
    };
    this.#socket = new Socket(options);
    this.#reading = new SocketReading(this.#socket);
    this.#writer = new DirectWriter(this.#socket, () => this.#charge());
    this.#socket.on('drain', () => this.#drained());
    this.#socket.on('error', (error) => {
      this.#commands.reading.note();
      if (!PEER_GONE.has(`${Reflect.get(error, 'code')}`)) this.#reason ??= error.message;
    });
    this.#socket.on('end', () => {
      this.#commands.reading.note();
      this.#finish();
    });
    this.#socket.on('close', () => this.#finish());
    this.#socket.resume();
  }

  get credentials(): PeerProcess {
    return this.#peer;
  }

  /** The descriptor while the connection is open. */
  get fd(): number | undefined {
    return this.#closed ? undefined : descriptorOf(this.#socket);
  }

  /** True while written bytes wait for the peer to read. */
  get congested(): boolean {
    return this.#writer.congested;
  }

  /** Written bytes that the peer has not read. */
  get pendingBytes(): number {
    return this.#writer.pendingBytes;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Its user's share of a turn for requests; a private one until `shareTurns`. */
  get commands(): CommandShare {
    return this.#commands;
  }

  /** Gives it its user's share of each turn, until it ends. */
  shareTurns(commands: CommandShare): void {
    this.#commands = commands;
    commands.reading.join(this.#reading);
  }

  /** Runs incoming requests from now on, as their user's share of a turn permits. */
  serve(carryOut: CarryOut): void {
    const pace = new CommandPace(this, this.#commands, carryOut);
    this.onBytes = (bytes) => pace.receive(bytes);
  }

  /** Stops reading until `resume`. */
  pause(): void {
    this.#reading.pause();
  }

  resume(): void {
    this.#reading.resume();
  }

  /** Sends bytes, which may be reused after the call. Closes a connection whose peer does not read. */
  write(bytes: Uint8Array): void {
    if (this.#closed) return;
    this.#writer.write(bytes);
    this.#judgeBacklog();
  }

  /** Like `write`, but batched until the end of this turn; `bytes` then belongs to the connection. */
  gather(bytes: Uint8Array): void {
    if (this.#closed) return;
    this.#writer.gather(bytes);
    this.#judgeBacklog();
  }

  /** Sends bytes that belong to the connection until `onDone`; does nothing once it has ended. */
  lend(bytes: Uint8Array, onDone: () => void): void {
    if (this.#closed) return;
    this.#writer.lend(bytes, onDone);
    this.#judgeBacklog();
  }

  #judgeBacklog(): void {
    const { pendingBytes } = this.#writer;
    if (pendingBytes > this.unreadMaxBytes) this.#cutLater(`${pendingBytes} bytes unread`);
  }

  /** Charges bytes that wait for the peer, or for the daemon, to the peer's user, from now on. */
  chargeTo(share: UserShare | undefined): void {
    this.#share = share;
  }

  /** The number of unread bytes changed. */
  #charge(): void {
    const change = (this.#closed ? 0 : this.#socket.writableLength) - this.#chargedBytes;
    if (this.#share === undefined || change === 0) return;
    this.#chargedBytes += change;
    if (change < 0) {
      this.#share.give('unreadBytes', -change);
      return;
    }
    try {
      this.#share.take('unreadBytes', change);
    } catch (error) {
      this.#chargedBytes -= change;
      if (!isVerbsError(error)) throw error;
      this.#cutLater(error.message);
    }
  }

  keep(change: number): void {
    // The end of a connection returns the whole charge.
    if (this.#share === undefined || this.#closed) return;
    this.#keptBytes += change;
    if (change < 0) {
      this.#share.give('inputBytes', -change);
      return;
    }
    try {
      this.#share.take('inputBytes', change);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      // Too much, but stored until the connection ends, which is soon.
      this.#share.add('inputBytes', change);
      this.#cutLater(error.message);
    }
  }

  #drained(): void {
    this.#charge();
    if (!this.#closed) this.onDrained();
  }

  /** Deferred: the caller may use objects that the end of a client destroys. */
  #cutLater(reason: string): void {
    if (this.#overdue) return;
    this.#overdue = true;
    queueMicrotask(() => this.cut(reason));
  }

  /**
   * Ends the connection now, after sending `farewell` if the socket accepts it at once. Calls
   * `onClosed` before it returns.
   */
  cut(reason: string, farewell?: Uint8Array): void {
    if (this.#closed) return;
    this.#reason ??= reason;
    this.#writer.flush();
    if (farewell !== undefined && !this.congested) this.#writer.write(farewell);
    this.#finish();
  }

  close(): void {
    this.#finish();
  }

  #finish(): void {
    if (this.#closed) return;
    this.#closed = true;
    noteWork('end of a connection');
    this.#commands.reading.leave(this.#reading);
    // Clean up before the peer sees the end: a peer that waits for it may rely on the clean-up.
    try {
      this.onClosed(this.#reason);
    } finally {
      this.#charge();
      this.#share?.give('inputBytes', this.#keptBytes);
      this.#releasePeer();
      this.onClosing(descriptorOf(this.#socket));
      this.#socket.destroy();
      this.onEnded();
      this.#forgetOwner();
    }
  }

  /**
   * Another connection of the process may hold on to this one, for the process's credentials; it must
   * not hold on to the objects that used this one.
   */
  #forgetOwner(): void {
    this.onBytes = () => undefined;
    this.onClosed = () => undefined;
    this.onEnded = () => undefined;
    this.onDrained = () => undefined;
    this.onClosing = () => undefined;
  }
}
