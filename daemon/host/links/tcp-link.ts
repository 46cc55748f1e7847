/**
 * One TCP socket for one stream: non-blocking output, input through a buffer that all links of a host share,
 * back-pressure as a value, separate FIN and reset.
 *
 * Output uses send(2) on the socket's descriptor, which costs about half of a write through Node's stream.
 * Bytes that the kernel does not accept at once go through Node, which waits for room. The two never mix:
 * nothing is sent while Node has bytes left.
 *
 * libuv bounds reading: at most 32 buffers per socket and turn. So one link cannot starve the others.
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import type { Transmit } from '#base/transmit';
import { sendNow, WOULD_BLOCK } from '#native-bridge/libc/descriptor';
import { isReserved, reservedText } from '#native-bridge/libc/descriptor-limit';
import { errnoName, SystemCallError } from '#native-bridge/libc/libc';
import {
  keepAlive,
  maximumSegmentBytes,
  pendingError,
  resetOnClose,
  sendSegment,
} from '#native-bridge/libc/tcp-socket';
import { descriptorOf } from '#native-bridge/libc/unix-socket';
import { type Dial, type Link, type LinkUser, NO_USER } from './link.ts';
import { type ReadingShare, type ReadingShares, SocketReading } from './reading-share.ts';

/**
 * Size of a host's read buffer. One read returns the available bytes, up to this; larger reads mean
 * fewer wake-ups, and the buffer should stay in the processor's cache.
 */
export const READ_BUFFER_BYTES = 262_144;

/**
 * EMSS if the socket does not report one: an Ethernet MTU of 1500 minus IPv6, TCP and timestamps, the
 * smallest of the usual values (MPA-5.1-02).
 */
const EMSS_FALLBACK_BYTES = 1428;

/** Too many open files. */
const EMFILE = 24;

/** An address and a port. */
export interface SocketPlace {
  readonly address: string;
  readonly port: number;
}

/** Shared by the links of a host. */
export interface LinkEnvironment {
  readonly readBuffer: Uint8Array;
  readonly readings: ReadingShares;
}

export class TcpLink implements Link {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  segmentAligned = false;
  user: LinkUser = NO_USER;
  readonly #socket: Socket;
  readonly #fd: number | undefined;
  #leftBytes = 0;
  #finished = false;
  #closed = false;
  #errorCode: string | undefined;
  readonly #reading: SocketReading;
  readonly #share: ReadingShare;

  /**
   * For `dialTcp` and the listener: the socket is connected, from `local` (bound there) to `remote`
   * if that is known.
   */
  constructor(
    socket: Socket,
    local: SocketPlace,
    remote: SocketPlace | undefined,
    { readings }: LinkEnvironment,
  ) {
    this.#socket = socket;
    this.#fd = descriptorOf(socket);
    const from = isExact(local) ? local : undefined;
    this.localAddress = from?.address ?? socket.localAddress ?? '';
    this.localPort = from?.port ?? socket.localPort ?? 0;
    const to = remote !== undefined && isExact(remote) ? remote : undefined;
    this.remoteAddress = to?.address ?? socket.remoteAddress ?? '';
    this.remotePort = to?.port ?? socket.remotePort ?? 0;
    this.#reading = new SocketReading(socket);
    this.#share = readings.join(this.remoteAddress, this.#reading);
    this.#listen(socket, readings);
  }

  /**
   * Bytes of payload that one TCP segment holds now (MPA-5.1-01). It changes: Linux raises it with
   * the peer's window, and the path's MTU may lower it.
   */
  emssBytes(): number {
    return segmentBytes(this.#socket.destroyed ? undefined : this.#fd);
  }

  get congested(): boolean {
    return this.#leftBytes > 0;
  }

  get writable(): boolean {
    return this.#leftBytes === 0 && !this.#finished && !this.#closed && !this.#socket.destroyed;
  }

  write({ bytes }: Transmit): number {
    if (!this.writable) throw new Error('the link is not writable');
    const taken = this.#send(bytes);
    if (taken === bytes.length || !this.writable) return taken;
    const rest = bytes.subarray(taken);
    this.#leftBytes = rest.length;
    this.#socket.write(rest, (error) => {
      // Node also calls back without an error if the socket was destroyed in the meantime.
      if (this.#closed || this.#socket.destroyed || (error !== null && error !== undefined)) return;
      this.#leftBytes = 0;
      this.user.handleFlushed(rest.length);
    });
    return taken;
  }

