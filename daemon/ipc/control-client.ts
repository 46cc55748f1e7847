/**
 * A client of the daemon: its control connection, the connections that belong to it, its memory and
 * its objects. It ends with its control connection, and everything it owned is released.
 */
import { randomBytes } from 'node:crypto';
import type { CommandName, DeviceEvent, Handle } from '#contract/protocol/commands';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitValueFrame,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
  TOKEN_BYTES,
  tokenText,
} from '#contract/protocol/ipc-frames';
import {
  COMPLETION_RECORD_BYTES,
  DOORBELL_BYTES,
  MAP_REPLY_BYTES,
  MAP_REQUEST_BYTES,
  RecordReader,
  recordHandle,
} from '#contract/protocol/ipc-records';
import { decodeValue, IpcFormatError, type IpcValue } from '#contract/protocol/ipc-value';
import { ERRNO, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import { ClientIdentity } from '../clients/client-identity.ts';
import type { ProgramConnection } from '../clients/connection.ts';
import type { DescriptorsInFlight } from '../clients/descriptors-in-flight.ts';
import { KeptInput } from '../clients/kept-input.ts';
import { AgentChannel } from '../clients/objects/agent-channel.ts';
import { DaemonMemory } from '../clients/objects/daemon-memory.ts';
import type { DeviceDirectory } from '../clients/objects/device-directory.ts';
import type { EndingOwners } from '../clients/objects/ending-owners.ts';
import type { OwnReport } from '../clients/objects/failure-report.ts';
import type { ObjectWindow } from '../clients/objects/object-window.ts';
import type { ClientQuotas } from '../clients/objects/quotas.ts';
import { noteWork } from '../host/turn-note.ts';
import { judge } from '../lint/advice.ts';
import type { Findings } from '../lint/findings.ts';
import type { Refusals } from '../refusals/refusals.ts';
import { COMMAND_SCHEMAS, isCommandName } from './command-schemas.ts';
import { ClientContext } from './verbs/client-context.ts';

/** Descriptors that a client may have in flight: `DescriptorMapper` requests no more at a time. */
const MAPPINGS_IN_FLIGHT_MAX = 64;

interface ControlClientOptions {
  /** Number of the client, see `ClientStatus`. */
  readonly id: number;
  readonly directory: DeviceDirectory;
  readonly quotas: ClientQuotas;
  readonly memoryTiers: readonly MemoryTier[];
  readonly inFlight: DescriptorsInFlight;
  /** Destroys its objects when it has ended. */
  readonly ending: EndingOwners<ClientContext>;
  /** Registers the token of a completion channel; the result unregisters it. */
  readonly announceChannel: (token: string, channel: Handle) => () => void;
  /** Records what the client is refused. */
  readonly refusals: Refusals;
  /** Records advice to the client. Default: none is given. */
  readonly findings?: Findings | undefined;
  /** Called once the client has ended and is cleaned up; `last` is its final status. */
  readonly onClosed: (reason: string | undefined, last: ClientStatus) => void;
}

/** A secondary connection of a client, by its purpose. */
export type SecondaryRole = 'doorbell' | 'map' | 'agent';

export class ControlClient {
  /** Unguessable token with which the client's other connections prove that they belong to it. */
  readonly token = randomBytes(TOKEN_BYTES);
  readonly context: ClientContext;
  readonly label: string;
  readonly #connection: ProgramConnection;
  readonly #options: ControlClientOptions;
  readonly #memory: DaemonMemory;
  readonly #identity: ClientIdentity;
  readonly #secondary = new Map<SecondaryRole, ProgramConnection>();
  readonly #channels = new Map<Handle, ChannelPath>();

  constructor(connection: ProgramConnection, options: ControlClientOptions) {
    this.#connection = connection;
    this.#options = options;
    const { credentials } = connection;
    this.#identity = new ClientIdentity(options.id, credentials);
    this.label = `pid ${credentials.pid} uid ${credentials.uid}`;
    const workEpoch = () => this.context.workEpoch();
    const share = options.quotas.budget?.of(credentials.uid);
    this.#memory = new DaemonMemory(credentials, options.memoryTiers, workEpoch, { share });
    this.context = new ClientContext({
      directory: options.directory,
      memory: this.#memory,
      quotas: options.quotas,
      uid: credentials.uid,
      gid: credentials.gid,
      sendEvent: (event) => this.#sendEvent(event),
      record: (report) => this.#record(report),
      judge: (object, device) => this.#judge(object, device),
      sendCompletion: (channel, cq) => this.#channels.get(channel)?.send(cq),
      openChannel: (channel) => this.#openChannel(channel),
      closeChannel: (channel) => this.#closeChannel(channel),
      label: this.label,
      pid: credentials.pid,
    });
    const reader = new IpcFrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => this.#take(frame));
    this.#serve(connection, reader);
    connection.onClosed = (reason) => this.#close(reason);
  }

  /** True if `connection` is from the same process as the control connection. */
  isPeer(connection: ProgramConnection): boolean {
    const { pid, uid } = connection.credentials;
    const own = this.#connection.credentials;
    return pid === own.pid && uid === own.uid;
  }

  /** True once it has disconnected, even if destroying its objects takes more turns. */
  get ended(): boolean {
    return this.#connection.closed;
  }

  status(): ClientStatus {
    return this.#identity.status(this.context.usage());
  }

  /** Offers its objects to a reply. */
  listObjects(window: ObjectWindow): void {
    const { id: client, credentials, program } = this.#identity;
    this.context.listObjects({ client, pid: credentials.pid, program }, window);
  }

  /** Compares its objects with its accounts, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.context.assertDeepInvariants();
    this.#memory.assertInvariants();
  }

  /** Disconnects the client and sends it the reason. */
  cut(reason: string): void {
    const farewell = emitValueFrame(FrameType.error, 0, ['EIO', reason]);
    this.#connection.cut(reason, farewell);
  }

  /** Adds a connection to the client. EBUSY if it already has one for that purpose. */
  attach(role: SecondaryRole, connection: ProgramConnection): void {
    if (this.#secondary.has(role))
      throw new VerbsError('EBUSY', `the client already has a ${role} connection`);
    this.#secondary.set(role, connection);
    if (role === 'agent') this.#serveAgent(connection);
    else this.#serve(connection, this.#reader(role, connection));
    connection.onClosed = (reason) => this.#detached(role, reason);
  }

  /**
   * Adds the connection that carries the events of a completion channel. EBUSY for a second one.
   */
  attachChannel(channel: Handle, connection: ProgramConnection): void {
    const path = this.#channels.get(channel);
    if (path === undefined) throw new VerbsError('ENOENT', 'no such completion channel');
    path.attach(connection);
    connection.onBytes = () => this.cut('bytes on a completion channel');
    connection.onClosed = (reason) => {
      path.detach();
      if (reason !== undefined) this.cut(`completion channel: ${reason}`);
    };
  }

  #reader(role: 'doorbell' | 'map', connection: ProgramConnection): RecordReader {
    if (role === 'doorbell') {
      return new RecordReader(DOORBELL_BYTES, noBody, (record) => {
        this.context.doorbell(recordHandle(record));
      });
    }
    return new RecordReader(MAP_REQUEST_BYTES, noBody, (record) => {
      this.#sendMapping(connection, tokenText(record));
    });
  }

  #serve(connection: ProgramConnection, reader: RecordReader): void {
    const kept = new KeptInput(connection);
    connection.serve((bytes, more) => {
      let taken = bytes.length;
      this.#guard(() => {
        taken = reader.push(bytes, more);
      });
      kept.note(reader.roomBytes);
      return taken;
    });
  }

  #serveAgent(connection: ProgramConnection): void {
    const agent = new AgentChannel(connection);
    this.#memory.agent = agent;
    connection.onBytes = (bytes) => {
      this.#guard(() => agent.handleBytes(bytes));
      // Any stream of the client may have been waiting for this memory.
      this.#options.directory.emulated.drain();
    };
  }

  #detached(role: SecondaryRole, reason: string | undefined): void {
    this.#secondary.delete(role);
    if (role === 'agent') {
      this.#memory.agent?.handleClosed();
      this.#options.directory.emulated.drain();
    }
    if (reason !== undefined) this.cut(`${role} connection: ${reason}`);
  }

  #sendMapping(connection: ProgramConnection, token: string): void {
    try {
      this.#memory.sendDescriptor(token, (descriptor) => {
        if (descriptor === undefined) throw new VerbsError('ENOENT', 'no memory has this token');
        const { inFlight } = this.#options;
        inFlight.send(connection, mapReply(0), descriptor, MAPPINGS_IN_FLIGHT_MAX);
      });
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      connection.write(mapReply(ERRNO[error.code].number));
    }
  }

  /** Bytes that violate the protocol end the client, whichever connection they arrive on. */
  #guard(receive: () => void): void {
    try {
      receive();
    } catch (error) {
      if (!(error instanceof IpcFormatError)) throw error;
      this.cut(error.message);
    }
  }

  #take(frame: IpcFrame): void {
    // An earlier frame of the same read has ended the client.
    if (this.#connection.closed) return;
    if (frame.type !== FrameType.request) throw new IpcFormatError(`frame of type ${frame.type}`);
    const value = decodeValue(frame.payload);
    const [name, request] = Array.isArray(value) && value.length === 2 ? value : [];
    if (!isCommandName(name)) throw new IpcFormatError('unknown command');
    const parsed = COMMAND_SCHEMAS[name].safeParse(request);
    if (!parsed.success) {
      const issue = parsed.error.issues[0];
      const where = issue === undefined ? '' : `${issue.path.join('.')}: ${issue.message}`;
      this.#refuse(frame.id, name, invalid(`${name}: invalid request: ${where}`), request);
      return;
    }
    this.#execute(frame.id, name, parsed.data);
  }

  #execute(id: number, name: CommandName, request: unknown): void {
    noteWork(name);
    try {
      // The schema of the command has checked the request.
      const reply: unknown = this.context.execute(name, request as never);
      this.#connection.gather(emitValueFrame(FrameType.reply, id, reply as IpcValue));
    } catch (error) {
      this.#refuse(id, name, error, request);
    }
  }

  /**
   * A `VerbsError` goes to the client; any other error is a broken invariant and stops the daemon.
   */
  #refuse(id: number, name: CommandName, error: unknown, request: unknown): void {
    if (!isVerbsError(error)) throw error;
    this.#record({
      api: 'typescript',
      verb: name,
      code: error.code,
      sentence: error.message,
      ...this.context.describe(request),
    });
    const value = [error.code, error.message];
    this.#connection.gather(emitValueFrame(FrameType.error, id, value));
  }

  #judge(object: object, device: string): void {
    const { findings } = this.#options;
    if (findings === undefined) return;
    const { program, credentials } = this.#identity;
    const linted = { pid: credentials.pid, program, device, script: true, usesCm: false };
    judge(object, linted, findings);
  }

  #record(report: OwnReport): void {
    const { credentials, program } = this.#identity;
    const { pid, uid } = credentials;
    this.#options.refusals.record({ pid, uid, program, ...report });
  }

  #sendEvent(event: DeviceEvent): void {
    const value = event as unknown as IpcValue;
    this.#connection.gather(emitValueFrame(FrameType.event, 0, value));
  }

  #openChannel(channel: Handle): string {
    const token = tokenText(randomBytes(TOKEN_BYTES));
    const forget = this.#options.announceChannel(token, channel);
    this.#channels.set(channel, new ChannelPath(forget));
    return token;
  }

  #closeChannel(channel: Handle): void {
    this.#channels.get(channel)?.close();
    this.#channels.delete(channel);
  }

  #close(reason: string | undefined): void {
    const last = this.status();
    this.#memory.leave();
    this.#options.ending.add(this.context, () => {
      for (const connection of this.#secondary.values()) connection.close();
      this.#memory.close();
      this.#options.onClosed(reason, last);
    });
  }
}

