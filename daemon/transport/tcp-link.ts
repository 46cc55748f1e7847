/**
 * One TCP socket for one stream: octets out without waiting, octets in through a buffer that all
 * links of a host share, back-pressure as a value, FIN and reset apart.
 *
 * Octets leave by send(2) on the socket's descriptor, which costs about half of what a write
 * through Node's stream does; what the kernel does not take at once goes through Node, which waits
 * for room. The two never mix: nothing is sent while Node has octets left.
 *
 * Reading is bounded by libuv: at most 32 fillings of the read buffer per socket and turn, so that
 * one link cannot starve the others.
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import { duplicateDescriptor, sendNow, WOULD_BLOCK } from '../../native-bridge/libc/descriptor.ts';
import { errnoName } from '../../native-bridge/libc/libc.ts';
import {
  maximumSegmentBytes,
  pendingError,
  resetOnClose,
  sendSegment,
} from '../../native-bridge/libc/tcp-socket.ts';
import { descriptorOf } from '../../native-bridge/libc/unix-socket.ts';
import type { CaptureTap, LinkPosition, LinkTap } from '../capture/capture-tap.ts';

/**
 * Size of a host's read buffer. One read takes what has come, up to this; larger reads mean fewer
 * wake-ups, and the buffer should stay in the processor's cache.
 */
export const READ_BUFFER_BYTES = 262_144;

/**
 * EMSS when the socket does not tell: an Ethernet MTU of 1500 less IPv6, TCP and timestamps, the
 * smallest of the usual ones (MPA-5.1-02).
 */
export const EMSS_FALLBACK_BYTES = 1428;

/** Who lives on a link. Called from socket events; must not throw. */
export interface LinkUser {
  /** Octets came; borrowed for the call. */
  handleOctets(octets: Uint8Array): void;
  /** The socket has taken `bytes` that `write` had left over; the link is writable again. */
  handleFlushed(bytes: number): void;
  /** The peer's FIN. */
  handlePeerClosed(): void;
  /** The socket is gone, once; the errno name if it failed. Nothing follows. */
  handleClosed(errorCode: string | undefined): void;
  /** Octets that came and that it keeps until more come, for whoever watches the link. */
  readonly heldInput?: Uint8Array;
  /** The queue pair that it serves, for whoever watches the link. */
  readonly queuePair?: ReturnType<LinkPosition['queuePair']>;
}

/** What the links of a host have in common. */
export interface LinkEnvironment {
  readonly readBuffer: Uint8Array;
  readonly tap: CaptureTap | undefined;
}

const NO_OCTETS = new Uint8Array(0);

const NOBODY: LinkUser = {
  handleOctets: () => {},
  handleFlushed: () => {},
  handlePeerClosed: () => {},
  handleClosed: () => {},
};

/** See the module's comment. */
export class TcpLink {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** One write, one end of a segment: set when the peer cannot bear a cut FPDU. */
  segmentAligned = false;
  user: LinkUser = NOBODY;
  readonly #socket: Socket;
  readonly #fd: number | undefined;
  readonly #tap: LinkTap | undefined;
  #leftBytes = 0;
  #finished = false;
  #reset = false;
  #closed = false;
  #errorCode: string | undefined;

