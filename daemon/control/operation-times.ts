/** Durations of control operations: one histogram per operation. */
import type { ControlOperationName } from '#contract/protocol/control';

/** Upper bounds of the buckets in seconds: most operations only read; a reset waits for FINs. */
const OPERATION_BUCKETS_SECONDS = [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10];

/** Durations, as Prometheus counts them. */
export interface Histogram {
  readonly count: number;
  readonly sumSeconds: number;
  /** Upper bounds of the buckets in seconds. */
  readonly bounds: readonly number[];
  /** Durations within each bound; buckets are cumulative. */
  readonly withinBound: readonly number[];
}

export class CountedTimes implements Histogram {
  readonly bounds: readonly number[];
  readonly withinBound: number[];
  count = 0;
  sumSeconds = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.withinBound = bounds.map(() => 0);
  }

  add(seconds: number): void {
    this.count += 1;
    this.sumSeconds += seconds;
    for (const [index, bound] of this.bounds.entries()) {
      if (seconds <= bound) this.withinBound[index] = (this.withinBound[index] ?? 0) + 1;
    }
  }
}

/** Bounded: one entry per operation name. */
export class OperationTimes {
  /** Monotonic clock, in seconds. */
  readonly now: () => number;
  readonly #times = new Map<ControlOperationName, CountedTimes>();

  constructor(now: () => number) {
    this.now = now;
  }

  get all(): ReadonlyMap<ControlOperationName, Histogram> {
    return this.#times;
  }

  add(name: ControlOperationName, seconds: number): void {
    let times = this.#times.get(name);
    if (times === undefined) {
      times = new CountedTimes(OPERATION_BUCKETS_SECONDS);
      this.#times.set(name, times);
    }
    times.add(seconds);
  }
}
