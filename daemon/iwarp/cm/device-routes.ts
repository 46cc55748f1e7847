/** Finds the device for a local address, and the device through which a destination is reached. */
import { addressFamily, isLoopback, isWildcard } from '#base/address';
import type { HostNetwork, NoRoute } from './cm-host.ts';
import type { CmDevice } from './cm-types.ts';

/** A source address and the device that has it. */
interface DeviceRoute {
  readonly address: string;
  readonly device: CmDevice;
}

export class DeviceRoutes {
  readonly #devices: () => readonly CmDevice[];
  readonly #network: HostNetwork;

  constructor(devices: () => readonly CmDevice[], network: HostNetwork) {
    this.#devices = devices;
    this.#network = network;
  }

  /** The device that lists the address, or the first that serves every address. */
  deviceFor(address: string): CmDevice | undefined {
    const devices = this.#devices();
    return (
      devices.find((device) => device.addresses.includes(address)) ??
      devices.find((device) => device.addresses.length === 0)
    );
  }

  /**
   * True for an address that determines no device. The kernel treats loopback like a wildcard
   * (cma_any_addr), and libfabric binds it if it was given none. A loopback address determines a
   * device that was configured with it.
   */
  leavesDeviceOpen(address: string): boolean {
    if (isWildcard(address)) return true;
    if (!isLoopback(address)) return false;
    return this.#devices().every(({ addresses }) => !addresses.includes(address));
  }

  /**
   * Device and source for a destination. Unless the id is bound, the host's own choice of a source
   * is tried first. If no device has that one, the devices' addresses are tried in order: this is
   * how devices on parts of 127.0.0.0/8 reach each other. Only devices with the same lower layer
   * reach a destination that a device of this host lists.
   */
  find(destination: string, bound: string | undefined): DeviceRoute | NoRoute {
    const given = bound === undefined || isWildcard(bound) ? undefined : bound;
    const chosen = this.#network.sourceAddress(destination, given);
    if ('error' in chosen) return chosen;
    const device = this.deviceFor(chosen.address);
    const owner = this.#devices().find(({ addresses }) => addresses.includes(destination));
    const fits = (one: CmDevice) => owner === undefined || one.lowerLayer === owner.lowerLayer;
    if (device !== undefined && (given !== undefined || fits(device))) {
      return { address: chosen.address, device };
    }
    if (given !== undefined) return { error: 'ENODEV' };
    for (const candidate of this.#devices()) {
      if (!fits(candidate)) continue;
      for (const address of candidate.addresses) {
        if (addressFamily(address) !== addressFamily(destination)) continue;
        if (isLoopback(address) !== isLoopback(destination)) continue;
        const source = this.#network.sourceAddress(destination, address);
        if (!('error' in source)) return { address, device: candidate };
      }
    }
    return { error: 'ENODEV' };
  }
}
