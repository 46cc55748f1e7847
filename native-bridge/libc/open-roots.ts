/**
 * Objects that only the program owns: opened devices, event channels, watches. They are held here,
 * and through a device every region's buffer, to prevent garbage collection. The kernel releases them
 * when the process ends. A worker thread that ends must release them itself, since its memory goes with
 * it. `Worker.terminate` gives a thread no time for that: close devices first.
 */
import { isMainThread } from 'node:worker_threads';

const roots = new Set<Disposable>();

export function holdRoot(root: Disposable): void {
  roots.add(root);
}

export function releaseRoot(root: Disposable): void {
  roots.delete(root);
}

if (!isMainThread) {
  process.once('exit', () => {
    // The newest first: a watch before the object that closes its descriptor.
    for (const root of [...roots].reverse()) {
      try {
        root[Symbol.dispose]();
      } catch {
        // The next one must be closed nevertheless.
      }
    }
  });
}
