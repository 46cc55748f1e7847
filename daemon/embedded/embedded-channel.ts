/** The command channel of a device in the program's own process: commands are calls. */
import type {
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
  MappingRef,
} from '#contract/protocol/commands';
import { VerbsError } from '#contract/verbs/errors';
import { DeviceDirectory } from '../clients/objects/device-directory.ts';
import type { RnicHost } from '../host/rnic-host.ts';
import { ClientContext } from '../ipc/verbs/client-context.ts';
import { EmbeddedMemory } from './embedded-memory.ts';

/** The longest timeout of Node's timers. */
const LIFELINE_MS = 2 ** 31 - 1;

/** Owns the host: both close together. */
export class EmbeddedChannel implements CommandChannel {
  readonly kind = 'embedded';
  onEvent: (event: DeviceEvent) => void = () => undefined;
  onLost: (error: Error) => void = () => undefined;
  readonly #host: RnicHost;
  readonly #memory = new EmbeddedMemory();
  readonly #client: ClientContext;
  readonly #channels = new Map<Handle, (cq: Handle) => void>();
  /** Events not yet delivered to the program. */
  #deliveries: (() => void)[] = [];
  /** Keeps the process alive while it is referenced; does nothing else. */
  readonly #lifeline = setInterval(() => undefined, LIFELINE_MS).unref();
  #closed = false;

  constructor(host: RnicHost) {
    this.#host = host;
    this.#client = new ClientContext({
      directory: new DeviceDirectory(host, undefined),
      memory: this.#memory,
      sendEvent: (event) => this.#deliver(() => this.onEvent(event)),
      sendCompletion: (channel, cq) => this.#deliver(() => this.#channels.get(channel)?.(cq)),
      label: 'embedded',
      pid: process.pid,
    });
  }

  async request<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): Promise<CommandReply<N>> {
    this.#assertOpen();
    try {
      return this.#client.execute(name, request);
    } finally {
      if (name === 'regMR') this.#forget(request as CommandRequest<'regMR'>);
    }
  }

  async map(mapping: MappingRef): Promise<Uint8Array> {
    return this.#memory.view(mapping);
  }

  doorbell(qp: Handle): void {
    if (!this.#closed) this.#client.doorbell(qp);
  }

  addressOf(buffer: Uint8Array): bigint {
    return this.#memory.announce(buffer);
  }

  async openEventPath(
    channel: Handle,
    _token: string,
    onEvent: (cq: Handle) => void,
  ): Promise<{ readonly fd: undefined; close(): void }> {
    this.#channels.set(channel, onEvent);
    return { fd: undefined, close: () => void this.#channels.delete(channel) };
  }

  hold(alive: boolean): void {
    if (alive) this.#lifeline.ref();
    else this.#lifeline.unref();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#client.close();
    try {
      await this.#host.close();
    } finally {
      clearInterval(this.#lifeline);
    }
  }

  #assertOpen(): void {
    if (this.#closed) throw new VerbsError('EIO', 'the embedded device is closed');
  }

  #forget(request: CommandRequest<'regMR'>): void {
    if (request.source.kind === 'process') this.#memory.forget(request.source.address);
  }

  /**
   * Delivers in a microtask: never from inside a call into the device, which must not be
   * re-entered, and before the event loop continues with other work.
   */
  #deliver(delivery: () => void): void {
    this.#deliveries.push(delivery);
    if (this.#deliveries.length > 1) return;
    queueMicrotask(() => {
      const due = this.#deliveries;
      this.#deliveries = [];
      for (const run of due) run();
    });
  }
}
