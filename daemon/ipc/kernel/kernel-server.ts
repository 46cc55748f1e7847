/**
 * The kernel's part of the daemon's socket: files (opens of device nodes), the connections that
 * belong to them, and their event descriptors. What a file's last connection leaves behind goes
 * with it; whatever octets come, only the file that they came to can be harmed.
 */
import { randomBytes } from 'node:crypto';
import { type PeerCredentials, sendDescriptor } from '../../../native-bridge/libc/unix-socket.ts';
import type { ObjectSummaries } from '../../../verbs-api/contract/control.ts';
import { ERRNO, isVerbsError, VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { ClientStatus } from '../../../verbs-api/contract/ipc-admin.ts';
import { Role, TOKEN_BYTES, tokenText } from '../../../verbs-api/contract/ipc-frames.ts';
import { IpcFormatError } from '../../../verbs-api/contract/ipc-value.ts';
import type { MemoryTier } from '../../../verbs-api/contract/provider.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import type { QP } from '../../rnic/queue-pair.ts';
import { AgentChannel } from '../agent-channel.ts';
import type { Connection } from '../connection.ts';
import { EventRouter } from '../verbs/event-router.ts';
import type { ClientQuotas } from '../verbs/quotas.ts';
import { type AnyQueue, EventQueue } from './event-queue.ts';
import { KernelClient } from './kernel-client.ts';
import {
  type KernelCaller,
  type KernelFile,
  type KernelFileKind,
  type KernelReply,
  type KernelServices,
  refusal,
} from './kernel-file.ts';
import { KERNEL_FILES } from './kernel-files.ts';
import { ProcessMemories } from './process-memories.ts';
import {
  emitReply,
  RequestFlag,
  RequestReader,
  ShimOp,
  type ShimRequest,
} from './shim-protocol.ts';
import { UverbsFile } from './uverbs-file.ts';
import { QpElement } from './uverbs-objects.ts';

/** Options of the server. */
export interface KernelServerOptions {
  readonly host: RnicHost;
  readonly quotas: ClientQuotas;
  readonly memoryTiers: readonly MemoryTier[];
  /** Numbers for clients that come. */
  readonly nextClientId: () => number;
  /** A program came or went. */
  readonly note: (
    level: 'info' | 'warn',
    text: string,
    fields: Readonly<Record<string, unknown>>,
  ) => void;
}

/** What the welcome tells a connection. */
export interface KernelWelcome {
  readonly token: Uint8Array;
  /** The number of the file or queue. */
  readonly text: string;
  /** To be called once the welcome is sent. */
  readonly ready: () => void;
}

/** A file with its connections. */
interface OpenFile {
  readonly file: KernelFile;
  readonly token: Uint8Array;
  readonly connections: Set<Connection>;
}

/** An event queue and whose it is. */
interface QueuePlace {
  readonly queue: AnyQueue;
  readonly client: KernelClient;
}

/** Files and queues are numbered within a positive s32, since programs see them as descriptors. */
const NUMBER_COUNT = 2 ** 31;

/** Roles whose connections belong to files, and the kind of file. */
const FILE_ROLES: Readonly<Partial<Record<number, KernelFileKind>>> = {
  [Role.uverbs]: 'uverbs',
  [Role.rdmaCm]: 'rdmaCm',
  [Role.netlink]: 'netlink',
};

/** See the module's comment. */
export class KernelServer implements KernelServices {
  readonly host: RnicHost;
  readonly memories: ProcessMemories;
  readonly #options: KernelServerOptions;
  readonly #files = new Map<string, OpenFile>();
  readonly #queues = new Map<string, QueuePlace>();
  /** Numbers that are in use; requests name files and queues by them. */
  readonly #numbers = new Map<number, KernelFile | undefined>();
  readonly #clients = new Map<string, KernelClient>();
  #lastNumber = 0;

  constructor(options: KernelServerOptions) {
    this.host = options.host;
    this.#options = options;
    this.memories = new ProcessMemories(options.memoryTiers);
    EventRouter.of(options.host);
  }

  // For the socket's server

  /** Every program that has a file open. */
  clients(): ClientStatus[] {
    return [...this.#clients.values()].map((client) => client.status());
  }

  /** The objects of each open device. */
  objects(): ObjectSummaries[] {
    const devices = [...this.#files.values()].map(({ file }) => file);
    return devices.filter((file) => file instanceof UverbsFile).map((file) => file.objects());
  }

  /**
   * Gives a connection its part when its role is one of the kernel's; undefined otherwise. Throws
   * `VerbsError`: EACCES for a token that names nothing of this user, ENODEV, EOPNOTSUPP, EBUSY.
   */
  enter(connection: Connection, role: number, token: Uint8Array): KernelWelcome | undefined {
    if (role === Role.event) return this.#joinQueue(connection, token);
    const kind = FILE_ROLES[role];
    if (kind === undefined) return undefined;
    const deviceIndex = newFileOf(kind, token);
    const open = deviceIndex === undefined ? undefined : this.#open(kind, connection, deviceIndex);
    return this.#join(open ?? this.#fileOf(connection, token, kind), connection);
  }

  /** Takes an agent connection when its token names a file; false otherwise. */
  enterAgent(connection: Connection, token: Uint8Array): boolean {
    const open = this.#files.get(tokenText(token));
    if (open === undefined || !mayUse(open.file.client, connection)) return false;
    const memory = this.memories.find(connection.credentials, open.file);
    if (memory === undefined) return false;
    if (memory.agent?.open === true) throw new VerbsError('EBUSY', 'a second agent of a process');
    const agent = new AgentChannel(connection);
    memory.agent = agent;
    connection.onOctets = (octets) => {
      this.#guard(open, () => agent.handleOctets(octets));
      // Memory that came may have moved any of the program's streams.
      this.host.drain();
    };
    connection.onClosed = () => {
      agent.handleClosed();
      this.host.drain();
    };
    return true;
  }

  /** Ends every file. */
  close(reason: string): void {
    for (const open of [...this.#files.values()]) this.#cut(open, reason);
  }

  // For files

  createQueue<T, Owner>(client: KernelClient): EventQueue<T, Owner> {
    const queue = new EventQueue<T, Owner>(randomBytes(TOKEN_BYTES), this.#nextNumber());
    this.#numbers.set(queue.number, undefined);
    this.#queues.set(tokenText(queue.token), { queue, client });
    queue.onEnded = () => {
      this.#numbers.delete(queue.number);
      this.#queues.delete(tokenText(queue.token));
    };
    return queue;
  }

  findFile(number: number, client: KernelClient): KernelFile | undefined {
    const file = this.#numbers.get(number);
    return file?.client.credentials.uid === client.credentials.uid ? file : undefined;
  }

  findQP(deviceName: string, qpn: number, client: KernelClient): QP | undefined {
    const device = this.host.devices.find(({ name }) => name === deviceName);
    const qp = device?.nic.findQP(qpn);
    if (!(qp?.tag instanceof QpElement)) return undefined;
    return qp.tag.file.client.credentials.uid === client.credentials.uid ? qp : undefined;
  }

  // Files

  #open(kind: KernelFileKind, connection: Connection, deviceIndex: number): OpenFile {
    const make = KERNEL_FILES[kind];
    if (make === undefined) throw new VerbsError('EOPNOTSUPP', `${kind} is not served`);
    const { credentials } = connection;
    const client = this.#clients.get(clientKey(credentials)) ?? this.#newClient(credentials);
    const token = randomBytes(TOKEN_BYTES);
    const number = this.#nextNumber();
    const file = make({ token, number, client, services: this, deviceIndex });
    const open: OpenFile = { file, token, connections: new Set() };
    this.#files.set(tokenText(token), open);
    this.#numbers.set(number, file);
    if (client.openFiles === 0) this.#came(client);
    client.openFiles += 1;
    return open;
  }

  #newClient(credentials: PeerCredentials): KernelClient {
    const { nextClientId, quotas } = this.#options;
    return new KernelClient(nextClientId(), credentials, quotas);
  }

  #came(client: KernelClient): void {
    this.#clients.set(clientKey(client.credentials), client);
    this.#options.note('info', 'program came', aboutClient(client));
  }

  #fileOf(connection: Connection, token: Uint8Array, kind: KernelFileKind): OpenFile {
    const open = this.#files.get(tokenText(token));
    if (open?.file.kind !== kind || !mayUse(open.file.client, connection)) throw unknownToken();
    return open;
  }

  #join(open: OpenFile, connection: Connection): KernelWelcome {
    const { file } = open;
    open.connections.add(connection);
    this.memories.hold(connection.credentials, file);
    const caller = new ConnectionCaller(connection.credentials);
    const reader = new RequestReader((request) => {
      // A request behind one that ended the file.
      if (connection.closed) return;
      caller.note(request);
      this.#answer(connection, request, executeOn(file, request, caller));
    });
    connection.onOctets = (octets) => this.#guard(open, () => reader.push(octets));
    connection.onClosed = (reason) => {
      this.memories.release(connection.credentials, file);
      this.#left(open, connection, reason);
    };
    return { token: open.token, text: String(file.number), ready: () => undefined };
  }

  #answer(connection: Connection, request: ShimRequest, reply: KernelReply): void {
    if (request.op === ShimOp.doorbell && (request.flags & RequestFlag.oneWay) !== 0) return;
    const octets = emitReply(request.id, reply);
    if (reply.attach === undefined) {
      connection.write(octets);
      return;
    }
    reply.attach((descriptor) => {
      const { fd, congested } = connection;
      const sent = fd === undefined || congested ? 0 : sendDescriptor(fd, octets, descriptor);
      if (sent !== octets.length) throw new IpcFormatError('replies are not read');
    });
  }

  #left(open: OpenFile, connection: Connection, reason: string | undefined): void {
    if (!open.connections.delete(connection)) return;
    if (open.connections.size > 0) {
      if (reason !== undefined) this.#cut(open, reason);
      return;
    }
    const { file, token } = open;
    const { client } = file;
    this.#files.delete(tokenText(token));
    this.#numbers.delete(file.number);
    try {
      file.close();
    } finally {
      this.host.drain();
      client.openFiles -= 1;
      if (client.openFiles === 0) {
        this.#clients.delete(clientKey(client.credentials));
        this.host.releasePorts(client);
      }
      const fields = aboutClient(client);
      if (reason !== undefined) {
        this.#options.note('warn', 'program was cut off', { ...fields, kind: file.kind, reason });
      } else if (client.openFiles === 0) this.#options.note('info', 'program left', fields);
    }
  }

  /** Ends a file by ending all its connections. */
  #cut(open: OpenFile, reason: string): void {
    for (const connection of [...open.connections]) connection.cut(reason);
  }

  /** Octets that break the protocol end the file, whichever connection they came on. */
  #guard(open: OpenFile, receive: () => void): void {
    try {
      receive();
    } catch (error) {
      if (!(error instanceof IpcFormatError)) throw error;
      this.#cut(open, error.message);
    }
  }

  // Event descriptors

  #joinQueue(connection: Connection, token: Uint8Array): KernelWelcome {
    const open = this.#files.get(tokenText(token));
    const place = this.#queues.get(tokenText(token));
    const queue = open?.file.ownQueue ?? place?.queue;
    const client = open?.file.client ?? place?.client;
    if (queue === undefined || client === undefined || !mayUse(client, connection)) {
      throw unknownToken();
    }
    if (queue.attached) throw new VerbsError('EBUSY', 'a second descriptor of an event queue');
    // The visible descriptor of rdma_cm is one of the file's: it keeps the file open.
    open?.connections.add(connection);
    connection.onOctets = () => connection.cut('octets on an event descriptor');
    connection.onClosed = (reason) => {
      queue.end();
      if (open !== undefined) this.#left(open, connection, reason);
    };
    return { token, text: String(queue.number), ready: () => queue.attach(connection) };
  }

  /** A number that is not in use, never 0. */
  #nextNumber(): number {
    do {
      this.#lastNumber = (this.#lastNumber + 1) % NUMBER_COUNT;
    } while (this.#lastNumber === 0 || this.#numbers.has(this.#lastNumber));
    return this.#lastNumber;
  }
}

