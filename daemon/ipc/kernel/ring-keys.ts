/** The keys by which a program maps its rings: offsets of the device file, multiples of a page. */
import { HandleSpace } from '../objects/handle-space.ts';

/** Bytes of a page. */
export const PAGE_BYTES = 4096;

/** How a persona chooses keys, as data. */
export type RingKeyRule =
  /** The lowest free page, whatever the length of the ring; never `reserved`. */
  | { readonly kind: 'lowest-page'; readonly reserved: number }
  /**
   * Rising offsets from the second page on, each ring behind the one before: rings do not overlap,
   * as in a file that holds them all.
   */
  | { readonly kind: 'rising' };

/** Chooses keys. */
export interface RingKeys {
  take(lengthBytes: number): number;
  give(key: number): void;
}

/** The keys of one open device. */
export function ringKeys(rule: RingKeyRule): RingKeys {
  return rule.kind === 'rising' ? new RisingKeys() : new PageKeys(rule.reserved);
}

class PageKeys implements RingKeys {
  readonly #pages = new HandleSpace<true>();
  readonly #reservedPage: number;

  constructor(reserved: number) {
    this.#reservedPage = reserved / PAGE_BYTES;
  }

  take(): number {
    const page = this.#next();
    // Not given back, so it is not chosen again.
    return (page === this.#reservedPage ? this.#next() : page) * PAGE_BYTES;
  }

  give(key: number): void {
    this.#pages.remove(key / PAGE_BYTES);
  }

  #next(): number {
    let chosen = 0;
    this.#pages.add((page) => {
      chosen = page;
      return true;
    });
    return chosen;
  }
}

class RisingKeys implements RingKeys {
  #next = PAGE_BYTES;

  take(lengthBytes: number): number {
    const key = this.#next;
    this.#next += lengthBytes;
    return key;
  }

  give(): void {}
}
