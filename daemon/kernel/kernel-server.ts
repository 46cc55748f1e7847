/**
 * The kernel's part of the daemon's socket: files (opens of device nodes), their connections and
 * their event descriptors. When a file's last connection closes, its objects are destroyed.
 * Malformed bytes can harm only the file that received them.
 */
import { randomBytes } from 'node:crypto';
import { assert } from '#base/assert';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import { Role, TOKEN_BYTES, tokenText } from '#contract/protocol/ipc-frames';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { ERRNO, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import type { IncomingCopies } from '#daemon/clients/objects/incoming-copies';
import type { RnicHost } from '#daemon/host/rnic-host';
import { inSlices } from '#daemon/host/slices';
import { noteWork } from '#daemon/host/turn-note';
import type { Findings } from '#daemon/lint/findings';
import type { Refusals } from '#daemon/refusals/refusals';
import type { QP } from '#daemon/rnic/queue-pair';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { SystemCallError } from '#native-bridge/libc/libc';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import type { ProgramConnection } from '../clients/connection.ts';
import type { DescriptorsInFlight } from '../clients/descriptors-in-flight.ts';
import { KeptInput } from '../clients/kept-input.ts';
import { AgentChannel } from '../clients/objects/agent-channel.ts';
import type { DeviceDirectory } from '../clients/objects/device-directory.ts';
import type { DeviceResources, ListedId } from '../clients/objects/device-resources.ts';
import type { EndedClients } from '../clients/objects/ended-clients.ts';
import { EndingOwners } from '../clients/objects/ending-owners.ts';
import type { EventRouter } from '../clients/objects/event-router.ts';
import type { NumberedList } from '../clients/objects/numbered-list.ts';
import type { ObjectWindow } from '../clients/objects/object-window.ts';
import { type ClientQuotas, OBJECT_KINDS, type ObjectKind } from '../clients/objects/quotas.ts';
import { isSameUser } from '../clients/trusted-user.ts';
import { CmFile } from './cm/file.ts';
import { executeOn } from './command-boundary.ts';
import { type AnyQueue, type EventPath, EventQueue } from './event-queue.ts';
import { HeldReplies } from './held-replies.ts';
import { KernelClient } from './kernel-client.ts';
import {
  DONE,
  type KernelCaller,
  type KernelFile,
  type KernelFileKind,
  type KernelReply,
  type KernelServices,
  refusal,
} from './kernel-file.ts';
import { kernelFileMakers } from './kernel-files.ts';
import { Linger } from './linger.ts';
import { ProcessMemories } from './process-memories.ts';
import { ReasonLines } from './reason-lines.ts';
import { FILE_ROLES } from './roles.ts';
import {
  emitReply,
  ReplyFlag,
  RequestFlag,
  RequestReader,
  ShimOp,
  type ShimRequest,
} from './shim-protocol.ts';
import { UverbsFile } from './uverbs/file.ts';
import { UverbsQp } from './uverbs/objects.ts';

interface KernelServerOptions {
  readonly directory: DeviceDirectory;
  readonly quotas: ClientQuotas;
  readonly memoryTiers: readonly MemoryTier[];
  /** Allocates client numbers. */
  readonly nextClientId: () => number;
  /** Makes another connection of a process. Returns its end, which the caller sends and closes. */
  readonly pair: (peer: PeerProcess) => number;
  readonly inFlight: DescriptorsInFlight;
  /** Records files that end while they hold objects. */
  readonly ended: EndedClients;
  /** Records what programs are refused. */
  readonly refusals: Refusals;
  /** Records advice to programs. Default: none is given. */
  readonly findings?: Findings | undefined;
  /** Called when a program connects or disconnects. */
  readonly note: (
    level: 'debug' | 'warn',
    text: string,
    fields: Readonly<Record<string, unknown>>,
  ) => void;
}

export interface KernelWelcome {
  readonly token: Uint8Array;
  /** The number of the file or queue. */
  readonly text: string;
  /** Called once the welcome is sent. */
  readonly ready: () => void;
}

interface OpenFile {
  readonly file: KernelFile;
  readonly token: Uint8Array;
  readonly connections: Set<ProgramConnection>;
}

/** An event queue and its owner. */
interface QueuePlace {
  readonly queue: AnyQueue;
  readonly client: KernelClient;
}

/** Programs to report in one turn when all are disconnected. */
const STATUSES_PER_TURN = 512;
const CUTS_PER_TURN = 32;

/** Descriptors that a connection may have in flight: a program has one request outstanding. */
const IN_FLIGHT_MAX = 1;

/** Numbers of files and queues are positive s32, since programs see them as descriptors. */
const NUMBER_COUNT = 2 ** 31;

/** The pid of processes in another PID namespace; not unique. */
const UNSEEN_PID = 0;

const NO_BYTES = new Uint8Array(0);

/** True if the program expects no reply. */
function isOneWay({ op, flags }: ShimRequest): boolean {
  return (op === ShimOp.doorbell || op === ShimOp.arm) && (flags & RequestFlag.oneWay) !== 0;
}

/** Kinds of objects in device files. */
const FILE_KINDS = ['pd', 'mr', 'cq', 'srq', 'qp'] as const;

export class KernelServer implements KernelServices {
  readonly host: RnicHost;
  readonly events: EventRouter;
  readonly memories: ProcessMemories;
  readonly linger: Linger;
  readonly #heldReplies: HeldReplies<ProgramConnection>;
  readonly #options: KernelServerOptions;
  readonly #makers = kernelFileMakers();
  readonly #files = new Map<string, OpenFile>();
  readonly #queues = new Map<string, QueuePlace>();
  /** Numbers in use; requests identify files and queues by them. */
  readonly #numbers = new Map<number, KernelFile | undefined>();
  readonly #clients = new Map<string, KernelClient>();
  /** Closed files with objects left. */
  readonly #ending: EndingOwners<KernelFile>;
  /** Separate for rdma_cm, so that ports are free before many queue pairs are destroyed. */
  readonly #endingChannels: EndingOwners<KernelFile>;
  readonly #reasons = new ReasonLines();
  #lastNumber = 0;

  constructor(options: KernelServerOptions) {
    this.host = options.directory.emulated;
    this.events = options.directory.events;
    this.linger = new Linger(this.host.clock);
    this.#heldReplies = new HeldReplies((delay, run) => this.host.clock.after(delay, run));
    this.#ending = new EndingOwners(this.host);
    this.#endingChannels = new EndingOwners(this.host);
    this.#options = options;
    options.refusals.watch((refusal) => this.#reasons.note(refusal));
    this.memories = new ProcessMemories(options.memoryTiers, ({ pid, uid }, address) => {
      const text = 'registered memory cannot be accessed: the program has unmapped or protected it';
      options.note('warn', text, { pid, uid, address: `0x${address.toString(16)}` });
    });
  }

  // For the socket's server

  clients(): KernelClient[] {
    return [...this.#clients.values()];
  }

  /** Offers the objects of each open device for a reply. */
  listObjects(window: ObjectWindow): void {
    for (const { file } of this.#files.values()) {
      if (file instanceof UverbsFile) file.listObjects(window);
    }
  }

  /**
   * Accepts a connection if its role is one of the kernel's; otherwise returns undefined. Throws
   * `VerbsError`: EACCES for an unknown token or that of another user, ENODEV, EOPNOTSUPP, EBUSY.
   */
  enter(connection: ProgramConnection, role: number, token: Uint8Array): KernelWelcome | undefined {
    if (role === Role.event) return this.#joinQueue(connection, token);
    const kind = FILE_ROLES[role];
    if (kind === undefined) return undefined;
    const deviceIndex = newFileOf(kind, token);
    const open = deviceIndex === undefined ? undefined : this.#open(kind, connection, deviceIndex);
    return this.#join(open ?? this.#fileOf(connection, token, kind), connection);
  }

  /** Accepts an agent connection if its token matches a file; otherwise returns false. */
  enterAgent(connection: ProgramConnection, token: Uint8Array): boolean {
    const open = this.#files.get(tokenText(token));
    if (open === undefined || !mayUse(open.file.client, connection)) return false;
    const memory = this.memories.find(connection.credentials, open.file);
    if (memory === undefined) return false;
    if (memory.agent?.open === true)
      throw new VerbsError('EBUSY', 'the process already has an agent');
    const agent = new AgentChannel(connection);
    memory.agent = agent;
    connection.onBytes = (bytes) => {
      this.#guard(open, () => agent.handleBytes(bytes));
      // Any stream of the program may have been waiting for this memory.
      this.host.drain();
    };
    connection.onClosed = () => {
      agent.handleClosed();
      this.host.drain();
    };
    return true;
  }

  /** Compares files, programs and their accounts, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    const held = new Map<KernelClient, Map<ObjectKind, number>>();
    for (const client of this.#clients.values()) held.set(client, new Map());
    for (const { file, connections } of this.#files.values()) {
      assert(connections.size > 0, 'open file without a connection');
      assert(this.#numbers.get(file.number) === file, 'file filed under another number');
    }
    const ending = [...this.#ending.owners, ...this.#endingChannels.owners];
    const all = [...[...this.#files.values()].map(({ file }) => file), ...ending];
    for (const file of all) {
      const kinds = held.get(file.client);
      assert(kinds !== undefined, 'open file of an unknown program');
      const note = (kind: ObjectKind, count: number): void => {
        kinds.set(kind, (kinds.get(kind) ?? 0) + count);
      };
      if (file instanceof CmFile || file instanceof UverbsFile) file.assertDeepInvariants();
      if (file instanceof CmFile) note('id', file.size);
      if (!(file instanceof UverbsFile)) continue;
      note('context', 1);
      for (const kind of FILE_KINDS) note(kind, file.table.ofKind(kind).length);
    }
    for (const [client, kinds] of held) {
      const { ledger, openFiles } = client;
      ledger.assertInvariants();
      const files = all.filter((file) => file.client === client);
      assert(files.length === openFiles, 'wrong count of open files');
      let [shared, pinned, unread] = [0, 0, 0];
      for (const file of files) {
        if (file instanceof CmFile) unread += file.unreadEvents;
        if (!(file instanceof UverbsFile)) continue;
        unread += file.unreadEvents;
        shared += file.mappings.heldBytes;
        for (const { mr } of file.table.ofKind('mr')) pinned += mr.lengthBytes;
      }
      assert(client.unreadEvents === unread, 'wrong count of unread events');
      assert(ledger.held('sharedBytes') === shared, 'wrong count of shared bytes');
      assert(ledger.held('pinnedBytes') === pinned, 'wrong count of registered bytes');
      for (const kind of [...FILE_KINDS, 'context', 'id'] as const) {
        assert(ledger.count(kind) === (kinds.get(kind) ?? 0), `wrong count of ${kind}`);
      }
    }
    for (const { queue } of this.#queues.values()) queue.assertInvariants();
    this.memories.assertInvariants();
  }

  /**
   * Ends every file, a few in each turn. Resolves once all their objects are destroyed. First calls `onCut`
   * with the last status of each program.
   */
  async cutFiles(reason: string, onCut: (last: ClientStatus) => void): Promise<void> {
    const soon = (run: () => void): void => this.host.soon(run);
    await inSlices([...this.#clients.values()], STATUSES_PER_TURN, soon, (client) => {
      if (client.openFiles > 0) onCut(client.status());
    });
    await inSlices([...this.#files.values()], CUTS_PER_TURN, soon, (open) => {
      this.#cut(open, reason);
    });
    await this.#ending.idle();
    await this.#endingChannels.idle();
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
    if (file === undefined) return undefined;
    return isSameUser(file.client.credentials, client.credentials) ? file : undefined;
  }

  findQP(deviceIndex: number, qpn: number, client: KernelClient): QP | undefined {
    const qp = this.host.devices[deviceIndex]?.nic.findQP(qpn);
    if (!(qp?.tag instanceof UverbsQp)) return undefined;
    const { credentials } = qp.tag.file.client;
    return isSameUser(credentials, client.credentials) ? qp : undefined;
  }

  resources(deviceIndex: number): DeviceResources {
    const device = this.host.devices[deviceIndex];
    assert(device !== undefined, 'file of an unknown device');
    return this.#options.directory.resources.of(device);
  }

  get ids(): NumberedList<ListedId> {
    return this.#options.directory.resources.ids;
  }

  // Files

  #open(kind: KernelFileKind, connection: ProgramConnection, deviceIndex: number): OpenFile {
    const make = this.#makers[kind];
    if (make === undefined)
      throw new VerbsError('EOPNOTSUPP', `the daemon serves no files of kind ${kind}`);
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

  #newClient(credentials: PeerProcess): KernelClient {
    const { nextClientId, quotas, refusals, findings } = this.#options;
    return new KernelClient(nextClientId(), credentials, quotas, { refusals, findings });
  }

  #came(client: KernelClient): void {
    this.#clients.set(clientKey(client.credentials), client);
    this.#options.note('debug', 'program connected', aboutClient(client));
  }

  #fileOf(connection: ProgramConnection, token: Uint8Array, kind: KernelFileKind): OpenFile {
    const open = this.#files.get(tokenText(token));
    if (open?.file.kind !== kind || !mayUse(open.file.client, connection)) throw unknownToken();
    return open;
  }

  #join(open: OpenFile, connection: ProgramConnection): KernelWelcome {
    const { file } = open;
    open.connections.add(connection);
    this.memories.hold(connection.credentials, file);
    const caller = new ConnectionCaller(connection.credentials, file.client);
    const { pid } = connection.credentials;
    const reader = new RequestReader((request) => {
      // An earlier request of the same read has ended the file.
      if (connection.closed) return;
      if (this.#heldReplies.has(connection) && !isOneWay(request)) {
        throw new IpcFormatError('a command before the reply to the last one');
      }
      this.linger.end();
      caller.note(request);
      const explains = (request.flags & RequestFlag.explain) !== 0 && pid !== UNSEEN_PID;
      if (explains && !caller.explains) this.#reasons.join(pid);
      if (explains) caller.explains = true;
      noteWork(file.kind, request.op * 256 + (request.payload[0] ?? 0));
      const pairs = request.op === ShimOp.connect;
      const { refusals } = this.#options;
      const ends = request.op === ShimOp.write || request.op === ShimOp.move;
      const memory = ends ? this.memories.find(connection.credentials, file) : undefined;
      const before = memory?.incoming.concerned;
      const reply = pairs
        ? this.#pair(connection)
        : request.op === ShimOp.explain
          ? DONE
          : executeOn(file, request, caller, refusals);
      const incoming = memory?.incoming;
      if (incoming === undefined || incoming.concerned === before || !incoming.ending) {
        this.#answer(connection, request, reply);
      } else this.#answerLater(connection, request, reply, incoming);
    });
    const kept = new KeptInput(connection);
    connection.serve((bytes, more) => {
      let taken = bytes.length;
      this.#guard(open, () => {
        taken = reader.push(bytes, more);
      });
      kept.note(reader.roomBytes);
      return taken;
    });
    connection.onClosed = (reason) => {
      if (caller.explains) this.#reasons.leave(pid);
      this.#heldReplies.drop(connection);
      this.memories.release(connection.credentials, file);
      this.#left(open, connection, reason);
    };
    return { token: open.token, text: String(file.number), ready: () => undefined };
  }

  /** Sends the process a further connection, for an event descriptor or its agent. */
  #pair(connection: ProgramConnection): KernelReply {
    try {
      const end = this.#options.pair(connection.credentials);
      const attach = (send: (descriptor: number) => void): void => {
        try {
          send(end);
        } finally {
          closeDescriptor(end);
        }
      };
      return { status: 0, attach };
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      return refusal('EMFILE', `the daemon cannot make another connection: ${error.message}`);
    }
  }

  /**
   * Answers a request that has ended a registration or a queue pair, or withdrawn rights, once no copy is under way
   * that this concerns: the program may then reuse its memory.
   */
  #answerLater(
    connection: ProgramConnection,
    request: ShimRequest,
    reply: KernelReply,
    incoming: IncomingCopies,
  ): void {
    const { op, flags, pid, id, argument } = request;
    const kept = { op, flags, pid, id, argument, payload: NO_BYTES };
    const send = (): void => this.#answer(connection, kept, reply);
    const remind = (): void => {
      connection.write(emitReply(id, { status: 0, flags: ReplyFlag.later }));
    };
    this.#heldReplies.hold(connection, incoming, send, remind);
  }

  #answer(connection: ProgramConnection, request: ShimRequest, reply: KernelReply): void {
    if (isOneWay(request)) return;
    const wanted = (request.flags & RequestFlag.explain) !== 0;
    const reasons = wanted ? this.#reasons.take(connection.credentials.pid) : [];
    const bytes = emitReply(request.id, reasons.length === 0 ? reply : { ...reply, reasons });
    if (reply.attach === undefined) {
      connection.write(bytes);
      return;
    }
    try {
      reply.attach((descriptor) => {
        this.#options.inFlight.send(connection, bytes, descriptor, IN_FLIGHT_MAX);
      });
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      connection.write(emitReply(request.id, refusal(error.code, error.message)));
    }
  }

  #left(open: OpenFile, connection: ProgramConnection, reason: string | undefined): void {
    if (!open.connections.delete(connection)) return;
    if (open.connections.size > 0) {
      if (reason !== undefined) this.#cut(open, reason);
      else if (open.file instanceof UverbsFile) open.file.processLeft();
      return;
    }
    const { file, token } = open;
    const { client } = file;
    this.#files.delete(tokenText(token));
    this.#numbers.delete(file.number);
    const before = countsOf(client);
    if (reason !== undefined && file instanceof UverbsFile) file.cutOff();
    client.endingFiles += 1;
    (file instanceof CmFile ? this.#endingChannels : this.#ending).add(file, () => {
      if (reason === undefined) this.#noteEnd(client, before);
      this.#ended(file, reason);
    });
    if (client.endingFiles === client.openFiles) this.host.releasePorts(client);
    this.host.drain();
  }

  /** All objects of a file are destroyed. */
  #ended({ client, kind }: KernelFile, reason: string | undefined): void {
    this.host.drain();
    client.openFiles -= 1;
    client.endingFiles -= 1;
    if (client.openFiles === 0) {
      this.#clients.delete(clientKey(client.credentials));
      this.host.releasePorts(client);
    }
    const fields = aboutClient(client);
    if (reason !== undefined) {
      this.#options.note('warn', 'program was cut off', { ...fields, kind, reason });
    } else if (client.openFiles === 0) {
      this.#options.note('debug', 'program disconnected', fields);
    }
  }

  /** Records that the program closed a file; `before` counts the objects that it held. */
  #noteEnd(client: KernelClient, before: Readonly<Record<string, number>>): void {
    const after = countsOf(client);
    const objects = Object.fromEntries(
      Object.entries(before).map(([kind, count]) => [
        kind,
        Math.max(0, count - (after[kind] ?? 0)),
      ]),
    );
    const { id, program, credentials } = client;
    const { pid, uid } = credentials;
    this.#options.ended.note({ id, pid, uid, program, objects });
  }

  /** Ends a file by ending all its connections. */
  #cut(open: OpenFile, reason: string): void {
    for (const connection of [...open.connections]) connection.cut(reason);
  }

  /** Bytes that violate the protocol end the file, whichever connection they arrive on. */
  #guard(open: OpenFile, receive: () => void): void {
    try {
      receive();
    } catch (error) {
      if (!(error instanceof IpcFormatError)) throw error;
      this.#cut(open, error.message);
    }
  }

  // Event descriptors

  #joinQueue(connection: ProgramConnection, token: Uint8Array): KernelWelcome {
    const open = this.#files.get(tokenText(token));
    const place = this.#queues.get(tokenText(token));
    const queue = open?.file.ownQueue ?? place?.queue;
    const client = open?.file.client ?? place?.client;
    if (queue === undefined || client === undefined || !mayUse(client, connection)) {
      throw unknownToken();
    }
    if (queue.attached) throw new VerbsError('EBUSY', 'the event queue already has a descriptor');
    // The visible descriptor of rdma_cm counts as a connection of the file: it keeps it open.
    open?.connections.add(connection);
    connection.onBytes = () => connection.cut('bytes on an event descriptor');
    connection.onClosed = (reason) => {
      queue.end();
      if (open !== undefined) this.#left(open, connection, reason);
    };
    const path: EventPath = {
      write: (bytes) => {
        connection.write(bytes);
        this.linger.begin();
      },
      close: () => connection.close(),
    };
    return { token, text: queue.welcome, ready: () => queue.attach(path) };
  }

  /** An unused number, never 0. */
  #nextNumber(): number {
    do {
      this.#lastNumber = (this.#lastNumber + 1) % NUMBER_COUNT;
    } while (this.#lastNumber === 0 || this.#numbers.has(this.#lastNumber));
    return this.#lastNumber;
  }
}

