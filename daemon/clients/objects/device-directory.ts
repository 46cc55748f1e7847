/**
 * Maps devices and addresses to hosts: the emulated host, or the host of native devices if there are
 * any.
 *
 * For the connection manager, an address belongs to the emulated iWARP device configured with it;
 * otherwise to the native device whose network interface has it; otherwise to the emulated iWARP
 * device that answers for every address. So a native device serves its addresses unless the
 * configuration assigns them to an emulated one.
 *
 */
import { canonicalAddress, isWildcard } from '#base/address';
import { nearest } from '#contract/verbs/arguments';
import { VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { DeviceHost, ServedDevice } from '#daemon/host/served-device';
import { isTrusted } from '../trusted-user.ts';
import { AllResources } from './device-resources.ts';
import { EventRouter } from './event-router.ts';
import { mayOpenNode, type ProgramUser } from './user-rights.ts';

interface FoundDevice {
  readonly host: DeviceHost;
  readonly device: ServedDevice;
}

export class DeviceDirectory {
  readonly emulated: RnicHost;
  readonly native: DeviceHost | undefined;
  readonly hosts: readonly DeviceHost[];
  readonly events: EventRouter;
  readonly resources: AllResources;
  /** List devices of this user only; undefined: all devices. */
  readonly #user: ProgramUser | undefined;

  /** `whole` and `user`: see `forUser`. */
  constructor(
    emulated: RnicHost,
    native: DeviceHost | undefined,
    whole?: DeviceDirectory,
    user?: ProgramUser,
  ) {
    this.emulated = emulated;
    this.native = native;
    this.hosts = native === undefined ? [emulated] : [emulated, native];
    this.events = whole?.events ?? new EventRouter(this.hosts);
    this.resources = whole?.resources ?? new AllResources();
    this.#user = user;
  }

  /** The devices that programs of this user can use: users other than the daemon's may lack native ones. */
  forUser(user: ProgramUser): DeviceDirectory {
    if (this.native === undefined || isTrusted(user.uid)) return this;
    return new DeviceDirectory(this.emulated, this.native, this, user);
  }

  /** All devices, emulated ones first. */
  devices(): ServedDevice[] {
    return this.hosts.flatMap((host) => this.#permitted(host));
  }

  /** The native host, if ids may listen on all addresses of its devices. */
  get nativeEverywhere(): DeviceHost | undefined {
    return this.native?.devices.every((device) => this.#permits(device)) ? this.native : undefined;
  }

  /**
   * The device of this name; without a name, the first one whose queue pairs the connection manager
   * connects, otherwise the first. ENODEV; EACCES for a native device that the user may not open.
   */
  find(name: string | undefined): FoundDevice {
    const found =
      name === undefined
        ? (this.#first(isConnected) ?? this.#first(() => true))
        : this.#first((device) => device.name === name);
    if (found !== undefined) return found;
    const withheld = this.native?.devices.find((device) => device.name === name);
    if (withheld !== undefined) throw this.#refusal(withheld);
    throw new VerbsError('ENODEV', noDevice(name, this.devices()));
  }

  #permitted(host: DeviceHost): ServedDevice[] {
    return host.devices.filter((device) => this.#permits(device));
  }

  #permits({ info, node }: ServedDevice): boolean {
    if (this.#user === undefined || info.backend !== 'native') return true;
    return node !== undefined && mayOpenNode(node, this.#user);
  }

  #refusal({ name, node }: ServedDevice): VerbsError {
    const { uid } = this.#user ?? {};
    const text =
      `cannot open ${name}: user ${uid} may not open ${node}; let this user or everyone read and ` +
      'write it, or use an emulated device';
    return new VerbsError('EACCES', text);
  }

  #first(matches: (device: ServedDevice) => boolean): FoundDevice | undefined {
    for (const host of this.hosts) {
      const device = this.#permitted(host).find(matches);
      if (device !== undefined) return { host, device };
    }
    return undefined;
  }

  /** The host for a local address; the emulated host for the wildcard address. */
  at({ address }: SocketAddress): DeviceHost {
    const local = canonicalAddress(address);
    // The emulated host rejects text that is not an address.
    if (this.native === undefined || local === undefined || isWildcard(local)) return this.emulated;
    if (names(this.emulated.devices, local)) return this.emulated;
    return names(this.#permitted(this.native), local) ? this.native : this.emulated;
  }

  /**
   * The host that reaches `destination`: that of `source`, or of the local address that the routing
   * table selects.
   */
  towards(destination: SocketAddress, source: SocketAddress | undefined): DeviceHost {
    if (this.native === undefined) return this.emulated;
    const given = source === undefined ? undefined : canonicalAddress(source.address);
    if (given !== undefined && !isWildcard(given)) return this.at({ address: given, port: 0 });
    const remote = canonicalAddress(destination.address);
    if (remote === undefined) return this.emulated;
    const chosen = this.emulated.routeSource(remote, undefined);
    return chosen === undefined ? this.emulated : this.at({ address: chosen, port: 0 });
  }
}

function names(devices: readonly ServedDevice[], address: string): boolean {
  return devices.some((device) => isConnected(device) && device.info.addresses.includes(address));
}

/** Whether the connection manager connects the queue pairs of a device. */
function isConnected({ info }: ServedDevice): boolean {
  return info.transport !== 'roce';
}

/** Why the device is missing, with a list of those that exist. */
export function noDevice(
  name: string | undefined,
  devices: readonly Pick<ServedDevice, 'name'>[],
): string {
  const names = devices.map((device) => device.name);
  const near = name === undefined ? undefined : nearest(name, names);
  const hint = near === undefined ? '' : ` (Did you mean ${near}?)`;
  const wanted = name === undefined ? 'no device' : `no device ${name}${hint}`;
  return names.length === 0 ? wanted : `${wanted}; choose ${names.join(' or ')}`;
}
