/**
 * Watches the addresses of this machine for RoCE devices that have all of them. A look takes a few
 * system calls for each interface and comes once a second; packets use what the last one found. A
 * program that names an address which that lacks has the host look at once.
 */
import type { Adapter } from '../device-adapter.ts';
import type { Alarm, HostClock } from '../links/network.ts';

const INTERVAL_MICROS = 1_000_000;

/** Whose devices they are. */
interface WatchedHost {
  readonly devices: readonly Pick<Adapter, 'info' | 'rocePort'>[];
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
