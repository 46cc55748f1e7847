/**
 * Flushes receives that programs post to queue pairs in error, to drain their queues. The slow timer gets
 * slower while programs do nothing, and stops when no queue pair is in error.
 */
import type { Micros } from '#base/time';
import type { Nic } from '../rnic/nic.ts';
import type { EventLoop } from './event-loop.ts';
import type { Alarm, HostClock } from './links/network.ts';

const INTERVAL_MICROS = 5_000;
/** After so many intervals in which nothing was posted, for 200 ms in all, the next ones are longer. */
const IDLE_INTERVALS = 40;
const IDLE_INTERVAL_MICROS = 100_000;
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
  /** Intervals since a program did something. */
  #idle = 0;
  #stopped = false;

  constructor(host: FlushHost, loop: Pick<EventLoop, 'drain'>) {
    this.#host = host;
    this.#loop = loop;
  }

  /** Starts the timer. Call it after commands, and when a queue pair may have entered the error state. */
  watch(): void {
    const slow = this.#idle >= IDLE_INTERVALS;
    this.#idle = 0;
    if (this.#stopped || (this.#timer !== undefined && !slow)) return;
    this.#timer?.cancel();
    this.#flushSoon(1);
  }

  /** Ends the timer for good. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  #flushSoon(errored: number): void {
    const interval = this.#idle < IDLE_INTERVALS ? INTERVAL_MICROS : IDLE_INTERVAL_MICROS;
    const intervals = Math.ceil(errored / INTERVAL_QPS);
    this.#timer = this.#host.clock.after(intervals * interval, this.#fire);
  }

  readonly #fire = (): void => {
    this.#timer = undefined;
    this.#idle = this.#flush() > 0 ? 0 : this.#idle + 1;
    let errored = 0;
    for (const { nic } of this.#host.devices) errored += nic.erroredQPs;
    if (errored > 0 && !this.#stopped) this.#flushSoon(errored);
    this.#loop.drain();
  };

  /** Returns the number of queue pairs that had work. */
  #flush(): number {
    const now = this.#host.now();
    let loaded = 0;
    for (const { nic } of this.#host.devices) loaded += nic.flushErrored(now);
    return loaded;
  }
}
