/**
 * Measures turns of the event loop, for `status` and `/metrics`. A timer is due every few milliseconds
 * while there is work. A turn delays it: its delay is the length of the turn, or up to `INTERVAL_MS`
 * less. So traffic costs nothing extra, an idle daemon sleeps, and short turns count as delays of
 * almost nothing.
 */
import { CountedTimes, type Histogram } from '../control/operation-times.ts';
import { workListeners } from '../host/turn-note.ts';

/** Shorter turns may be missed. */
const INTERVAL_MS = 10;
/** Upper bounds of the buckets in seconds. */
const TURN_BUCKETS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Calls back after a time in milliseconds; `again` schedules the same again. */
interface MeterTimer {
  again(): void;
  cancel(): void;
}

interface MeterSystem {
  nowMs(): number;
  after(ms: number, run: () => void): MeterTimer;
}

/** Does not keep the process alive. */
const SYSTEM: MeterSystem = {
  nowMs: () => performance.now(),
  after: (ms, run) => {
    const timer = setTimeout(run, ms).unref();
    return { again: () => void timer.refresh(), cancel: () => clearTimeout(timer) };
  },
};

export class TurnMeter {
  readonly #system: MeterSystem;
  #timer: MeterTimer | undefined;
  #dueMs = 0;
  #scheduled = false;
  #worked = false;
  #longestSeconds = 0;
  readonly #times = new CountedTimes(TURN_BUCKETS_SECONDS);

  constructor(system: MeterSystem = SYSTEM) {
    this.#system = system;
  }

  /** Starts measuring. A process needs one meter, since it has one event loop. */
  start(): void {
    workListeners.onNext = this.#noteWork;
  }

  close(): void {
    if (workListeners.onNext === this.#noteWork) workListeners.onNext = undefined;
    this.#timer?.cancel();
  }

  get longestSeconds(): number {
    return this.#longestSeconds;
  }

  get times(): Histogram {
    return this.#times;
  }

  /** Called once per timer. */
  readonly #noteWork = (): void => {
    workListeners.onNext = undefined;
    this.#worked = true;
    if (!this.#scheduled) this.#schedule();
  };

  #schedule(): void {
    this.#scheduled = true;
    this.#dueMs = this.#system.nowMs() + INTERVAL_MS;
    if (this.#timer === undefined) this.#timer = this.#system.after(INTERVAL_MS, this.#look);
    else this.#timer.again();
  }

  readonly #look = (): void => {
    this.#scheduled = false;
    const lateSeconds = Math.max(0, this.#system.nowMs() - this.#dueMs) / 1000;
    this.#times.add(lateSeconds);
    this.#longestSeconds = Math.max(this.#longestSeconds, lateSeconds);
    if (this.#worked) this.#schedule();
    this.#worked = false;
    workListeners.onNext = this.#noteWork;
  };
}
