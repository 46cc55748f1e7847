/**
 * Caches a bounded number of open descriptors of files that clients use; closes the least recently
 * used first. Never closes a descriptor in use, nor any before the running code has finished: the
 * number of a closed descriptor may soon refer to another file.
 */
interface Kept {
  readonly fd: number;
  uses: number;
  /** Close it after its last use. */
  doomed: boolean;
}

/** Uses of a descriptor: name the file, read, write, or both. */
type Purpose = 'path' | 'read' | 'write' | 'both';

const PURPOSES: readonly Purpose[] = ['path', 'read', 'write', 'both'];

export class DescriptorCache {
  readonly #max: number;
  /** By node and purpose, least recently used first. */
  readonly #kept = new Map<string, Kept>();
  /** Closed once the running code has finished. */
  #leaving: number[] = [];

  readonly #close: (fd: number) => void;

  /** Keeps up to `max` descriptors, and more while more are in use; `close` closes one. */
  constructor(max: number, close: (fd: number) => void) {
    this.#max = max;
    this.#close = close;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The descriptor of a node; counts as a use. */
  find(nodeId: number, purpose: Purpose): number | undefined {
    const key = `${nodeId}:${purpose}`;
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept.fd;
  }

  /** Caches a descriptor, and closes others beyond the limit. */
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

  /** Keeps a descriptor open until the returned function is called. */
  use(nodeId: number, purpose: Purpose): () => void {
    const kept = this.#kept.get(`${nodeId}:${purpose}`);
    if (kept === undefined) throw new RangeError(`node ${nodeId} is not open`);
    kept.uses += 1;
    return () => {
      kept.uses -= 1;
      if (kept.uses > 0) return;
      if (kept.doomed) this.#leave(kept.fd);
      else if (this.#kept.size > this.#max) this.#drop(`${nodeId}:${purpose}`);
    };
  }

  /** Closes the descriptors of a node; those in use are closed after their last use. */
  forget(nodeId: number): void {
    for (const purpose of PURPOSES) this.#drop(`${nodeId}:${purpose}`);
  }

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
      for (const left of this.#leaving.splice(0)) this.#close(left);
    });
  }
}
