/** The verbs API on the devices that the installed rdma-core finds. */
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { optional, options, TEXT, takes } from '#contract/verbs/arguments';
import type { DeviceInfo } from '#contract/verbs/attributes';
import { CMEventType } from '#contract/verbs/enums';
import type { ConnectionId, ConnectionIdInit, Context, Provider } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import { type NativeCMEvent, type NativeCmId, NativeEventChannel } from '#native-bridge/rdma/cm-id';
import { NativeDevice } from '#native-bridge/rdma/device';
import { listDevices, type NativeDeviceInfo } from '#native-bridge/rdma/device-list';
import { unsupported } from '#native-bridge/rdma/errors';
import { type Libraries, type LibraryOptions, openLibraries } from '#native-bridge/rdma/libraries';
import { Presence } from '../client/lifetime.ts';
import { type ConnectionIdOwner, RdmaConnectionId } from './connection-id.ts';
import { RdmaContext } from './context.ts';
import { OwnedObject } from './owned-object.ts';

/** Limit of events handled in a turn: each takes several system calls. */
const EVENTS_PER_TURN = 16;

/** Options of `createNative`. */
export interface NativeOptions {
  /** Library files to use instead of the system's. */
  readonly libraries?: LibraryOptions | undefined;
}

const check = takes('createNative', {
  options: optional(
    options<NativeOptions>({
      libraries: optional(options<LibraryOptions>({ verbs: optional(TEXT), cm: optional(TEXT) })),
    }),
  ),
});

/**
 * The devices of the installed libibverbs and librdmacm as a provider.
 *
 * Programs written for a daemon run on it unchanged. Rejects with `NativeError`: `libraryMissing`
 * (ENODEV), `libraryTooOld` (ENOSYS). On a host without a device, the list is empty and opening one
 * fails with ENODEV. Closing the provider closes every connection and object.
 */
export async function createNative(given: NativeOptions = {}): Promise<Provider> {
  check(given);
  return new RdmaProvider(openLibraries(given.libraries));
}

class RdmaProvider extends OwnedObject implements Provider, ConnectionIdOwner {
  readonly kind = 'native';
  readonly #libraries: Libraries;
  readonly #contexts = new Set<RdmaContext>();
  readonly #ids = new Map<NativeCmId, RdmaConnectionId>();
  /** Opened for the first id: a host may have devices without a connection manager. */
  #channel: NativeEventChannel | undefined;
  #watch: DescriptorWatch | undefined;

  constructor(libraries: Libraries) {
    super(new Presence(), 'provider');
    this.#libraries = libraries;
  }

  get provider(): Provider {
    return this;
  }

  async devices(): Promise<readonly DeviceInfo[]> {
    this.assertUsable();
    return this.#usableDevices().map(describe);
  }

  async open(name?: string): Promise<Context> {
    checkCall.open(name);
    this.assertUsable();
    const wanted = name ?? this.#usableDevices()[0]?.name;
    const native = NativeDevice.open(this.#libraries, wanted);
    if (native.info.transport !== 'iwarp') {
      native.dispose();
      throw unsupported(native.info.name, 'iWARP: it has another transport');
    }
    const context = new RdmaContext(this, native, describe(native.info), () =>
      this.#contexts.delete(context),
    );
    this.#contexts.add(context);
    return context;
  }

  async createId(init: ConnectionIdInit = {}): Promise<ConnectionId> {
    checkCall.createId(init);
    this.assertUsable();
    if (init.datagrams === true) throw unsupported('the native provider', 'datagram services');
    return this.#adopt(this.#openChannel().createId(), false);
  }

  forget(id: RdmaConnectionId): void {
    this.#ids.delete(id.native);
  }

  protected override async destroy(): Promise<void> {
    await Promise.all([...this.#ids.values()].map((id) => id.close()));
    await Promise.all([...this.#contexts].map((context) => context.close()));
    this.#watch?.close();
    await this.#channel?.settled();
    this.#channel?.dispose();
  }

  protected override released(): void {
    this.#ids.clear();
    this.#contexts.clear();
  }

  /** A device was removed; its contexts may not be notified (siw). */
  #lose(device: string | undefined): void {
    for (const context of this.#contexts) {
      if (context.device.name === device) context.lose();
    }
  }

  #usableDevices(): NativeDeviceInfo[] {
    return listDevices(this.#libraries).filter(({ transport }) => transport === 'iwarp');
  }

  #openChannel(): NativeEventChannel {
    if (this.#channel === undefined) {
      const channel = new NativeEventChannel(this.#libraries);
      this.#channel = channel;
      this.#watch = watchDescriptor(channel.descriptor, () => this.#readEvents(channel));
    }
    return this.#channel;
  }

  #adopt(native: NativeCmId, isRequest: boolean): RdmaConnectionId {
    const id = new RdmaConnectionId(this, native, isRequest);
    this.#ids.set(native, id);
    return id;
  }

  #readEvents(channel: NativeEventChannel): void {
    try {
      // The rest is reported again in the next turn.
      for (let count = 0; count < EVENTS_PER_TURN; count += 1) {
        const event = channel.readEvent();
        if (event === undefined) return;
        this.#handle(event);
      }
    } catch (error) {
      this.#watch?.close();
      this.presence.lose(`the connection manager is gone: ${String(error)}`);
    }
  }

  #handle(event: NativeCMEvent): void {
    if (event.type !== CMEventType.connectRequest) {
      const id = this.#ids.get(event.id);
      id?.handleEvent(event, id);
      if (event.type === CMEventType.deviceRemoval) this.#lose(id?.device);
      return;
    }
    const listener = event.listenId === undefined ? undefined : this.#ids.get(event.listenId);
    const request = this.#adopt(event.id, true);
    if (listener?.enlist(request) === true) listener.handleEvent(event, request);
    // Closing rejects.
    else void request.close().catch(() => {});
  }
}

function describe({ name, nodeGuid }: NativeDeviceInfo): DeviceInfo {
  return { name, backend: 'native', nodeGuid, addresses: addressesOf(name) };
}

/**
 * The addresses of the network interface under a device; none if the kernel does not report one.
 */
function addressesOf(device: string): string[] {
  const interfaces = networkInterfaces();
  const named = readText(`/sys/class/infiniband/${device}/ports/1/gid_attrs/ndevs/0`);
  const ofNamed = interfaces[named];
  if (ofNamed !== undefined) return ofNamed.map(({ address }) => address);
  // Soft devices report no interface, but their GID begins with its MAC address.
  const gid = readText(`/sys/class/infiniband/${device}/ports/1/gids/0`).replaceAll(':', '');
  return Object.values(interfaces).flatMap((entries = []) =>
    entries
      .filter(({ mac }) => gid.startsWith(mac.replaceAll(':', '')))
      .map((each) => each.address),
  );
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
