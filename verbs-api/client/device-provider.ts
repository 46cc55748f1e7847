/** The provider over any command channel: the daemon's socket, or the embedded device. */
import type {
  CMEventRecord,
  CMIdState,
  CommandChannel,
  DeviceEvent,
} from '#contract/protocol/commands';
import type { DeviceInfo } from '#contract/verbs/attributes';
import { CMEventType } from '#contract/verbs/enums';
import type { ConnectionId, ConnectionIdInit, Context, Provider } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { ClientConnectionId, type ConnectionIdOwner } from './connection-id.ts';
import { ClientDeviceContext } from './context.ts';
import { ClientObject, Session } from './session.ts';

const UNBOUND: CMIdState = { device: undefined, localAddress: undefined, peerAddress: undefined };

/**
 * `Provider` over a `CommandChannel`. It owns the channel: closing the provider closes every object
 * created through it, connections gracefully, and then the channel.
 */
export class DeviceProvider extends ClientObject implements Provider {
  readonly kind: 'daemon' | 'embedded';
  readonly #channel: CommandChannel;
  readonly #contexts = new Map<number, ClientDeviceContext>();
  readonly #ids = new Map<number, ClientConnectionId>();
  readonly #idOwner: ConnectionIdOwner;

  constructor(channel: CommandChannel) {
    super(new Session(channel), 'provider');
    this.#channel = channel;
    this.kind = channel.kind;
    this.#idOwner = {
      provider: this,
      session: this.session,
      forget: (id) => forgetOf(this.#ids, id),
    };
    channel.onEvent = (event) => this.#dispatch(event);
    channel.onLost = (error) => this.session.lose(error.message);
  }

  async devices(): Promise<readonly DeviceInfo[]> {
    this.assertUsable();
    const { devices } = await this.session.request('listDevices', {});
    return devices;
  }

  async open(name?: string): Promise<Context> {
    checkCall.open(name);
    this.assertUsable();
    const opened = await this.session.request('openDevice', { name });
    const context = new ClientDeviceContext(this, this.session, opened, () =>
      forgetOf(this.#contexts, context),
    );
    this.#contexts.set(opened.context, context);
    return context;
  }

  async createId(init: ConnectionIdInit = {}): Promise<ConnectionId> {
    checkCall.createId(init);
    const { datagrams = false } = init;
    this.assertUsable();
    const { id } = await this.session.request('cmCreateId', datagrams ? { datagrams } : {});
    return this.#enter(id, UNBOUND, datagrams);
  }

  protected override async destroy(): Promise<void> {
    // Listening ids first: closing one closes the ids of requests that were never taken.
    await Promise.all([...this.#ids.values()].map((id) => id.close()));
    await Promise.all([...this.#contexts.values()].map((context) => context.close()));
    // First, so waiting calls get this reason, and objects that close in the meantime succeed.
    this.session.lose('the provider is closed');
    await this.#channel.close();
  }

  protected override release(): void {
    // `destroy` has released everything.
  }

  #enter(handle: number, state: CMIdState, datagrams: boolean): ClientConnectionId {
    const id = new ClientConnectionId(this.#idOwner, handle, state, datagrams);
    this.#ids.set(handle, id);
    return id;
  }

  #dispatch(event: DeviceEvent): void {
    if (event.type === 'cm') this.#dispatchConnection(event.event);
    else if (event.type === 'failure') {
      this.#contexts.get(event.context)?.handleFailure(event.failure);
    } else this.#contexts.get(event.context)?.handleAsync(event.event);
  }

  #dispatchConnection(record: CMEventRecord): void {
    if (record.type !== CMEventType.connectRequest) {
      const id = this.#ids.get(record.id);
      id?.handleEvent(record, id);
      return;
    }
    const listener = record.listenId === undefined ? undefined : this.#ids.get(record.listenId);
    const requested = this.#enter(record.id, record.state, listener?.datagrams === true);
    if (listener?.usable === true) listener.handleEvent(record, requested);
    // The listener closed while the request was in flight: nothing will answer it.
    else void requested.close().catch(() => {});
  }
}

/** Removes an object unless its handle has been reused for another one. */
function forgetOf<T extends { readonly handle: number }>(objects: Map<number, T>, object: T): void {
  if (objects.get(object.handle) === object) objects.delete(object.handle);
}
