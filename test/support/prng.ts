/** The only source of randomness in a simulation: a seed decides the whole run. */

/** A 32-bit generator (mulberry32). It uses only integers, so that every machine draws the same. */
export class Prng {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A number from 0 to 2^32 - 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** A number from 0 to `bound` - 1. */
  below(bound: number): number {
    return this.next() % bound;
  }

  /** A number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** True once in `often` times on average. */
  oneIn(often: number): boolean {
    return this.below(often) === 0;
  }

  /** One of `choices`, which must not be empty. */
  choose<T>(choices: readonly T[]): T {
    const chosen = choices[this.below(choices.length)];
    if (chosen === undefined) throw new RangeError('nothing to choose from');
    return chosen;
  }

  fill(bytes: Uint8Array): void {
    for (let index = 0; index < bytes.length; index++) bytes[index] = this.next();
  }

  /** Mostly small, sometimes anything up to `max`, at times 0. */
  length(max: number): number {
    if (this.oneIn(10)) return 0;
    return this.oneIn(4) ? this.below(max + 1) : Math.min(max, this.between(1, 200));
  }
}
