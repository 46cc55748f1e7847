/** One connection to the daemon: greeted, then raw bytes both ways. */
import { statSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { constants } from 'node:os';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitHello,
  GREETING_TIMEOUT_MS,
  IPC_VERSION,
  type IpcFrame,
  IpcFrameReader,
  parseWelcome,
  type Role,
  type Welcome,
} from '#contract/protocol/ipc-frames';
import { ERRNO, type ErrnoCode, isVerbsError, VerbsError } from '#contract/verbs/errors';
import { sendNow } from '#native-bridge/libc/descriptor';
import { DirectWriter } from '#native-bridge/libc/direct-writer';
import { descriptorOf } from '#native-bridge/libc/unix-socket';
import { instanceHint } from './daemon-place.ts';
import { checkDaemon, type DaemonPlace } from './daemon-trust.ts';
import { startCommand } from './start-command.ts';

/** Bytes taken from the socket at once. */
const READ_BYTES = 64 * 1024;

export class DaemonConnection {
  readonly welcome: Welcome;
  /** The daemon's pid as reported by the kernel; 0 if it is not visible from here. */
  readonly daemonPid: number;
  readonly #socket: Socket;
  readonly #writer: DirectWriter;
  /** Receives bytes; they are borrowed until it returns. Set it before the next turn. */
  onBytes: (bytes: Uint8Array) => void = () => undefined;
  /** Called once when the connection has ended, at either side's initiative. */
  onClosed: () => void = () => undefined;

  private constructor(socket: Socket, welcome: Welcome, daemonPid: number) {
    this.#socket = socket;
    this.welcome = welcome;
    this.daemonPid = daemonPid;
    this.#writer = new DirectWriter(socket);
  }

  /**
   * Connects, checks the daemon's user, and greets. Rejects with `VerbsError`: ENODEV or
   * ECONNREFUSED if no daemon is running, EACCES if it is not trusted (`checkDaemon`), otherwise
   * the error that the daemon returned.
   */
  static open(place: DaemonPlace, role: Role, token?: Uint8Array): Promise<DaemonConnection> {
    const { path, greetingTimeoutMs = GREETING_TIMEOUT_MS } = place;
    return new Promise((resolve, reject) => {
      let connection: DaemonConnection | undefined;
      let daemonPid = 0;
      const fail = (error: Error) => {
        clearTimeout(timer);
        socket.destroy();
        reject(error);
      };
      const welcomed = (frame: IpcFrame) => {
        const welcome = parseWelcome(frame);
        if (welcome.errno !== 0) return fail(refusal(welcome));
        if (welcome.version !== IPC_VERSION) return fail(versionMismatch(welcome.version));
        clearTimeout(timer);
        connection = new DaemonConnection(socket, welcome, daemonPid);
        resolve(connection);
      };
      const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, welcomed);
      const receive = (bytes: Uint8Array) => {
        if (connection !== undefined) return connection.onBytes(bytes);
        // The daemon sends nothing after its welcome until the client has sent something else.
        try {
          reader.push(bytes);
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
        () => fail(new VerbsError('ETIMEDOUT', silence(path, daemonPid))),
        greetingTimeoutMs,
      );
      socket.on('connect', () => {
        try {
          const fd = descriptorOf(socket);
          if (fd === undefined) throw new VerbsError('EIO', `${path}: the connection is gone`);
          daemonPid = checkDaemon(fd, place);
          greet(socket, fd, emitHello(role, token));
        } catch (error) {
          fail(isVerbsError(error) ? error : new VerbsError('EIO', `${path}: ${messageOf(error)}`));
        }
      });
      socket.on('error', (error) => {
        if (connection === undefined) fail(connectError(error, path));
      });
      socket.on('close', () => {
        if (connection !== undefined) connection.onClosed();
        else fail(new VerbsError('EIO', `the daemon at ${path} closed the connection`));
      });
    });
  }

  /** The descriptor, for polling; undefined once closed. */
  get fd(): number | undefined {
    return descriptorOf(this.#socket);
  }

  write(bytes: Uint8Array, length?: number, onDrained?: () => void): void {
    this.#writer.write(bytes, length, onDrained);
  }

  gather(bytes: Uint8Array): void {
    this.#writer.gather(bytes);
  }

  /** True until the daemon has read everything that was written. */
  get congested(): boolean {
    return this.#writer.congested;
  }

  /** Ends the connection gracefully; the daemon closes it after cleaning up. */
  end(): void {
    this.#writer.flush();
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

function silence(path: string, pid: number): string {
  return `the daemon at ${path}${pid === 0 ? '' : ` (pid ${pid})`} does not answer`;
}

/**
 * Sends the greeting. A daemon that refuses at once may have closed the connection already; its answer
 * can still be read, so a failed write is no error. Node's own write would destroy the socket first.
 */
function greet(socket: Socket, fd: number, hello: Uint8Array): void {
  const sent = sendNow(fd, hello);
  if (sent === -constants.errno.EPIPE) return;
  if (sent < hello.length) socket.write(hello.subarray(Math.max(sent, 0)));
}

function connectError(error: Error, path: string): VerbsError {
  const code: unknown = Reflect.get(error, 'code');
  if (code === 'ENOENT') {
    return new VerbsError(
      'ENODEV',
      `no daemon at ${path}${instanceHint(path)}; start it with \`${startCommand(path)}\``,
    );
  }
  if (code === 'ECONNREFUSED' && !isSocket(path)) {
    return new VerbsError('ENODEV', `no daemon at ${path}: that is not a socket`);
  }
  if (code === 'ECONNREFUSED') {
    const text = `the daemon at ${path} has ended; start it with \`${startCommand(path)}\``;
    return new VerbsError('ECONNREFUSED', text);
  }
  if (code === 'EACCES' || code === 'EPERM') {
    return new VerbsError(
      'EACCES',
      `cannot connect to ${path}: permission denied; the socket or its directory belongs to another user`,
    );
  }
  return new VerbsError('EIO', `${path}: ${error.message}`);
}

/** False for a file of another type; true also if it is gone by now. */
function isSocket(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isSocket() ?? true;
}

export function refusal(welcome: Welcome): VerbsError {
  return new VerbsError(
    errnoCode(welcome.errno),
    `the daemon refused the connection: ${welcome.text}`,
  );
}

/** The error for a daemon of another protocol version. */
function versionMismatch(version: number): VerbsError {
  const age = version < IPC_VERSION ? 'older' : 'newer';
  return new VerbsError(
    'EPROTO',
    `the daemon is ${age} than this program (version ${version} of the protocol, not ` +
      `${IPC_VERSION}): use both from the same release`,
  );
}

/** The errno name of a number; EIO if unknown. */
function errnoCode(errno: number): ErrnoCode {
  for (const [code, { number }] of Object.entries(ERRNO)) {
    if (number === errno) return code as ErrnoCode;
  }
  return 'EIO';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
