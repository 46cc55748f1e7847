/**
 * The daemon's socket: accepts connections, learns from each greeting what it is for, and hands it
 * to its client. Whatever octets come, only the client that sent them can be harmed.
 */
import { createServer, type Server, type Socket } from 'node:net';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';
import type { Handle } from '../../verbs-api/contract/commands.ts';
import type { ObjectSummaries } from '../../verbs-api/contract/control.ts';
import { ERRNO, isVerbsError, VerbsError } from '../../verbs-api/contract/errors.ts';
import type { ClientStatus } from '../../verbs-api/contract/ipc-admin.ts';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitValueFrame,
  emitWelcome,
  FRAME_HEADER_BYTES,
  FrameReader,
  FrameType,
  HELLO_BYTES,
  type Hello,
  IPC_VERSION,
  parseHello,
  Role,
  TOKEN_BYTES,
  tokenText,
} from '../../verbs-api/contract/ipc-frames.ts';
import { decodeValue, IpcFormatError, type IpcValue } from '../../verbs-api/contract/ipc-value.ts';
import type { MemoryTier } from '../../verbs-api/contract/provider.ts';
import type { DeviceHost } from '../adapter/device-backend.ts';
import type { RnicHost } from '../adapter/rnic-host.ts';
import type { TapHub } from '../capture/tap-hub.ts';
import type { WorkHub } from '../capture/work-hub.ts';
import { Connection } from './connection.ts';
import { ControlClient, type SecondaryRole } from './control-client.ts';
import { KernelServer, type KernelWelcome } from './kernel/kernel-server.ts';
import { listenAtPlace } from './socket-place.ts';
import { parseTapFilter, TapStream } from './tap-stream.ts';
import type { ClientQuotas } from './verbs/quotas.ts';

/** Octets read from a connection at once. */
const READ_BYTES = 64 * 1024;
/** Operations of one admin connection that may wait for their outcome at the same time. */
const PENDING_OPERATIONS_MAX = 16;
const GREETING_BYTES = FRAME_HEADER_BYTES + HELLO_BYTES;

/** Where the server reports what it did. */
export interface IpcLog {
  /** A client came or went, or a connection was refused. */
  note(level: 'info' | 'warn', text: string, fields: Readonly<Record<string, unknown>>): void;
}

/** Options of the server. */
export interface IpcServerOptions {
  readonly socketPath: string;
  readonly host: RnicHost;
  /** Serves native devices to clients of the verbs; unmodified programs see the emulated ones. */
  readonly native?: DeviceHost | undefined;
  readonly quotas: ClientQuotas;
  readonly memoryTiers: readonly MemoryTier[];
  /** Clients of other users are served, too; only root's and the daemon's own otherwise. */
  readonly allowOtherUsers: boolean;
  /** Octets that may wait for a client to read them before it is cut off. */
  readonly unreadMaxBytes: number;
  /** Connections, of all clients, at the same time. */
  readonly connectionsMax: number;
  /** How long a connection may take to greet, in milliseconds. */
  readonly greetingTimeoutMs: number;
  readonly log: IpcLog;
  /** Where connections can be watched. */
  readonly taps: TapHub;
  /** Where the work of devices can be watched. */
  readonly work: WorkHub;
  /**
   * Does what an admin connection asks for; rejects with `VerbsError`. Only the daemon's own user and
   * root may change anything.
   */
  readonly operate: (
    name: unknown,
    request: unknown,
    caller: { readonly mayChange: boolean },
  ) => Promise<unknown>;
}

/** See the module's comment. */
export class IpcServer {
  readonly #options: IpcServerOptions;
  readonly #server: Server;
  readonly #readBuffer = new Uint8Array(READ_BYTES);
  readonly #connections = new Set<Connection>();
  readonly #clients = new Map<string, ControlClient>();
  readonly #channels = new Map<string, { readonly client: ControlClient; channel: Handle }>();
  readonly #kernel: KernelServer;
  #lastClientId = 0;

  private constructor(options: IpcServerOptions) {
    this.#options = options;
    const { host, quotas, memoryTiers, log } = options;
    const note: IpcLog['note'] = (level, text, fields) => log.note(level, text, fields);
    const nextClientId = () => this.#nextClientId();
    this.#kernel = new KernelServer({ host, quotas, memoryTiers, note, nextClientId });
    this.#server = createServer({ pauseOnConnect: true }, (socket) => this.#accept(socket));
  }

