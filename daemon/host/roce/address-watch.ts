/**
 * Watches the addresses of this machine for RoCE devices that have all of them. A look takes a few
 * system calls and comes once a second: whoever adds an address waits longer than that for others to
 * use it.
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

/** See the module's comment. */
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
      look(this.#host);
      this.#look();
    });
  }
}

function look(host: WatchedHost): void {
  try {
    host.checkAddresses();
  } catch (error) {
    // Without a free descriptor the system does not tell them; the next look will.
    if (!isSystemError(error)) throw error;
  }
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_SYSTEM_ERROR';
}