class ConnectionCaller implements KernelCaller {
  readonly credentials: PeerProcess;
  readonly isOpener: boolean;
  ownPid = true;
  /** True once it has requested reasons. */
  explains = false;
  #pid: number | undefined;

  constructor(credentials: PeerProcess, opener: KernelClient) {
    this.credentials = credentials;
    this.isOpener = credentials.identity === opener.credentials.identity;
  }

  /** A connection belongs to the process that made it; its first request carries that pid. */
  note(request: ShimRequest): void {
    this.#pid ??= request.pid;
    this.ownPid = request.pid === this.#pid;
  }
}

/** The device index of a hello that opens a new file; undefined when it joins an existing one. */
function newFileOf(kind: KernelFileKind, token: Uint8Array): number | undefined {
  const first = new DataView(token.buffer, token.byteOffset, 4).getUint32(0, true);
  if (token.subarray(4).some((byte) => byte !== 0)) return undefined;
  if (kind !== 'uverbs') return first === 0 ? 0 : undefined;
  return first === 0 ? undefined : first - 1;
}

function clientKey({ uid, identity }: PeerProcess): string {
  return `${uid} ${identity}`;
}

function mayUse(client: KernelClient, connection: ProgramConnection): boolean {
  return client.credentials.uid === connection.credentials.uid;
}

function countsOf({ ledger }: KernelClient): Readonly<Record<string, number>> {
  return Object.fromEntries(OBJECT_KINDS.map((kind) => [kind, ledger.count(kind)]));
}

function aboutClient({ credentials, program }: KernelClient): Record<string, unknown> {
  return { pid: credentials.pid, uid: credentials.uid, program };
}

function unknownToken(): VerbsError {
  return new VerbsError(
    'EACCES',
    `${ERRNO.EACCES.text}: unknown token, or the token of another user`,
  );
}
