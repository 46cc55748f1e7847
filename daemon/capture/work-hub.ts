/**
 * Passes the work of devices to watchers: each work request that a device accepts, each completion
 * that it writes. Devices are only observed while there is a watcher.
 */
import type { CompletedWork, PostedWork, WorkObserver } from '#contract/protocol/work-records';

interface WatchedDevice {
  readonly name: string;
  /** The device reports to this observer, if set. */
  readonly watch: { observer: WorkObserver | undefined };
}

/** Receives the work of all devices. It is borrowed for the call; must not call a device. */
export interface WorkWatcher {
  posted(device: string, work: PostedWork): void;
  completed(device: string, work: CompletedWork): void;
}

export class WorkHub {
  readonly #devices: readonly WatchedDevice[];
  readonly #watchers = new Set<WorkWatcher>();

  /** The hub must be the devices' only observer. */
  constructor(devices: readonly WatchedDevice[]) {
    this.#devices = devices;
  }

  /** Reports all work to the watcher until the returned function is called. */
  watch(watcher: WorkWatcher): () => void {
    this.#watchers.add(watcher);
    if (this.#watchers.size === 1) this.#observe();
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size > 0) return;
      for (const { watch } of this.#devices) watch.observer = undefined;
    };
  }

  #observe(): void {
    const watchers = this.#watchers;
    for (const { name, watch } of this.#devices) {
      watch.observer = {
        posted: (work) => {
          for (const watcher of watchers) watcher.posted(name, work);
        },
        completed: (work) => {
          for (const watcher of watchers) watcher.completed(name, work);
        },
      };
    }
  }
}
