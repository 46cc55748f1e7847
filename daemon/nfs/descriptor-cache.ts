/**
 * Open descriptors of files that clients use, kept for the next call and bounded in number: the one
 * that was not used for the longest time is closed first. One that is in use is never closed, and
 * none before the code that runs now has come to its end: a number that is closed may name another
 * file a moment later.
 */
import { closeSync } from 'node:fs';

/** A descriptor that is kept. */
interface Kept {
  readonly fd: number;
  uses: number;
  /** Closed at the end of its last use. */
  doomed: boolean;
}

/** What a descriptor is for: to name the file, to read it, to write it, to do either. */
export type Purpose = 'path' | 'read' | 'write' | 'both';

const PURPOSES: readonly Purpose[] = ['path', 'read', 'write', 'both'];

/** See the module's comment. */
export class DescriptorCache {
  readonly #max: number;
  /** By node and purpose, in the order of their last use. */
  readonly #kept = new Map<string, Kept>();
  /** Closed once the code that runs now is done. */
  #leaving: number[] = [];

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The descriptor of that node, which counts as a use of it. */
  find(nodeId: number, purpose: Purpose): number | undefined {
    const key = `${nodeId}:${purpose}`;
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept.fd;
  }

  /** Takes a descriptor, and closes others where there are too many. */
  keep(nodeId: number, purpose: Purpose, fd: number): void {
    this.#drop(`${nodeId}:${purpose}`);
    this.#kept.set(`${nodeId}:${purpose}`, { fd, uses: 0, doomed: false });
    if (this.#kept.size <= this.#max) return;
    for (const [key, kept] of this.#kept) {
      if (kept.uses > 0 || kept.fd === fd) continue;
      this.#drop(key);
      return;
    }
  }

  /** Keeps a descriptor open until the function that is returned is called. */
  use(nodeId: number, purpose: Purpose): () => void {
    const kept = this.#kept.get(`${nodeId}:${purpose}`);
    if (kept === undefined) throw new RangeError(`node ${nodeId} is not open`);
    kept.uses += 1;
    return () => {
      kept.uses -= 1;
      if (kept.doomed && kept.uses === 0) this.#leave(kept.fd);
    };
  }

  /** Closes the descriptors of a node, those in use at the end of it. */
  forget(nodeId: number): void {
    for (const purpose of PURPOSES) this.#drop(`${nodeId}:${purpose}`);
  }

  /** Closes all. */
  close(): void {
    for (const key of [...this.#kept.keys()]) this.#drop(key);
  }

  #drop(key: string): void {
    const kept = this.#kept.get(key);
    if (kept === undefined) return;
    this.#kept.delete(key);
    if (kept.uses === 0) this.#leave(kept.fd);
    else kept.doomed = true;
  }

  #leave(fd: number): void {
    if (this.#leaving.push(fd) > 1) return;
    queueMicrotask(() => {
      for (const left of this.#leaving.splice(0)) closeSync(left);
    });
  }
}