  /** For `dialTcp` and the listener: the socket is connected and reads through `reader`. */
  constructor(socket: Socket, reader: LinkReader, environment: LinkEnvironment, dialed: boolean) {
    this.#socket = socket;
    this.#fd = descriptorOf(socket);
    this.localAddress = socket.localAddress ?? '';
    this.localPort = socket.localPort ?? 0;
    this.remoteAddress = socket.remoteAddress ?? '';
    this.remotePort = socket.remotePort ?? 0;
    this.#tap = environment.tap?.opened(
      {
        localAddress: this.localAddress,
        localPort: this.localPort,
        remoteAddress: this.remoteAddress,
        remotePort: this.remotePort,
        dialed,
        emssBytes: this.emssBytes(),
      },
      {
        heldInput: () => this.user.heldInput ?? NO_OCTETS,
        midOutput: () => this.congested,
        queuePair: () => this.user.queuePair,
      },
    );
    reader.deliver = (octets) => {
      this.#tap?.inbound(octets);
      this.user.handleOctets(octets);
    };
    this.#listen(socket);
  }

  /**
   * Octets of payload that one TCP segment holds now (MPA-5.1-01). It changes: Linux grows it with
   * the peer's window, and the path's MTU may shrink it.
   */
  emssBytes(): number {
    return segmentBytes(this.#socket.destroyed ? undefined : this.#fd);
  }

  /** True when octets of an earlier `write` wait for room in the kernel. */
  get congested(): boolean {
    return this.#leftBytes > 0;
  }

  /** True when `write` may be called: nothing is left over and our FIN has not gone. */
  get writable(): boolean {
    return this.#leftBytes === 0 && !this.#finished && !this.#closed && !this.#socket.destroyed;
  }

  /**
   * Sends octets; the link has to be writable. Returns how many the kernel took at once: those are
   * the caller's again. The rest stays borrowed until `handleFlushed`.
   */
  write(octets: Uint8Array): number {
    if (!this.writable) throw new Error('the link is not writable');
    const taken = this.#send(octets);
    if (taken > 0) this.#tap?.outbound(octets.subarray(0, taken));
    if (taken === octets.length || !this.writable) return taken;
    const rest = octets.subarray(taken);
    this.#leftBytes = rest.length;
    this.#socket.write(rest, (error) => {
      // Node calls back without an error, too, when the socket was destroyed meanwhile.
      if (this.#closed || this.#socket.destroyed || (error !== null && error !== undefined)) return;
      this.#tap?.outbound(rest);
      this.#leftBytes = 0;
      this.user.handleFlushed(rest.length);
    });
    return taken;
  }

  /** Octets that come wait in the kernel until `resumeReading`. */
  pauseReading(): void {
    this.#socket.pause();
  }

  resumeReading(): void {
    this.#socket.resume();
  }

  /** Sends our FIN behind what was written. Reading goes on (DDP-6.2.1-06). */
  finish(): void {
    if (this.#finished || this.#closed) return;
    this.#finished = true;
    this.#tap?.finished('us');
    this.#socket.end();
  }

  /**
   * Gives the socket up at once: what the kernel has taken still goes, then a FIN. The kernel
   * resets instead when octets have come that nobody read.
   */
  close(): void {
    if (this.#closed || this.#socket.destroyed) return;
    this.#finished = true;
    this.#socket.destroy();
  }

  /** Resets the connection at once; octets on their way are lost. */
  reset(): void {
    if (this.#closed || this.#socket.destroyed) return;
    this.#finished = true;
    this.#reset = true;
    // Node's own reset first writes everything and shuts down, which may never end.
    if (this.#fd !== undefined) resetOnClose(this.#fd);
    this.#socket.destroy();
  }

  /** Octets taken by the kernel; none when the socket broke, which its 'close' event then tells. */
  #send(octets: Uint8Array): number {
    if (this.#fd === undefined) return 0;
    const sent = this.segmentAligned
      ? sendSegment(this.#fd, octets)
      : sendNow(this.#fd, octets, octets.length);
    if (sent >= 0) return sent;
    if (sent !== WOULD_BLOCK) {
      this.#errorCode ??= errnoName(-sent);
      this.#socket.destroy();
    }
    return 0;
  }

  /** libuv shows a reset behind octets as the end of the stream; the kernel knows better. */
  #wasReset(): boolean {
    if (this.#fd === undefined || this.#socket.destroyed) return false;
    const errorCode = pendingError(this.#fd);
    if (errorCode === undefined) return false;
    this.#errorCode ??= errorCode;
    this.#socket.destroy();
    return true;
  }

  #listen(socket: Socket): void {
    socket.on('end', () => {
      if (this.#wasReset()) return;
      this.#tap?.finished('peer');
      this.user.handlePeerClosed();
    });
    socket.on('error', (error) => {
      this.#errorCode ??= errorCode(error);
    });
    socket.on('close', () => {
      this.#closed = true;
      this.#tap?.closed(this.#reset || this.#errorCode !== undefined);
      this.user.handleClosed(this.#errorCode);
    });
  }
}

/** Carries octets from the socket's read callback, fixed when it is made, to its link. */
export interface LinkReader {
  deliver: (octets: Uint8Array) => void;
}

/** A socket over descriptor `fd` that reads through the shared buffer into the returned reader. */
export function openSocket(
  fd: number,
  environment: LinkEnvironment,
): { readonly socket: Socket; readonly reader: LinkReader } {
  const reader: LinkReader = { deliver: () => {} };
  const onread: OnReadOpts = {
    buffer: environment.readBuffer,
    callback: (bytes, buffer) => {
      reader.deliver(buffer.subarray(0, bytes));
      return true;
    },
  };
  // DDP-6.2.1-04: the peer's FIN must not make this socket send its own.
  const options: SocketConstructorOpts & { readonly onread: OnReadOpts } = {
    fd,
    allowHalfOpen: true,
    onread,
  };
  return { socket: new Socket(options), reader };
}

/**
 * The link of an accepted, paused socket. Node lets only outgoing sockets read into a given
 * buffer, so that the descriptor moves to a socket made here. Where that fails, the accepted socket
 * itself reads, with a fresh buffer each time.
 */
export function adoptAccepted(accepted: Socket, environment: LinkEnvironment): TcpLink {
  const fd = descriptorOf(accepted);
  if (fd !== undefined) {
    const { socket, reader } = openSocket(duplicateDescriptor(fd), environment);
    accepted.destroy();
    return new TcpLink(socket, reader, environment, false);
  }
  const reader: LinkReader = { deliver: () => {} };
  const link = new TcpLink(accepted, reader, environment, false);
  accepted.on('data', (octets: Uint8Array) => reader.deliver(octets));
  accepted.resume();
  return link;
}

/** A connection being made; `cancel` ends it and neither callback is called then. */
export interface Dial {
  cancel(): void;
}

/**
 * Connects the bound socket `fd`, which is the dial's from now on, to an address and port.
 * `onFailed` gets the errno name.
 */
export function dialTcp(
  fd: number,
  remote: { readonly address: string; readonly port: number },
  environment: LinkEnvironment,
  onConnected: (link: TcpLink) => void,
  onFailed: (errorCode: string) => void,
): Dial {
  const { socket, reader } = openSocket(fd, environment);
  const fail = (error: Error): void => {
    socket.destroy();
    onFailed(errorCode(error));
  };
  const connected = (): void => {
    socket.off('error', fail);
    // MPA-5.1-03
    socket.setNoDelay(true);
    onConnected(new TcpLink(socket, reader, environment, true));
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

/** The errno name of a socket's error; EIO when it has none. */
function errorCode(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : 'EIO';
}
