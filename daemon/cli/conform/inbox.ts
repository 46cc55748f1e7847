/** The queue of messages that arrived from a peer and that no row has taken yet. */
import { Deviation } from './row.ts';

/** Limit of items per row. No row needs as many: a peer that sends more floods the tester. */
const ITEMS_MAX = 2048;

/** See the module's comment. */
export class Inbox<T> {
  readonly #items: T[] = [];
  readonly #patienceMs: number;
  readonly #describe: ((item: T) => string) | undefined;
  #count = 0;
  #wake: (() => void) | undefined;

  /** Waits at most `patienceMs` for an item. */
  constructor(patienceMs: number, describe?: (item: T) => string) {
    this.#patienceMs = patienceMs;
    this.#describe = describe;
  }

  push(item: T): void {
    this.#count += 1;
    if (this.#count <= ITEMS_MAX) this.#items.push(item);
    this.#wake?.();
  }

  has(wanted: (item: T) => boolean): boolean {
    return this.#items.some(wanted);
  }

  /** Takes the first item for which `wanted` is true and drops those before it. Throws `Deviation` if none comes. */
  async next(what: string, wanted: (item: T) => boolean): Promise<T> {
    const deadline = performance.now() + this.#patienceMs;
    const dropped: T[] = [];
    for (;;) {
      for (let item = this.#items.shift(); item !== undefined; item = this.#items.shift()) {
        if (wanted(item)) return item;
        dropped.push(item);
      }
      if (this.#count > ITEMS_MAX) {
        throw new Deviation(`expected ${what}, but the peer sends without end`);
      }
      const left = deadline - performance.now();
      if (left <= 0) throw new Deviation(`expected ${what}, received ${this.#list(dropped)}`);
      await this.#arrival(left);
    }
  }

  #list(items: readonly T[]): string {
    const last = items.at(-1);
    const within = ` within ${this.#patienceMs} ms`;
    if (last === undefined || this.#describe === undefined) return `nothing${within}`;
    return `only ${this.#describe(last)}${within}`;
  }

  #arrival(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
