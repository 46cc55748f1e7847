/**
 * Watches the addresses of this machine for RoCE devices that serve all of them. Listing takes a few system
 * calls per interface, once a second; packets use the last result. If a program names an unknown address, the
 * host lists them at once.
 */
import type { EmulatedDevice } from '../emulated-device.ts';
import type { Alarm, HostClock } from '../links/network.ts';

const INTERVAL_MICROS = 1_000_000;

/** The host of the devices. */
interface WatchedHost {
  readonly devices: readonly Pick<EmulatedDevice, 'info' | 'rocePort'>[];
  readonly clock: HostClock;
  checkAddresses(): void;
}

export class AddressWatch {
  readonly #host: WatchedHost;
  #alarm: Alarm | undefined;

  constructor(host: WatchedHost) {
    this.#host = host;
    const open = host.devices.some(({ info, rocePort }) => {
      return rocePort !== undefined && info.addresses.length === 0;
    });
    if (open) this.#look();
  }

  close(): void {
    this.#alarm?.cancel();
  }

  #look(): void {
    this.#alarm = this.#host.clock.after(INTERVAL_MICROS, () => {
      this.#host.checkAddresses();
      this.#look();
    });
  }
}
