/**
 * The command channel of a device in the daemon: commands and events on a control connection, doorbells and
 * completion events on separate connections, shared memory by descriptor.
 */
import type {
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
  MappingRef,
} from '#contract/protocol/commands';
import { parseTokenText, Role } from '#contract/protocol/ipc-frames';
import {
  COMPLETION_RECORD_BYTES,
  DOORBELL_BYTES,
  RecordReader,
  recordHandle,
} from '#contract/protocol/ipc-records';
import type { IpcValue } from '#contract/protocol/ipc-value';
import { VerbsError } from '#contract/verbs/errors';
import { addressOf } from '#native-bridge/libc/libc';
import { allowTracer } from '#native-bridge/libc/process-vm';
import { DaemonCalls } from './daemon-calls.ts';
import { DaemonConnection } from './daemon-connection.ts';
import { type DaemonOptions, placeOf } from './daemon-place.ts';
import type { DaemonPlace } from './daemon-trust.ts';
import { DescriptorMapper } from './descriptor-mapper.ts';
import { MemoryAgent } from './memory-agent.ts';

export class DaemonChannel implements CommandChannel {
  readonly kind = 'daemon';
  onEvent: (event: DeviceEvent) => void = () => undefined;
  onLost: (error: Error) => void = () => undefined;
  readonly #place: DaemonPlace;
  readonly #calls: DaemonCalls;
  readonly #doorbells: DoorbellSender;
  readonly #mapper: DescriptorMapper;
  readonly #agent = new MemoryAgent();
  readonly #secondary = new Set<DaemonConnection>();
  readonly #token: Uint8Array;
  #agentConnected: Promise<void> | undefined;
  #closing = false;

  private constructor(place: DaemonPlace, control: DaemonConnection, doorbell: DaemonConnection) {
    this.#place = place;
    this.#token = control.welcome.token;
    this.#doorbells = new DoorbellSender(doorbell);
    this.#mapper = new DescriptorMapper(place, this.#token);
    this.#secondary.add(doorbell);
    this.#calls = new DaemonCalls(control);
    this.#calls.onEvent = (event) => this.onEvent(event as unknown as DeviceEvent);
    this.#calls.onClosed = (error) => this.#lost(error);
  }

  /**
   * Connects to the daemon. Rejects with `VerbsError`: ENODEV or ECONNREFUSED if none is running,
   * with a text that says how to start one; EACCES for a daemon of another user, or if the daemon
   * refuses this one; EPROTO, ETIMEDOUT.
   */
  static async connect(options: DaemonOptions = {}): Promise<DaemonChannel> {
    const place = placeOf(options);
    const control = await DaemonConnection.open(place, Role.control);
    try {
      allowTracer(control.daemonPid);
      const { token } = control.welcome;
      const doorbell = await DaemonConnection.open(place, Role.doorbell, token);
      return new DaemonChannel(place, control, doorbell);
    } catch (error) {
      control.destroy();
      throw error;
    }
  }

  async request<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): Promise<CommandReply<N>> {
    if (name === 'regMR') return await this.#register(name, request);
    const reply = await this.#call(name, request);
    if (name === 'deregMR') this.#agent.remove((request as CommandRequest<'deregMR'>).mr);
    return reply;
  }

  map(mapping: MappingRef): Promise<Uint8Array> {
    return this.#mapper.map(mapping);
  }

  doorbell(qp: Handle): void {
    this.#doorbells.ring(qp);
  }

  addressOf(buffer: Uint8Array): bigint {
    const address = addressOf(buffer);
    this.#agent.note(address, buffer);
    return address;
  }

  async openEventPath(
    _channel: Handle,
    token: string,
    onEvent: (cq: Handle) => void,
  ): Promise<{ readonly fd: number | undefined; close(): void }> {
    const connection = await this.#open(Role.channel, parseTokenText(token));
    const reader = new RecordReader(
      COMPLETION_RECORD_BYTES,
      () => 0,
      (record) => onEvent(recordHandle(record)),
    );
    connection.onBytes = (bytes) => reader.push(bytes);
    const close = () => {
      this.#secondary.delete(connection);
      connection.destroy();
    };
    return { fd: connection.fd, close };
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#mapper.close();
    await this.#calls.close();
    this.#endSecondary();
  }

  async #register<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): Promise<CommandReply<N>> {
    const { source } = request as CommandRequest<'regMR'>;
    if (source.kind !== 'process') return await this.#call(name, request);
    // The daemon decides at registration whether the region needs the agent.
    this.#agentConnected ??= this.#connectAgent();
    const done = this.#agent.begin(source.address);
    let mr: Handle | undefined;
    try {
      await this.#agentConnected;
      const reply = await this.#call(name, request);
      mr = (reply as CommandReply<'regMR'>).mr;
      return reply;
    } finally {
      done(mr);
    }
  }

  async #connectAgent(): Promise<void> {
    const connection = await this.#open(Role.agent, this.#token);
    const reader = this.#agent.reader((bytes) => connection.write(bytes));
    connection.onBytes = (bytes) => reader.push(bytes);
  }

  async #open(role: Role, token: Uint8Array): Promise<DaemonConnection> {
    if (this.#closing) throw new VerbsError('EIO');
    const connection = await DaemonConnection.open(this.#place, role, token);
    this.#secondary.add(connection);
    return connection;
  }

  /**
   * The daemon has the same protocol version and release, so its replies are trusted to have the
   * right shape.
   */
  async #call<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): Promise<CommandReply<N>> {
    const reply = await this.#calls.call(name, request as unknown as IpcValue);
    return reply as unknown as CommandReply<N>;
  }

  #lost(error: Error): void {
    this.#endSecondary();
    if (this.#closing) return;
    this.#closing = true;
    this.#mapper.close();
    this.onLost(error);
  }

  #endSecondary(): void {
    for (const connection of this.#secondary) connection.destroy();
    this.#secondary.clear();
  }
}

/** Rings doorbells without waiting: if the socket is full, one doorbell per queue pair is kept. */
class DoorbellSender {
  readonly #connection: DaemonConnection;
  readonly #record = new Uint8Array(DOORBELL_BYTES);
  readonly #fields = new DataView(this.#record.buffer);
  readonly #kept = new Set<Handle>();

  constructor(connection: DaemonConnection) {
    this.#connection = connection;
  }

  ring(qp: Handle): void {
    // A doorbell means "look": a queued one also covers later ones.
    if (this.#connection.congested) this.#kept.add(qp);
    else this.#send(qp);
  }

  #send(qp: Handle): void {
    this.#fields.setUint32(0, qp, true);
    this.#connection.write(this.#record, DOORBELL_BYTES, () => this.#flush());
  }

  #flush(): void {
    const kept = [...this.#kept];
    this.#kept.clear();
    for (const qp of kept) this.ring(qp);
  }
}