/** Destination of a completion channel's events: its connection, or a list until it connects. */
class ChannelPath {
  readonly #forget: () => void;
  readonly #record = new Uint8Array(COMPLETION_RECORD_BYTES);
  readonly #fields = new DataView(this.#record.buffer);
  /** Queues that fired before the channel connected; each once, so the set is bounded. */
  readonly #waiting = new Set<Handle>();
  #connection: ProgramConnection | undefined;

  constructor(forget: () => void) {
    this.#forget = forget;
  }

  attach(connection: ProgramConnection): void {
    if (this.#connection !== undefined)
      throw new VerbsError('EBUSY', 'channel already has a connection');
    this.#connection = connection;
    for (const cq of this.#waiting) this.send(cq);
    this.#waiting.clear();
  }

  detach(): void {
    this.#connection = undefined;
  }

  send(cq: Handle): void {
    if (this.#connection === undefined) {
      this.#waiting.add(cq);
      return;
    }
    this.#fields.setUint32(0, cq, true);
    this.#connection.write(this.#record);
  }

  close(): void {
    this.#forget();
    this.#connection?.close();
  }
}

function mapReply(errno: number): Uint8Array {
  const reply = new Uint8Array(MAP_REPLY_BYTES);
  new DataView(reply.buffer).setUint32(0, errno, true);
  return reply;
}

/** Records without a body. */
function noBody(): number {
  return 0;
}
