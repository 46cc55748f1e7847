/** One connection to the daemon: greeted, then raw octets both ways. */
import { connect, type Socket } from 'node:net';
import { DirectWriter } from '../../native-bridge/libc/direct-writer.ts';
import { descriptorOf } from '../../native-bridge/libc/unix-socket.ts';
import { ERRNO, type ErrnoCode, VerbsError } from '../contract/errors.ts';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitHello,
  type Frame,
  FrameReader,
  IPC_VERSION,
  parseWelcome,
  type Role,
  type Welcome,
} from '../contract/ipc-frames.ts';

/** Octets taken from the socket at once. */
const READ_BYTES = 64 * 1024;
/** How long the daemon may take to answer the greeting. */
const GREETING_TIMEOUT_MS = 10_000;

/** A greeted connection. */
export class DaemonConnection {
  readonly welcome: Welcome;
  readonly #socket: Socket;
  readonly #writer: DirectWriter;
  /** Receives octets; they are borrowed until it returns. Set it before the next turn. */
  onOctets: (octets: Uint8Array) => void = () => undefined;
  /** Called once when the connection is over, whoever ended it. */
  onClosed: () => void = () => undefined;

  private constructor(socket: Socket, welcome: Welcome) {
    this.#socket = socket;
    this.welcome = welcome;
    this.#writer = new DirectWriter(socket);
  }

  /**
   * Connects and greets. Rejects with `VerbsError`: ENODEV or ECONNREFUSED without a daemon, else
   * the daemon's refusal.
   */
  static open(path: string, role: Role, token?: Uint8Array): Promise<DaemonConnection> {
    return new Promise((resolve, reject) => {
      let connection: DaemonConnection | undefined;
      const fail = (error: Error) => {
        clearTimeout(timer);
        socket.destroy();
        reject(error);
      };
      const welcomed = (frame: Frame) => {
        const welcome = parseWelcome(frame);
        if (welcome.errno !== 0) return fail(refusal(welcome));
        if (welcome.version !== IPC_VERSION) return fail(versionMismatch(welcome.version));
        clearTimeout(timer);
        connection = new DaemonConnection(socket, welcome);
        resolve(connection);
      };
      const reader = new FrameReader(DAEMON_FRAME_MAX_BYTES, welcomed);
      const receive = (octets: Uint8Array) => {
        if (connection !== undefined) return connection.onOctets(octets);
        // The daemon sends nothing behind its welcome until the client has spoken again.
        try {
          reader.push(octets);
        } catch (error) {
          fail(new VerbsError('EPROTO', `${path}: ${messageOf(error)}`));
        }
      };
      const socket = connect({
        path,
        onread: {
          buffer: new Uint8Array(READ_BYTES),
          callback: (length, buffer) => {
            receive(buffer.subarray(0, length));
            return true;
          },
        },
      });
      const timer = setTimeout(
        () => fail(new VerbsError('ETIMEDOUT', `the daemon at ${path} does not answer`)),
        GREETING_TIMEOUT_MS,
      );
      socket.on('connect', () => socket.write(emitHello(role, token)));
      socket.on('error', (error) => {
        if (connection === undefined) fail(connectError(error, path));
      });
      socket.on('close', () => {
        if (connection !== undefined) connection.onClosed();
        else fail(new VerbsError('EIO', `the daemon at ${path} closed the connection`));
      });
    });
  }

  /** The descriptor, for those who poll it themselves; undefined once closed. */
  get fd(): number | undefined {
    return descriptorOf(this.#socket);
  }

  /** See `DirectWriter.write`. */
  write(octets: Uint8Array, length?: number, onDrained?: () => void): void {
    this.#writer.write(octets, length, onDrained);
  }

  /** See `DirectWriter.gather`. */
  gather(octets: Uint8Array): void {
    this.#writer.gather(octets);
  }

  /** True while the daemon has not taken everything that was written. */
  get congested(): boolean {
    return this.#writer.congested;
  }

  /** Says goodbye; the daemon closes when it has cleaned up. */
  end(): void {
    this.#writer.flush();
    this.#socket.end();
  }

  /** Ends it now. */
  destroy(): void {
    this.#socket.destroy();
  }
}

/** What a failed connect means to a program. */
export function connectError(error: Error, path: string): VerbsError {
  const code: unknown = Reflect.get(error, 'code');
  const start = 'start one with `iwarpd start`';
  if (code === 'ENOENT') return new VerbsError('ENODEV', `no daemon at ${path}: ${start}`);
  if (code === 'ECONNREFUSED') {
    return new VerbsError('ECONNREFUSED', `the daemon at ${path} is gone: ${start}`);
  }
  if (code === 'EACCES' || code === 'EPERM') {
    return new VerbsError('EACCES', `the daemon at ${path} belongs to another user`);
  }
  return new VerbsError('EIO', `${path}: ${error.message}`);
}

/** The error of a welcome that refuses. */
export function refusal(welcome: Welcome): VerbsError {
  return new VerbsError(errnoCode(welcome.errno), `the daemon refused: ${welcome.text}`);
}

/** The error for a daemon of another protocol version. */
export function versionMismatch(version: number): VerbsError {
  return new VerbsError(
    'EPROTO',
    `the daemon speaks version ${version} of the protocol, this program ${IPC_VERSION}: ` +
      'use both of the same release',
  );
}

/** The errno name of a number, EIO for an unknown one. */
function errnoCode(errno: number): ErrnoCode {
  for (const [code, { number }] of Object.entries(ERRNO)) {
    if (number === errno) return code as ErrnoCode;
  }
  return 'EIO';
}

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
