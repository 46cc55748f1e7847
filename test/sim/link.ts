/**
 * A simulated TCP connection between two streams: octets arrive in order, cut and joined at
 * random, late, and if the run wants it corrupted or cut off.
 */
import type { StreamEvent, StreamPort } from '../../daemon/engine/stream-api.ts';
import type { Prng } from './prng.ts';

/** What a link tells its host about one end. */
export type LinkEvents = (side: 0 | 1, event: StreamEvent) => void;

interface Direction {
  /** Octets on their way, oldest first. */
  readonly inFlight: Uint8Array[];
  finQueued: boolean;
  finDelivered: boolean;
  /** Octets taken from the sender and not yet acknowledged to it. */
  unflushedBytes: number;
}

/** Most octets that one delivery hands over: from a sliver to several FPDUs. */
const DELIVERY_MAX_BYTES = 300_000;

/** Two streams and what is between them. */
export class SimLink {
  readonly ends: readonly [StreamPort, StreamPort];
  readonly #prng: Prng;
  readonly #onEvent: LinkEvents;
  readonly #directions: readonly [Direction, Direction] = [newDirection(), newDirection()];
  #down = false;
  /** Octets of FPDUs that a fault has changed. */
  corruptions = 0;

  constructor(ends: readonly [StreamPort, StreamPort], prng: Prng, onEvent: LinkEvents) {
    this.ends = ends;
    this.#prng = prng;
    this.#onEvent = onEvent;
  }

  get down(): boolean {
    return this.#down;
  }

  /** True when nothing is on its way. */
  get quiet(): boolean {
    return this.#directions.every(
      (direction) =>
        direction.inFlight.length === 0 &&
        direction.unflushedBytes === 0 &&
        (!direction.finQueued || direction.finDelivered),
    );
  }

  /** Takes what both ends have to say. */
  drain(now: number): void {
    for (const side of [0, 1] as const) {
      for (;;) {
        const octets = this.ends[side].pollTransmit();
        if (octets === undefined) break;
        // A copy, since the engine has its chunk back once it is flushed.
        if (!this.#down) this.#directions[side].inFlight.push(octets.slice());
        this.#directions[side].unflushedBytes += octets.length;
      }
      for (let event = this.ends[side].pollEvent(); event; event = this.ends[side].pollEvent()) {
        if (event.type === 'finish') this.#directions[side].finQueued = true;
        if (event.type === 'abort') this.cut(now);
        this.#onEvent(side, event);
      }
    }
  }

  /** Lets a random part of one direction arrive, or tells the sender that its octets left. */
  step(now: number): void {
    const side = this.#prng.below(2) === 0 ? 0 : 1;
    const direction = this.#directions[side];
    if (direction.unflushedBytes > 0 && this.#prng.oneIn(2)) {
      const flushed = direction.unflushedBytes;
      direction.unflushedBytes = 0;
      this.ends[side].handleFlushed(flushed, now);
    } else if (direction.inFlight.length > 0) {
      this.ends[side === 0 ? 1 : 0].handleOctets(this.#take(direction), now);
    } else if (direction.finQueued && !direction.finDelivered && !this.#down) {
      direction.finDelivered = true;
      this.ends[side === 0 ? 1 : 0].handlePeerClosed(now);
      if (this.#directions.every((each) => each.finDelivered)) this.#close(undefined, now);
    }
    this.drain(now);
  }

  /** Flips one bit of what is on its way. */
  corrupt(): void {
    const direction = this.#directions[this.#prng.below(2) === 0 ? 0 : 1];
    const octets = direction.inFlight[0];
    if (octets === undefined) return;
    const at = this.#prng.below(octets.length);
    octets[at] = (octets[at] ?? 0) ^ (1 << this.#prng.below(8));
    this.corruptions++;
  }

  /** RST: both ends lose the connection, and what was on its way. */
  cut(now: number): void {
    if (this.#down) return;
    this.#close('ECONNRESET', now);
  }

  #close(errorCode: string | undefined, now: number): void {
    this.#down = true;
    for (const direction of this.#directions) {
      direction.inFlight.length = 0;
      direction.unflushedBytes = 0;
    }
    this.ends[0].handleClosed(errorCode, now);
    this.ends[1].handleClosed(errorCode, now);
    this.drain(now);
  }

  #take(direction: Direction): Uint8Array {
    const first = direction.inFlight.shift() ?? new Uint8Array(0);
    const most = this.#prng.oneIn(3) ? this.#prng.between(1, 64) : DELIVERY_MAX_BYTES;
    if (first.length > most) {
      direction.inFlight.unshift(first.subarray(most));
      return first.subarray(0, most);
    }
    return first;
  }
}

function newDirection(): Direction {
  return { inFlight: [], finQueued: false, finDelivered: false, unflushedBytes: 0 };
}