  /** Listens. Rejects with `VerbsError`, see `listenAtPlace`. */
  static async listen(options: IpcServerOptions): Promise<IpcServer> {
    const server = new IpcServer(options);
    const { socketPath: path, allowOtherUsers: shared } = options;
    await listenAtPlace(server.#server, { path, shared });
    server.#server.on('error', (error) => {
      options.log.note('warn', 'cannot accept', { error: error.message });
    });
    return server;
  }

  /** Every client, with what it holds. */
  clients(): ClientStatus[] {
    const clients = [...this.#clients.values()].map((client) => client.status());
    return [...clients, ...this.#kernel.clients()];
  }

  /** The objects of every client. */
  objects(): ObjectSummaries {
    const parts = [
      ...[...this.#clients.values()].map((client) => client.objects()),
      ...this.#kernel.objects(),
    ];
    return {
      qps: parts.flatMap(({ qps }) => qps),
      mrs: parts.flatMap(({ mrs }) => mrs),
      cqs: parts.flatMap(({ cqs }) => cqs),
    };
  }

  /** Ends every client, telling it why; those who ask about the daemon stay. */
  cutClients(reason: string): void {
    for (const client of [...this.#clients.values()]) client.cut(reason);
    this.#kernel.close(reason);
  }

  /** Open connections of all roles. */
  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Ends every client and removes the socket. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.cutClients('the daemon stops');
    for (const connection of [...this.#connections]) connection.close();
    await closed;
  }

  #accept(socket: Socket): void {
    let connection: Connection;
    try {
      connection = new Connection(socket, this.#readBuffer, this.#options.unreadMaxBytes);
    } catch (error) {
      socket.destroy();
      if (!(error instanceof SystemCallError)) throw error;
      this.#options.log.note('warn', 'cannot accept', { error: error.message });
      return;
    }
    this.#connections.add(connection);
    connection.onEnded = () => this.#connections.delete(connection);
    const refusal = this.#refusal(connection);
    if (refusal !== undefined) this.#refuse(connection, refusal);
    else this.#awaitGreeting(connection);
  }

  /** Why this peer may not connect at all. */
  #refusal(connection: Connection): VerbsError | undefined {
    const { uid } = connection.credentials;
    if (!this.#options.allowOtherUsers && !isTrusted(uid)) {
      const own = process.getuid?.();
      return new VerbsError('EACCES', `user ${uid} may not use the daemon of user ${own}`);
    }
    const { connectionsMax } = this.#options;
    if (this.#connections.size > connectionsMax) {
      return new VerbsError('ENOMEM', `the daemon has ${connectionsMax} connections`);
    }
    return undefined;
  }

  #refuse(connection: Connection, error: VerbsError): void {
    const { pid, uid } = connection.credentials;
    this.#options.log.note('warn', 'refused a connection', { pid, uid, reason: error.message });
    const token = new Uint8Array(TOKEN_BYTES);
    const { errno, message: text } = error;
    connection.cut(text, emitWelcome({ errno, daemonPid: process.pid, token, text }));
  }

  #awaitGreeting(connection: Connection): void {
    const greeting = new Uint8Array(GREETING_BYTES);
    let filled = 0;
    const timer = setTimeout(() => {
      this.#refuse(connection, new VerbsError('ETIMEDOUT', 'no greeting'));
    }, this.#options.greetingTimeoutMs);
    connection.onClosed = () => clearTimeout(timer);
    connection.onOctets = (octets) => {
      const taken = Math.min(GREETING_BYTES - filled, octets.length);
      greeting.set(octets.subarray(0, taken), filled);
      filled += taken;
      if (filled < GREETING_BYTES) return;
      clearTimeout(timer);
      this.#greeted(connection, greeting);
      // What came behind the greeting is for the role that it named.
      if (taken < octets.length && !connection.closed) connection.onOctets(octets.subarray(taken));
    };
  }

  #greeted(connection: Connection, greeting: Uint8Array): void {
    try {
      const hello = readHello(greeting);
      if (hello.version !== IPC_VERSION) {
        const text = `the daemon speaks version ${IPC_VERSION} of the protocol, not ${hello.version}`;
        throw new VerbsError('EPROTO', text);
      }
      const { token, text, ready } = this.#enter(connection, hello);
      connection.write(emitWelcome({ errno: 0, daemonPid: process.pid, token, text }));
      ready();
    } catch (error) {
      if (error instanceof IpcFormatError) {
        this.#refuse(connection, new VerbsError('EPROTO', error.message));
      } else if (isVerbsError(error)) this.#refuse(connection, error);
      else throw error;
    }
  }

  /** Gives the connection its role. Returns what the welcome says. Throws `VerbsError`. */
  #enter(connection: Connection, hello: Hello): KernelWelcome {
    const entered = this.#kernel.enter(connection, hello.role, hello.token);
    if (entered !== undefined) return entered;
    return { token: this.#enterClient(connection, hello), text: '', ready: () => undefined };
  }

  /** Gives the connection a role of the verbs clients. Returns the token for the welcome. */
  #enterClient(connection: Connection, hello: Hello): Uint8Array {
    switch (hello.role) {
      case Role.control:
        return this.#addClient(connection).token;
      case Role.admin:
        this.#serveAdmin(connection);
        return new Uint8Array(TOKEN_BYTES);
      case Role.tap:
        if (!isTrusted(connection.credentials.uid)) {
          throw new VerbsError('EACCES', "connections are watched by the daemon's user alone");
        }
        this.#serveTap(connection);
        return new Uint8Array(TOKEN_BYTES);
      case Role.doorbell:
        return this.#attach('doorbell', connection, hello.token);
      case Role.map:
        return this.#attach('map', connection, hello.token);
      case Role.agent:
        if (this.#kernel.enterAgent(connection, hello.token)) return hello.token;
        return this.#attach('agent', connection, hello.token);
      case Role.channel: {
        const known = this.#channels.get(tokenText(hello.token));
        if (known?.client.isPeer(connection) !== true) throw unknownToken();
        known.client.attachChannel(known.channel, connection);
        return hello.token;
      }
      default:
        throw new VerbsError('EPROTO', `unknown role ${hello.role}`);
    }
  }

  #addClient(connection: Connection): ControlClient {
    const { host, native, quotas, memoryTiers, log } = this.#options;
    const { pid, uid } = connection.credentials;
    const client: ControlClient = new ControlClient(connection, {
      id: this.#nextClientId(),
      host,
      native,
      quotas,
      memoryTiers,
      announceChannel: (token, channel) => {
        this.#channels.set(token, { client, channel });
        return () => this.#channels.delete(token);
      },
      onClosed: (reason) => {
        this.#clients.delete(tokenText(client.token));
        if (reason === undefined) log.note('info', 'client left', { pid, uid });
        else log.note('warn', 'client was cut off', { pid, uid, reason });
      },
    });
    this.#clients.set(tokenText(client.token), client);
    log.note('info', 'client came', { pid, uid });
    return client;
  }

  #nextClientId(): number {
    this.#lastClientId += 1;
    return this.#lastClientId;
  }

  #attach(role: SecondaryRole, connection: Connection, token: Uint8Array): Uint8Array {
    const client = this.#clients.get(tokenText(token));
    if (client?.isPeer(connection) !== true) throw unknownToken();
    client.attach(role, connection);
    return token;
  }

  #serveAdmin(connection: Connection): void {
    const { uid } = connection.credentials;
    const mayChange = isTrusted(uid);
    let pending = 0;
    const reader = new FrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
      if (frame.type !== FrameType.request) throw new IpcFormatError(`frame of type ${frame.type}`);
      if (pending >= PENDING_OPERATIONS_MAX) {
        throw new IpcFormatError(`more than ${PENDING_OPERATIONS_MAX} operations at once`);
      }
      const value = decodeValue(frame.payload);
      pending += 1;
      void this.#answerAdmin(frame.id, value, { mayChange }).then((answer) => {
        pending -= 1;
        connection.write(answer);
      });
    });
    connection.onClosed = () => undefined;
    connection.onOctets = (octets) => {
      try {
        reader.push(octets);
      } catch (error) {
        if (!(error instanceof IpcFormatError)) throw error;
        this.#cutOff('admin connection', connection, error.message);
      }
    };
  }

  /** One request says what is to be watched; whatever comes after it ends the connection. */
  #serveTap(connection: Connection): void {
    let stop: () => void = () => undefined;
    const reader = new FrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
      if (frame.type !== FrameType.request) throw new IpcFormatError(`frame of type ${frame.type}`);
      const watcher = new TapStream(connection, parseTapFilter(decodeValue(frame.payload)));
      connection.write(emitValueFrame(FrameType.reply, frame.id, {}));
      stop = watcher.watch(this.#options.taps, this.#options.work);
      connection.onOctets = () => connection.cut('octets behind the request');
    });
    connection.onClosed = () => stop();
    connection.onOctets = (octets) => {
      try {
        reader.push(octets);
      } catch (error) {
        if (!(error instanceof IpcFormatError) && !isVerbsError(error)) throw error;
        this.#cutOff('watcher', connection, error.message);
      }
    };
  }

  #cutOff(what: string, connection: Connection, reason: string): void {
    const { pid, uid } = connection.credentials;
    this.#options.log.note('warn', `${what} was cut off`, { pid, uid, reason });
    connection.cut(reason, emitValueFrame(FrameType.error, 0, ['EINVAL', reason]));
  }

  /** A refusal is an answer; anything else is a broken invariant of ours. */
  async #answerAdmin(
    id: number,
    value: IpcValue,
    caller: { readonly mayChange: boolean },
  ): Promise<Uint8Array> {
    const [name, request] = Array.isArray(value) ? value : [];
    try {
      const reply = await this.#options.operate(name, request, caller);
      return emitValueFrame(FrameType.reply, id, reply as IpcValue);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return emitValueFrame(FrameType.error, id, [error.code, error.message]);
    }
  }
}

/** The daemon's own user, or root. */
function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.getuid?.();
}

/** The hello of a greeting that is complete. Throws `IpcFormatError`. */
function readHello(greeting: Uint8Array): Hello {
  const fields = new DataView(greeting.buffer);
  if (fields.getUint32(0, true) !== HELLO_BYTES) throw new IpcFormatError('no greeting');
  const payload = greeting.subarray(FRAME_HEADER_BYTES);
  return parseHello({ type: fields.getUint8(4), id: fields.getUint32(8, true), payload });
}

function unknownToken(): VerbsError {
  return new VerbsError(
    'EACCES',
    `${ERRNO.EACCES.text}: the token names no client of this process`,
  );
}
