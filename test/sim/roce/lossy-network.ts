/** A network that loses, repeats, delays, reorders and damages packets. The ICRC reveals damage. */
import type { Prng } from '#test/support/prng';

/** Error rates of a network: N means one packet in N; 0 means none. */
interface NetworkManners {
  readonly lost: number;
  readonly repeated: number;
  readonly damaged: number;
  /** Longest delay, microseconds. */
  readonly delay: number;
}

interface Flight {
  readonly at: number;
  readonly bytes: Uint8Array;
}

/** One direction. */
export class LossyNetwork {
  readonly #prng: Prng;
  readonly #manners: NetworkManners;
  readonly #flights: Flight[] = [];

  constructor(prng: Prng, manners: NetworkManners) {
    this.#prng = prng;
    this.#manners = manners;
  }

  send(bytes: Uint8Array, now: number): void {
    const { lost, repeated, damaged } = this.#manners;
    if (lost > 0 && this.#prng.oneIn(lost)) return;
    // A receiver drops damaged packets.
    if (damaged > 0 && this.#prng.oneIn(damaged)) return;
    this.#launch(bytes, now);
    while (repeated > 0 && this.#prng.oneIn(repeated)) this.#launch(bytes, now);
  }

  #launch(bytes: Uint8Array, now: number): void {
    const at = now + 1 + this.#prng.below(this.#manners.delay);
    this.#flights.push({ at, bytes });
  }

  /** When the next packet arrives. */
  get next(): number {
    return this.#flights.reduce((least, { at }) => Math.min(least, at), Number.POSITIVE_INFINITY);
  }

  /** Packets that have arrived by `now`, in any order. */
  arrive(now: number): Uint8Array[] {
    const arrived: Uint8Array[] = [];
    for (let index = 0; index < this.#flights.length; ) {
      const flight = this.#flights[index];
      if (flight === undefined || flight.at > now) {
        index += 1;
        continue;
      }
      arrived.push(flight.bytes);
      this.#flights.splice(index, 1);
    }
    return arrived;
  }
}