/** Who sends the requests of one connection. */
class ConnectionCaller implements KernelCaller {
  readonly credentials: PeerCredentials;
  ownPid = true;
  #pid: number | undefined;

  constructor(credentials: PeerCredentials) {
    this.credentials = credentials;
  }

  /** A connection belongs to the process that made it; the first request tells its pid. */
  note(request: ShimRequest): void {
    this.#pid ??= request.pid;
    this.ownPid = request.pid === this.#pid;
  }
}

/** A refusal is an answer; anything else is a broken invariant of ours. */
function executeOn(file: KernelFile, request: ShimRequest, caller: KernelCaller): KernelReply {
  try {
    return file.execute(request, caller);
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    return refusal(error.code);
  }
}

/** The device index of a hello that opens a new file; undefined when it joins an existing one. */
function newFileOf(kind: KernelFileKind, token: Uint8Array): number | undefined {
  const first = new DataView(token.buffer, token.byteOffset, 4).getUint32(0, true);
  if (token.subarray(4).some((octet) => octet !== 0)) return undefined;
  if (kind !== 'uverbs') return first === 0 ? 0 : undefined;
  return first === 0 ? undefined : first - 1;
}

function clientKey({ pid, uid }: PeerCredentials): string {
  return `${pid} ${uid}`;
}

function mayUse(client: KernelClient, connection: Connection): boolean {
  return client.credentials.uid === connection.credentials.uid;
}

function aboutClient({ credentials, program }: KernelClient): Record<string, unknown> {
  return { pid: credentials.pid, uid: credentials.uid, program };
}

function unknownToken(): VerbsError {
  return new VerbsError('EACCES', `${ERRNO.EACCES.text}: the token names nothing of this user`);
}
