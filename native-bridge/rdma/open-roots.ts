/**
 * What has no owner but the program: opened devices, event channels, watches. They are held here, and
 * through a device every region's buffer, against garbage collection. The kernel takes them back
 * when the process ends; a worker thread that ends has to do so itself, since its memory goes with
 * it. Node gives a thread no time for that in `Worker.terminate`: close devices before.
 */
import { isMainThread } from 'node:worker_threads';

const roots = new Set<Disposable>();

/** Holds an object until `releaseRoot`. */
export function holdRoot(root: Disposable): void {
  roots.add(root);
}

/** The object is gone. */
export function releaseRoot(root: Disposable): void {
  roots.delete(root);
}

if (!isMainThread) {
  process.once('exit', () => {
    // The last made first: a watch before what closes its descriptor.
    for (const root of [...roots].reverse()) {
      try {
        root[Symbol.dispose]();
      } catch {
        // The next one has to go all the same.
      }
    }
  });
}
