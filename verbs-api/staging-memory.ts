/** Registered memory through which data is copied, so callers need not register theirs. */
import { Access } from '#contract/verbs/enums';
import type { MR, PD } from '#contract/verbs/provider';
import { quiet } from './client/cancellation.ts';

const SMALLEST_BYTES = 4096;
/**
 * Regions of up to this size in total stay registered for later requests; others are closed on return.
 */
const KEPT_BYTES = 1024 * 1024;

/** A piece of staging memory. Return it once the device no longer uses it. */
export interface Stage {
  readonly mr: MR;
  release(): void;
}

/** Regions by size, each a power of two. */
export class StagingMemory {
  readonly #pd: PD;
  readonly #free = new Map<number, MR[]>();
  #keptBytes = 0;
  /** Regions that are being closed; their errors surface when `close` awaits them. */
  readonly #closing = new Set<Promise<void>>();
  #closed = false;

  constructor(pd: PD) {
    this.#pd = pd;
  }

  /** An available region of at least `lengthBytes`, or undefined. */
  takeNow(lengthBytes: number): Stage | undefined {
    const size = sizeFor(lengthBytes);
    const mr = this.#free.get(size)?.pop();
    if (mr === undefined) return undefined;
    this.#keptBytes -= size;
    return this.#stage(mr, size);
  }

  /** A region of at least `lengthBytes`. Errors as `PD.allocMR`. */
  async take(lengthBytes: number): Promise<Stage> {
    const size = sizeFor(lengthBytes);
    const mr = await this.#pd.allocMR(size, Access.localWrite);
    return this.#stage(mr, size);
  }

  /** Closes unused regions; the rest close when they are returned. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const list of this.#free.values()) for (const mr of list.splice(0)) this.#drop(mr);
    await Promise.all([...this.#closing]);
  }

  #drop(mr: MR): void {
    const closed = quiet(mr.close());
    this.#closing.add(closed);
    closed.then(
      () => this.#closing.delete(closed),
      () => undefined,
    );
  }

  #stage(mr: MR, size: number): Stage {
    return {
      mr,
      release: () => {
        if (this.#closed || this.#keptBytes + size > KEPT_BYTES) {
          this.#drop(mr);
          return;
        }
        this.#keptBytes += size;
        const list = this.#free.get(size);
        if (list === undefined) this.#free.set(size, [mr]);
        else list.push(mr);
      },
    };
  }
}

function sizeFor(lengthBytes: number): number {
  let size = SMALLEST_BYTES;
  while (size < lengthBytes) size *= 2;
  return size;
}
