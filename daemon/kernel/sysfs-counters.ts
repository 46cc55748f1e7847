/**
 * Keeps the `hw_counters` of RoCE devices up to date in the device tree. They are plain files, updated
 * once a second; `iwarpd status` has the current values.
 */
import type { ServedDevice } from '#daemon/host/served-device';
import { replaceFile } from './sysfs-files.ts';

const INTERVAL_MS = 1000;

export class CounterFiles {
  readonly #directory: string;
  readonly #devices: readonly Pick<ServedDevice, 'name' | 'hwCounters'>[];
  /** Values as last written, by path. */
  readonly #written = new Map<string, number>();
  readonly #timer: NodeJS.Timeout | undefined;

  /** `directory` contains the tree, with every counter at 0. */
  constructor(directory: string, devices: readonly Pick<ServedDevice, 'name' | 'hwCounters'>[]) {
    this.#directory = directory;
    this.#devices = devices.filter(({ hwCounters }) => hwCounters !== undefined);
    if (this.#devices.length === 0) return;
    this.#timer = setInterval(() => this.#update(), INTERVAL_MS);
    // Must not keep the daemon running.
    this.#timer.unref();
  }

  /** Stops updating; the files stay. */
  close(): void {
    clearInterval(this.#timer);
  }

  #update(): void {
    try {
      for (const { name, hwCounters = {} } of this.#devices) {
        const folder = `class/infiniband/${name}/ports/1/hw_counters`;
        for (const [counter, value] of Object.entries(hwCounters)) {
          const path = `${folder}/${counter}`;
          if ((this.#written.get(path) ?? 0) === value) continue;
          replaceFile(this.#directory, path, String(value));
          this.#written.set(path, value);
        }
      }
    } catch {
      // The tree was removed, by the stopping daemon or another process.
      this.close();
    }
  }
}
