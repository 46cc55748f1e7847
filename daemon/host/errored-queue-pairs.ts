/**
 * Flushes receives that programs post to queue pairs in error, to drain their queues. The slow timer stops
 * when no queue pair is in error.
 */
import type { Micros } from '#base/time';
import type { Nic } from '../rnic/nic.ts';
import type { EventLoop } from './event-loop.ts';
import type { Alarm, HostClock } from './links/network.ts';

const INTERVAL_MICROS = 5_000;
/** Queue pairs per interval: checking thousands takes milliseconds. */
const INTERVAL_QPS = 1024;

/** The flusher's interface to its host. */
interface FlushHost {
  readonly devices: readonly { readonly nic: Nic }[];
  readonly clock: HostClock;
  now(): Micros;
}

export class ErroredQueuePairs {
  readonly #host: FlushHost;
  readonly #loop: Pick<EventLoop, 'drain'>;
  #timer: Alarm | undefined;
  #stopped = false;

  constructor(host: FlushHost, loop: Pick<EventLoop, 'drain'>) {
    this.#host = host;
    this.#loop = loop;
  }

  /** Starts the timer. Call it when a queue pair may have entered the error state. */
  watch(): void {
    if (this.#timer === undefined && !this.#stopped) this.#flushSoon(1);
  }

  /** Ends the timer for good. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  #flushSoon(errored: number): void {
    const intervals = Math.ceil(errored / INTERVAL_QPS);
    this.#timer = this.#host.clock.after(intervals * INTERVAL_MICROS, () => {
      this.#timer = undefined;
      const left = this.#flush();
      if (left > 0 && !this.#stopped) this.#flushSoon(left);
      this.#loop.drain();
    });
  }

  #flush(): number {
    const now = this.#host.now();
    let errored = 0;
    for (const { nic } of this.#host.devices) errored += nic.flushErrored(now);
    return errored;
  }
}
