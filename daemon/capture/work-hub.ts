/**
 * Lets watchers see the work of devices: each work request that a device takes, each completion that
 * it writes. Devices are watched while somebody watches here.
 */
import type {
  CompletedWork,
  PostedWork,
  WorkObserver,
} from '../../verbs-api/contract/work-records.ts';

/** A device whose work can be watched. */
export interface WatchedDevice {
  readonly name: string;
  /** The device tells whoever stands here. */
  readonly watch: { observer: WorkObserver | undefined };
}

/** Takes the work of all devices. It is borrowed for the call; nothing here may call a device. */
export interface WorkWatcher {
  posted(device: string, work: PostedWork): void;
  completed(device: string, work: CompletedWork): void;
}

/** See the module's comment. */
export class WorkHub {
  readonly #devices: readonly WatchedDevice[];
  readonly #watchers = new Set<WorkWatcher>();

  /** The devices are watched by nobody else. */
  constructor(devices: readonly WatchedDevice[]) {
    this.#devices = devices;
  }

  /** Tells the watcher of all work until the result is called. */
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
