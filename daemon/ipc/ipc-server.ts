/**
 * The daemon's socket: accepts connections, reads the role from each greeting, and passes the
 * connection to its client. Malformed bytes can harm only the client that sent them.
 */
import { createServer, type Server, type Socket } from 'node:net';
import { assert } from '#base/assert';
import type { Handle } from '#contract/protocol/commands';
import type { EndedHolding } from '#contract/protocol/control';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitValueFrame,
  emitWelcome,
  FRAME_HEADER_BYTES,
  FrameType,
  HELLO_BYTES,
  type Hello,
  IPC_VERSION,
  IpcFrameReader,
  parseHello,
  Role,
  TOKEN_BYTES,
  tokenText,
  writeFrameHeader,
} from '#contract/protocol/ipc-frames';
import {
  decodeValue,
  encodeInParts,
  IpcFormatError,
  type IpcValue,
} from '#contract/protocol/ipc-value';
import { ERRNO, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import { SystemCallError } from '#native-bridge/libc/libc';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { socketPair } from '#native-bridge/libc/unix-socket';
import type { TapHub } from '../capture/tap-hub.ts';
import type { WorkHub } from '../capture/work-hub.ts';
import { programName } from '../clients/client-identity.ts';
import { CommandShares } from '../clients/command-pace.ts';
import { ProgramConnection } from '../clients/connection.ts';
import { DescriptorsInFlight } from '../clients/descriptors-in-flight.ts';
import { KeptInput } from '../clients/kept-input.ts';
import type { DeviceDirectory } from '../clients/objects/device-directory.ts';
import { EndedClients } from '../clients/objects/ended-clients.ts';
import { EndingOwners } from '../clients/objects/ending-owners.ts';
import type { ObjectWindow } from '../clients/objects/object-window.ts';
import type { ClientQuotas } from '../clients/objects/quotas.ts';
import { isTrusted } from '../clients/trusted-user.ts';
import { inSlices } from '../host/slices.ts';
import { noteWork } from '../host/turn-note.ts';
import type { KernelServer, KernelWelcome } from '../kernel/kernel-server.ts';
import { isKernelRole } from '../kernel/roles.ts';
import type { Findings } from '../lint/findings.ts';
import type { Refusals } from '../refusals/refusals.ts';
import { Admission } from './admission.ts';
import type { ClientParts } from './client-parts.ts';
import type { ControlClient, SecondaryRole } from './control-client.ts';
import { listenAtPlace } from './socket-place.ts';
import type { ClientContext } from './verbs/client-context.ts';

const READ_BYTES = 64 * 1024;
/** Unfinished operations that one admin connection may have at a time. */
const PENDING_OPERATIONS_MAX = 16;
/** Entries of a list to make or encode in one turn: a millisecond of work. */
const ITEMS_PER_TURN = 512;
/** Clients to disconnect in one turn: each has some connections. */
const CUTS_PER_TURN = 32;
const GREETING_BYTES = FRAME_HEADER_BYTES + HELLO_BYTES;

interface IpcLog {
  /** A client connected or disconnected, or a connection was refused. */
  note(
    level: 'debug' | 'info' | 'warn',
    text: string,
    fields: Readonly<Record<string, unknown>>,
  ): void;
}

/** The caller on an admin connection: the daemon's user, root, or another user. */
interface AdminCaller {
  readonly mayChange: boolean;
  readonly isOwner: boolean;
  /** Another user; undefined for the owner. */
  readonly uid?: number;
}

interface IpcServerOptions {
  readonly socketPath: string;
  /** Clients of the verbs use all devices, unmodified programs only the emulated ones. */
  readonly directory: DeviceDirectory;
  readonly quotas: ClientQuotas;
  readonly memoryTiers: readonly MemoryTier[];
  /** Also serves clients of other users; otherwise only root's and the daemon user's own. */
  readonly allowOtherUsers: boolean;
  /** Limit of unread bytes; beyond it a client is disconnected. */
  readonly unreadMaxBytes: number;
  /** Time limit for the greeting, in milliseconds. */
  readonly greetingTimeoutMs: number;
  readonly log: IpcLog;
  /** Loads what devices need for their first client; may be called again. Default: nothing. */
  readonly prepare?: () => Promise<void>;
  readonly taps: TapHub;
  readonly work: WorkHub;
  /** Records what clients are refused. */
  readonly refusals: Refusals;
  /** Records advice to clients. Default: none is given. */
  readonly findings?: Findings | undefined;
  /**
   * Executes an admin operation; rejects with `VerbsError`. Only the daemon's own user and root may
   * change anything.
   */
  readonly operate: (name: unknown, request: unknown, caller: AdminCaller) => Promise<unknown>;
}

export class IpcServer {
  readonly #options: IpcServerOptions;
  readonly #server: Server;
  readonly #readBuffer = new Uint8Array(READ_BYTES);
  readonly #shares = new CommandShares();
  readonly #connections = new Set<ProgramConnection>();
  readonly #admission: Admission;
  readonly #inFlight: DescriptorsInFlight;
  readonly #clients = new Map<string, ControlClient>();
  readonly #channels = new Map<string, { readonly client: ControlClient; channel: Handle }>();
  #parts: Promise<ClientParts> | undefined;
  #loadedParts: ClientParts | undefined;
  #kernel: Promise<KernelServer> | undefined;
  #loadedKernel: KernelServer | undefined;
  readonly #ended = new EndedClients(() => new Date().toISOString());
  /** Ended clients with objects left. */
  readonly #ending: EndingOwners<ClientContext>;
  /** Set while all clients are being disconnected. */
  #cutting: Promise<void> | undefined;
  #lastClientId = 0;

  private constructor(options: IpcServerOptions) {
    this.#options = options;
    this.#admission = new Admission({
      allowOtherUsers: options.allowOtherUsers,
      budget: options.quotas.budget,
    });
    this.#ending = new EndingOwners(options.directory.emulated);
    this.#inFlight = new DescriptorsInFlight(options.quotas.budget);
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

  /**
   * Loads the modules that serve clients, otherwise loaded by the first client of each kind. A daemon
   * calls it after it reports ready: it is ready sooner, and later clients do not depend on the
   * package's files.
   */
  async load(): Promise<void> {
    await this.#loadParts();
    await this.#loadKernel();
  }

  #loadParts(): Promise<ClientParts> {
    this.#parts ??= this.#makeParts();
    return this.#parts;
  }

  async #makeParts(): Promise<ClientParts> {
    await this.#options.prepare?.();
    this.#loadedParts = (await import('./client-parts.ts')).CLIENT_PARTS;
    return this.#loadedParts;
  }

  #loadKernel(): Promise<KernelServer> {
    this.#kernel ??= this.#makeKernel();
    return this.#kernel;
  }

  async #makeKernel(): Promise<KernelServer> {
    await this.#options.prepare?.();
    const { KernelServer: Server } = await import('../kernel/kernel-server.ts');
    const { directory, quotas, memoryTiers, log, refusals, findings } = this.#options;
    this.#loadedKernel = new Server({
      directory,
      quotas,
      memoryTiers,
      inFlight: this.#inFlight,
      note: (level, text, fields) => log.note(level, text, fields),
      nextClientId: () => this.#nextClientId(),
      ended: this.#ended,
      refusals,
      findings,
      pair: (peer) => this.#pair(peer),
    });
    return this.#loadedKernel;
  }

  /** Every client, with its usage. Long lists are made over several turns. */
  async clients(): Promise<ClientStatus[]> {
    const statuses: ClientStatus[] = [];
    const clients = [...this.#clients.values(), ...(this.#loadedKernel?.clients() ?? [])];
    await inSlices(clients, ITEMS_PER_TURN, this.#soon, (client) => {
      statuses.push(client.status());
    });
    return statuses;
  }

  /** Clients that ended while they held objects, since the last call. */
  takeEndedHolding(): EndedHolding[] {
    return this.#ended.take();
  }

  /** Offers the objects of every client for a reply. */
  listObjects(window: ObjectWindow): void {
    for (const client of this.#clients.values()) client.listObjects(window);
    this.#loadedKernel?.listObjects(window);
  }

  /**
   * Disconnects every client with a reason, a few in each turn; admin connections stay. Resolves once
   * all their objects are destroyed. Clients that connect meanwhile wait for that. Calls `onCut` with
   * the last status of each client.
   */
  cutClients(reason: string, onCut: (last: ClientStatus) => void = () => undefined): Promise<void> {
    const cut = this.#cutClients(reason, onCut);
    this.#cutting = cut;
    return cut.finally(() => {
      this.#cutting = undefined;
    });
  }

  readonly #soon = (run: () => void): void => this.#options.directory.emulated.soon(run);

  async #cutClients(reason: string, onCut: (last: ClientStatus) => void): Promise<void> {
    await inSlices([...this.#clients.values()], CUTS_PER_TURN, this.#soon, (client) => {
      if (client.ended) return;
      onCut(client.status());
      client.cut(reason);
    });
    await this.#ending.idle();
    await this.#loadedKernel?.cutFiles(reason, onCut);
  }

  /** Compares clients, their objects and their accounts, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const client of this.#clients.values()) client.assertDeepInvariants();
    this.#loadedKernel?.assertDeepInvariants();
  }

  /** Open connections of all roles. */
  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Ends every client and removes the socket. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await this.cutClients('the daemon is stopping');
    await inSlices([...this.#connections], CUTS_PER_TURN, this.#soon, (each) => each.close());
    this.#inFlight.close();
    await closed;
  }

  #accept(socket: Socket): void {
    const { unreadMaxBytes, allowOtherUsers } = this.#options;
    try {
      this.#admit(
        ProgramConnection.accept(socket, this.#readBuffer, unreadMaxBytes, allowOtherUsers),
      );
    } catch (error) {
      socket.destroy();
      if (!(error instanceof SystemCallError)) throw error;
      this.#options.log.note('warn', 'cannot accept', { error: error.message });
    }
  }

  /**
   * Makes another connection of the process `peer`, which may be unable to reach the socket or have
   * changed its user. Returns the descriptor of the process's end; the caller owns it. Throws
   * `SystemCallError`.
   */
  #pair(peer: PeerProcess): number {
    const [own, other] = socketPair();
    this.#admit(ProgramConnection.pair(own, peer, this.#readBuffer, this.#options.unreadMaxBytes));
    return other;
  }

  #admit(connection: ProgramConnection): void {
    this.#connections.add(connection);
    connection.shareTurns(this.#shares.of(connection.credentials.uid));
    connection.onEnded = () => {
      this.#connections.delete(connection);
      this.#admission.left(connection);
    };
    try {
      const leaving = this.#admission.enter(connection);
      this.#awaitGreeting(connection);
      if (leaving !== undefined) this.#refuse(leaving.connection, leaving.error);
    } catch (error) {
      this.#refuseFor(connection, error);
    }
  }

  #refuse(connection: ProgramConnection, error: VerbsError): void {
    const { pid, uid } = connection.credentials;
    this.#options.log.note('warn', 'refused a connection', { pid, uid, reason: error.message });
    this.#options.refusals.record({
      pid,
      uid,
      program: programName(pid),
      api: 'socket',
      verb: 'connect',
      code: error.code,
      sentence: error.message,
    });
    const token = new Uint8Array(TOKEN_BYTES);
    const { errno, message: text } = error;
    connection.cut(text, emitWelcome({ errno, daemonPid: process.pid, token, text }));
  }

  #awaitGreeting(connection: ProgramConnection): void {
    const greeting = new Uint8Array(GREETING_BYTES);
    let filled = 0;
    const timer = setTimeout(() => {
      this.#refuse(connection, new VerbsError('ETIMEDOUT', 'no greeting in time'));
    }, this.#options.greetingTimeoutMs);
    connection.onClosed = () => clearTimeout(timer);
    connection.onBytes = (bytes) => {
      const taken = Math.min(GREETING_BYTES - filled, bytes.length);
      greeting.set(bytes.subarray(0, taken), filled);
      filled += taken;
      if (filled < GREETING_BYTES) return;
      clearTimeout(timer);
      this.#greeted(connection, greeting);
      // Bytes that follow the greeting belong to the role that it named.
      if (taken < bytes.length && !connection.closed) connection.onBytes(bytes.subarray(taken));
    };
  }

  #greeted(connection: ProgramConnection, greeting: Uint8Array): void {
    try {
      const hello = readHello(greeting);
      this.#admission.assertRole(connection, hello.role);
      if (hello.version !== IPC_VERSION) {
        const age = hello.version < IPC_VERSION ? 'older' : 'newer';
        const text =
          `this program is ${age} than the daemon (version ${hello.version} of the protocol, not ` +
          `${IPC_VERSION}): use both from the same release`;
        throw new VerbsError('EPROTO', text);
      }
      if (connection.isPaired && hello.role !== Role.event && hello.role !== Role.agent) {
        throw new VerbsError(
          'EACCES',
          'a connection made over another one can only be an event descriptor or an agent',
        );
      }
      const loading = this.#delayFor(hello.role);
      if (loading === undefined) this.#welcome(connection, hello);
      else this.#welcomeAfter(loading, connection, hello);
    } catch (error) {
      this.#refuseFor(connection, error);
    }
  }

  /** Rethrows errors that the peer did not cause. */
  #refuseFor(connection: ProgramConnection, error: unknown): void {
    if (error instanceof IpcFormatError) {
      this.#refuse(connection, new VerbsError('EPROTO', error.message));
    } else if (isVerbsError(error)) this.#refuse(connection, error);
    else throw error;
  }

  /** Throws `VerbsError` and `IpcFormatError`. */
  #welcome(connection: ProgramConnection, hello: Hello): void {
    const { token, text, ready } = this.#enter(connection, hello);
    connection.write(emitWelcome({ errno: 0, daemonPid: process.pid, token, text }));
    ready();
  }

  /** A promise to await before serving a role: the end of a reset, or loading modules. */
  #delayFor(role: number): Promise<unknown> | undefined {
    if (this.#cutting === undefined || role === Role.admin) return this.#loadFor(role);
    return this.#cutting.then(() => this.#loadFor(role));
  }

  /** Loads the modules for a role, unless they are loaded. */
  #loadFor(role: number): Promise<unknown> | undefined {
    if (isKernelRole(role)) return this.#loadedKernel ? undefined : this.#loadKernel();
    if (role !== Role.control && role !== Role.tap) return undefined;
    return this.#loadedParts ? undefined : this.#loadParts();
  }

  /** Only for roles for which `#loadFor` has loaded it. */
  get #clientParts(): ClientParts {
    assert(this.#loadedParts !== undefined, 'client parts are not loaded');
    return this.#loadedParts;
  }

  /** Makes the first connections wait until their part of the daemon is loaded. */
  #welcomeAfter(loading: Promise<unknown>, connection: ProgramConnection, hello: Hello): void {
    let early: Uint8Array = new Uint8Array(0);
    const kept = new KeptInput(connection);
    connection.onClosed = () => undefined;
    connection.onBytes = (bytes) => {
      if (early.length + bytes.length > READ_BYTES) {
        this.#refuse(connection, new VerbsError('EPROTO', 'too many bytes before the welcome'));
        return;
      }
      early = Buffer.concat([early, bytes]);
      kept.note(early.length);
    };
    const enter = (): void => {
      if (connection.closed) return;
      connection.onBytes = () => undefined;
      try {
        this.#welcome(connection, hello);
      } catch (error) {
        this.#refuseFor(connection, error);
      }
      if (early.length > 0 && !connection.closed) connection.onBytes(early);
      kept.note(0);
    };
    const fail = (error: Error): void => {
      const text = `cannot load what serves clients: ${error.message}; install iwarpd again`;
      this.#refuse(connection, new VerbsError('EIO', text));
    };
    loading.then(enter, fail);
  }

  /** Gives the connection its role. Returns the content of the welcome. Throws `VerbsError`. */
  #enter(connection: ProgramConnection, hello: Hello): KernelWelcome {
    const entered = this.#loadedKernel?.enter(connection, hello.role, hello.token);
    if (entered !== undefined) return entered;
    return { token: this.#enterClient(connection, hello), text: '', ready: () => undefined };
  }

  /** Gives the connection a role of the verbs clients. Returns the token for the welcome. */
  #enterClient(connection: ProgramConnection, hello: Hello): Uint8Array {
    switch (hello.role) {
      case Role.control:
        return this.#addClient(connection).token;
      case Role.admin:
        this.#serveAdmin(connection);
        return new Uint8Array(TOKEN_BYTES);
      case Role.tap:
        if (!isTrusted(connection.credentials.uid)) {
          throw new VerbsError('EACCES', "only the daemon's user may watch connections");
        }
        this.#serveTap(connection);
        return new Uint8Array(TOKEN_BYTES);
      case Role.doorbell:
        return this.#attach('doorbell', connection, hello.token);
      case Role.map:
        return this.#attach('map', connection, hello.token);
      case Role.agent:
        if (this.#loadedKernel?.enterAgent(connection, hello.token) === true) return hello.token;
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

  #addClient(connection: ProgramConnection): ControlClient {
    const { directory, quotas, memoryTiers, log, refusals, findings } = this.#options;
    const { pid, uid } = connection.credentials;
    const id = this.#nextClientId();
    const client: ControlClient = new this.#clientParts.ControlClient(connection, {
      id,
      directory,
      quotas,
      memoryTiers,
      inFlight: this.#inFlight,
      ending: this.#ending,
      refusals,
      findings,
      announceChannel: (token, channel) => {
        this.#channels.set(token, { client, channel });
        return () => this.#channels.delete(token);
      },
      onClosed: (reason, { program, usage }) => {
        const { objects } = usage;
        if (reason === undefined) this.#ended.note({ id, pid, uid, program, objects });
        this.#clients.delete(tokenText(client.token));
        if (reason === undefined) log.note('info', 'client disconnected', { pid, uid });
        else log.note('warn', 'client was cut off', { pid, uid, reason });
      },
    });
    this.#clients.set(tokenText(client.token), client);
    log.note('info', 'client connected', { pid, uid });
    return client;
  }

  #nextClientId(): number {
    this.#lastClientId += 1;
    return this.#lastClientId;
  }

  #attach(role: SecondaryRole, connection: ProgramConnection, token: Uint8Array): Uint8Array {
    const client = this.#clients.get(tokenText(token));
    if (client?.isPeer(connection) !== true || client.ended) throw unknownToken();
    client.attach(role, connection);
    return token;
  }

  #serveAdmin(connection: ProgramConnection): void {
    const { uid } = connection.credentials;
    const isOwner = isTrusted(uid);
    const caller = { mayChange: isOwner, isOwner, ...(isOwner ? {} : { uid }) };
    // Stored as bytes: a value can take sixty times as much.
    const waiting: { readonly id: number; readonly payload: Uint8Array }[] = [];
    let pending = 0;
    const [unread, unanswered] = [new KeptInput(connection), new KeptInput(connection)];
    let unansweredBytes = 0;
    const count = (change: number): void => {
      unansweredBytes += change;
      unanswered.note(unansweredBytes);
    };
    const reader = new IpcFrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
      if (frame.type !== FrameType.request) throw new IpcFormatError(`frame of type ${frame.type}`);
      if (pending >= PENDING_OPERATIONS_MAX) {
        throw new IpcFormatError(`more than ${PENDING_OPERATIONS_MAX} operations at once`);
      }
      pending += 1;
      count(frame.payload.length);
      waiting.push({ id: frame.id, payload: frame.payload.slice() });
      next();
    });
    const guarded = (run: () => void): void => {
      try {
        run();
      } catch (error) {
        if (!(error instanceof IpcFormatError)) throw error;
        this.#cutOff('admin connection', connection, error.message);
      }
    };
    // Compute no further answers for a caller who does not read earlier ones.
    let asked = false;
    const next = (): void => {
      if (asked || connection.congested || waiting.length === 0) return;
      asked = true;
      // A list may be long, and is made after this turn's callback: charge a whole share for each.
      connection.commands.takeWhole(() => {
        asked = false;
        const operation = waiting.shift();
        if (operation === undefined) return;
        const { id, payload } = operation;
        guarded(() => {
          void this.#answerAdmin(connection, id, decodeValue(payload), caller).then((answer) => {
            pending -= 1;
            count(-payload.length);
            connection.write(answer);
          });
        });
        next();
      });
    };
    connection.onDrained = next;
    connection.onClosed = () => waiting.splice(0);
    connection.onBytes = (bytes) => {
      guarded(() => {
        reader.push(bytes);
        unread.note(reader.roomBytes);
      });
    };
  }

  /** One request selects what to watch; any later byte ends the connection. */
  #serveTap(connection: ProgramConnection): void {
    let stop: () => void = () => undefined;
    const reader = new IpcFrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
      if (frame.type !== FrameType.request) throw new IpcFormatError(`frame of type ${frame.type}`);
      const { TapStream, parseTapFilter } = this.#clientParts;
      const watcher = new TapStream(connection, parseTapFilter(decodeValue(frame.payload)));
      const { taps, work, refusals } = this.#options;
      connection.write(emitValueFrame(FrameType.reply, frame.id, {}));
      stop = watcher.watch(taps, work, refusals);
      connection.onBytes = () => connection.cut('bytes after the request');
    });
    const unread = new KeptInput(connection);
    connection.onClosed = () => stop();
    connection.onBytes = (bytes) => {
      try {
        reader.push(bytes);
        unread.note(reader.roomBytes);
      } catch (error) {
        if (!(error instanceof IpcFormatError) && !isVerbsError(error)) throw error;
        this.#cutOff('watcher', connection, error.message);
      }
    };
  }

  #cutOff(what: string, connection: ProgramConnection, reason: string): void {
    const { pid, uid } = connection.credentials;
    this.#options.log.note('warn', `${what} was cut off`, { pid, uid, reason });
    connection.cut(reason, emitValueFrame(FrameType.error, 0, ['EINVAL', reason]));
  }

  /**
   * A `VerbsError` becomes the answer; any other error is a broken invariant and stops the daemon.
   */
  async #answerAdmin(
    connection: ProgramConnection,
    id: number,
    value: IpcValue,
    caller: AdminCaller,
  ): Promise<Uint8Array> {
    const [name, request] = Array.isArray(value) ? value : [];
    noteWork(`operation ${name}`);
    try {
      const reply = await this.#options.operate(name, request, caller);
      const parts: Uint8Array[] = [];
      const encoder = encodeInParts(reply as IpcValue, FRAME_HEADER_BYTES, ITEMS_PER_TURN);
      for (let isLast = false; !isLast; ) {
        // Encoding a long list takes longer than making it, so charge a share for each part.
        await new Promise<void>((resolve) => connection.commands.takeWhole(resolve));
        noteWork(`reply of ${name}`);
        const { value: part, done } = encoder.next();
        parts.push(part);
        isLast = done === true;
      }
      const bytes = Buffer.concat(parts);
      writeFrameHeader(bytes, FrameType.reply, id);
      return bytes;
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return emitValueFrame(FrameType.error, id, [error.code, error.message]);
    }
  }
}

/** The hello of a complete greeting. Throws `IpcFormatError`. */
function readHello(greeting: Uint8Array): Hello {
  const fields = new DataView(greeting.buffer);
  if (fields.getUint32(0, true) !== HELLO_BYTES) throw new IpcFormatError('not a greeting');
  const payload = greeting.subarray(FRAME_HEADER_BYTES);
  return parseHello({ type: fields.getUint8(4), id: fields.getUint32(8, true), payload });
}

function unknownToken(): VerbsError {
  return new VerbsError(
    'EACCES',
    `${ERRNO.EACCES.text}: the token names no client of this process`,
  );
}