  keepAlive(idleSeconds: number, intervalSeconds: number, probes: number): void {
    if (this.#fd === undefined || this.#socket.destroyed) return;
    try {
      keepAlive(this.#fd, idleSeconds, intervalSeconds, probes);
    } catch (error) {
      // A connection that has just broken reports that itself.
      if (!(error instanceof SystemCallError)) throw error;
    }
  }

  pauseReading(): void {
    this.#reading.pause();
  }

  resumeReading(): void {
    this.#reading.resume();
  }

  /** Bytes were read. */
  handleRead(bytes: Uint8Array): void {
    this.#share.note();
    this.user.handleBytes(bytes);
  }

  finish(): void {
    if (this.#finished || this.#closed) return;
    this.#finished = true;
    this.#socket.end();
  }

  close(): void {
    if (this.#closed || this.#socket.destroyed) return;
    this.#finished = true;
    this.#socket.destroy();
  }

  reset(): void {
    if (this.#closed || this.#socket.destroyed) return;
    this.#finished = true;
    // Node's own reset first writes everything and shuts down, which may never end.
    if (this.#fd !== undefined) resetOnClose(this.#fd);
    this.#socket.destroy();
  }

  /**
   * Returns how many bytes the kernel accepted; 0 if the socket broke, which its 'close' event then reports.
   */
  #send(bytes: Uint8Array): number {
    if (this.#fd === undefined) return 0;
    const sent = this.segmentAligned
      ? sendSegment(this.#fd, bytes)
      : sendNow(this.#fd, bytes, bytes.length);
    if (sent >= 0) return sent;
    if (sent !== WOULD_BLOCK) {
      this.#errorCode ??= errnoName(-sent);
      this.#socket.destroy();
    }
    return 0;
  }

  /** libuv reports a reset after bytes as the end of the stream; the kernel distinguishes them. */
  #wasReset(): boolean {
    if (this.#fd === undefined || this.#socket.destroyed) return false;
    const errorCode = pendingError(this.#fd);
    if (errorCode === undefined) return false;
    this.#errorCode ??= errorCode;
    this.#socket.destroy();
    return true;
  }

  #listen(socket: Socket, readings: ReadingShares): void {
    socket.on('end', () => {
      this.#share.note();
      if (this.#wasReset()) return;
      this.user.handlePeerClosed();
    });
    socket.on('error', (error) => {
      this.#share.note();
      this.#errorCode ??= errorCode(error);
    });
    socket.on('close', () => {
      readings.leave(this.remoteAddress, this.#reading);
      this.#closed = true;
      this.user.handleClosed(this.#errorCode);
    });
  }
}

/** A socket whose read callback, fixed at creation, can get a link later. */
interface OpenSocket {
  readonly socket: Socket;
  /** Delivers later input to this link. */
  readTo(link: TcpLink): void;
}

/** True for an address as the kernel uses it: not a wildcard, and not one with a zone. */
function isExact({ address }: SocketPlace): boolean {
  return address !== '0.0.0.0' && !address.includes(':');
}

/** A socket over a descriptor, or over Node's handle of one, that reads through the shared buffer. */
function openSocket(
  source: { readonly fd: number } | { readonly handle: object },
  environment: LinkEnvironment,
): OpenSocket {
  let reader: TcpLink | undefined;
  const onread: OnReadOpts = {
    buffer: environment.readBuffer,
    callback: (bytes, buffer) => {
      reader?.handleRead(buffer.subarray(0, bytes));
      return true;
    },
  };
  // DDP-6.2.1-04: the peer's FIN must not make this socket send its own.
  const options: SocketConstructorOpts & { readonly onread: OnReadOpts } = {
    ...source,
    allowHalfOpen: true,
    onread,
  };
  return {
    socket: new Socket(options),
    readTo: (link) => {
      reader = link;
    },
  };
}

/**
 * The link of a socket that was accepted at `local` and has not read yet. Node allows only outgoing sockets
 * to read into a given buffer, so the connection moves to a socket created here. If that fails, the accepted
 * socket reads, with a new buffer each time. Throws `SystemCallError` EMFILE.
 */
export function adoptAccepted(
  accepted: Socket,
  local: SocketPlace,
  environment: LinkEnvironment,
): TcpLink {
  const fd = descriptorOf(accepted);
  const handle = takeHandle(accepted);
  if (fd !== undefined && handle !== undefined) {
    const { socket, readTo } = openSocket({ handle }, environment);
    if (isReserved(fd)) {
      socket.destroy();
      throw new SystemCallError('accept', EMFILE, reservedText());
    }
    const link = new TcpLink(socket, local, undefined, environment);
    readTo(link);
    return link;
  }
  const link = new TcpLink(accepted, local, undefined, environment);
  accepted.on('data', (bytes: Uint8Array) => link.handleRead(bytes));
  accepted.resume();
  return link;
}

/**
 * Takes the connection out of a socket, as Node does to pass one to another process. The socket then needs no
 * closing. Undefined if this version of Node keeps it elsewhere.
 */
function takeHandle(socket: Socket): object | undefined {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null) return undefined;
  Reflect.set(socket, '_handle', null);
  return handle;
}

/**
 * Connects the socket `fd`, bound to `local`, which it takes over, to an address and port. `onFailed`
 * gets the errno name.
 */
export function dialTcp(
  fd: number,
  local: SocketPlace,
  remote: SocketPlace,
  environment: LinkEnvironment,
  onConnected: (link: TcpLink) => void,
  onFailed: (errorCode: string) => void,
): Dial {
  const { socket, readTo } = openSocket({ fd }, environment);
  const fail = (error: Error): void => {
    socket.destroy();
    onFailed(errorCode(error));
  };
  const connected = (): void => {
    socket.off('error', fail);
    // MPA-5.1-03
    socket.setNoDelay(true);
    const link = new TcpLink(socket, local, remote, environment);
    readTo(link);
    onConnected(link);
  };
  socket.once('error', fail);
  socket.connect({ host: remote.address, port: remote.port }, connected);
  return {
    cancel: () => {
      socket.off('error', fail);
      socket.off('connect', connected);
      socket.on('error', () => {});
      socket.destroy();
    },
  };
}

/** EMSS of a connected socket, or the fallback. */
function segmentBytes(fd: number | undefined): number {
  if (fd === undefined) return EMSS_FALLBACK_BYTES;
  try {
    return maximumSegmentBytes(fd);
  } catch {
    return EMSS_FALLBACK_BYTES;
  }
}

/** The errno name of a socket's error; EIO if it has none. */
function errorCode(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : 'EIO';
}
