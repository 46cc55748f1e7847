/**
 * Moves the bytes of a host's memory links, turn by turn: every link with output delivers some of it, and
 * after a bounded amount the rest of the process runs.
 */
import { assert } from '#base/assert';
import { Fifo } from '#base/fifo';
import type { HostClock } from './network.ts';

/**
 * Bytes delivered in a turn before sockets are polled: some hundred microseconds of work, as libuv reads from
 * one socket in a turn.
 */
const TURN_BYTES = 1_048_576;
/** How often a link may deliver within a turn; a ping-pong needs one round per message. */
const ROUNDS_MAX = 8;
/**
 * Size of a buffer for small writes: a startup frame and some short messages. For larger writes, copying
 * would cost more than waiting for the peer.
 */
export const BUFFER_BYTES = 4096;
/** Free buffers kept; a link has one only while bytes wait in it. */
const BUFFERS_KEPT_MAX = 256;

/** One end of a connection. */
export interface CarriedLink {
  /** Set by the carrier while the link waits in its queue. */
  queued: boolean;
  /** Delivers to the peer; returns how many bytes the peer took. */
  deliver(): number;
}

export class MemoryCarrier {
  readonly #clock: HostClock;
  readonly #ready = new Fifo<CarriedLink>();
  #scheduled = false;
  readonly #free: Uint8Array[] = [];
  #inUse = 0;

  constructor(clock: HostClock) {
    this.#clock = clock;
  }

  /** Queues a link that has output. */
  schedule(link: CarriedLink): void {
    if (link.queued) return;
    link.queued = true;
    this.#ready.push(link);
    this.#awaitTurn();
  }

  /** Calls `run` in a later turn. */
  soon(run: () => void): void {
    this.#clock.soon(run);
  }

  /** A buffer with stale content. */
  acquire(): Uint8Array {
    this.#inUse += 1;
    return this.#free.pop() ?? new Uint8Array(BUFFER_BYTES);
  }

  /** Takes back a buffer. The caller must keep no view of it. */
  release(buffer: Uint8Array): void {
    assert(this.#inUse > 0, 'buffer released twice');
    this.#inUse -= 1;
    if (this.#free.length < BUFFERS_KEPT_MAX) this.#free.push(buffer);
  }

  /** Buffers acquired and not yet released. */
  get inUseCount(): number {
    return this.#inUse;
  }

  #awaitTurn(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.soon(this.#carry);
  }

  readonly #carry = (): void => {
    let bytes = 0;
    for (let round = 0; round < ROUNDS_MAX && bytes < TURN_BYTES; round += 1) {
      if (this.#ready.count === 0) break;
      bytes += this.#serve();
    }
    this.#scheduled = false;
    if (this.#ready.count > 0) this.#awaitTurn();
  };

  /** Delivers from every queued link. */
  #serve(): number {
    let bytes = 0;
    // Links that these queue deliver in the next round.
    for (let left = this.#ready.count; left > 0; left -= 1) {
      const link = this.#ready.shift() as CarriedLink;
      link.queued = false;
      bytes += link.deliver();
    }
    return bytes;
  }
}
