/**
 * Which host serves what: the emulated one, or that of native devices, if there is any.
 *
 * An address belongs to the emulated device that was configured with it; else to the native device
 * behind whose network interface it is; else to the emulated device for every address. Thus a
 * native device serves its addresses unless somebody said otherwise.
 */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../../verbs-api/contract/provider.ts';
import type { DeviceBackend, DeviceHost } from '../../adapter/device-backend.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import { canonicalAddress, isWildcard } from '../../cm/address.ts';

/** A device and the host that it is of. */
export interface FoundDevice {
  readonly host: DeviceHost;
  readonly device: DeviceBackend;
}

/** See the module's comment. */
export class DeviceDirectory {
  readonly emulated: RnicHost;
  readonly native: DeviceHost | undefined;
  readonly hosts: readonly DeviceHost[];

  constructor(emulated: RnicHost, native: DeviceHost | undefined) {
    this.emulated = emulated;
    this.native = native;
    this.hosts = native === undefined ? [emulated] : [emulated, native];
  }

  /** All devices, the emulated ones first. */
  devices(): DeviceBackend[] {
    return this.hosts.flatMap(({ devices }) => [...devices]);
  }

  /** The device of this name, or the first one. ENODEV. */
  find(name: string | undefined): FoundDevice {
    for (const host of this.hosts) {
      const device = host.devices.find((one) => name === undefined || one.name === name);
      if (device !== undefined) return { host, device };
    }
    throw new VerbsError('ENODEV', name === undefined ? 'no device' : `no device named ${name}`);
  }

  /** The host for a local address; for any address the emulated one. */
  at({ address }: SocketAddress): DeviceHost {
    const local = canonicalAddress(address);
    // What is no address is for the emulated host to refuse.
    if (this.native === undefined || local === undefined || isWildcard(local)) return this.emulated;
    if (names(this.emulated, local)) return this.emulated;
    return names(this.native, local) ? this.native : this.emulated;
  }

  /**
   * The host through which `destination` is reached: that of the local address from which the
   * machine's routes go there, be it `source` or their own choice.
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

function names({ devices }: DeviceHost, address: string): boolean {
  return devices.some(({ info }) => info.addresses.includes(address));
}
