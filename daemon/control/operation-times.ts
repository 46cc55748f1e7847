/** Durations of control operations: one histogram per operation. */
import type { ControlOperationName } from '../../verbs-api/contract/protocol/control.ts';

/** Upper bounds of the buckets in seconds: most operations only read; a reset waits for FINs. */
export const OPERATION_BUCKETS_SECONDS = [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10];

/** The durations of one operation. */
interface OperationTime {
  readonly count: number;
  readonly sumSeconds: number;
  /** Operations within each bound; buckets are cumulative. */
  readonly withinBound: readonly number[];
}

/** Bounded: one entry per operation name. */
export class OperationTimes {
  /** Monotonic clock, in seconds. */
  readonly now: () => number;
  readonly #times = new Map<ControlOperationName, OperationTime>();

  constructor(now: () => number) {
    this.now = now;
  }

  get all(): ReadonlyMap<ControlOperationName, OperationTime> {
    return this.#times;
  }

  add(name: ControlOperationName, seconds: number): void {
    const { count, sumSeconds, withinBound } = this.#times.get(name) ?? NONE;
    this.#times.set(name, {
      count: count + 1,
      sumSeconds: sumSeconds + seconds,
      withinBound: OPERATION_BUCKETS_SECONDS.map(
        (bound, index) => (withinBound[index] ?? 0) + (seconds <= bound ? 1 : 0),
      ),
    });
  }
}

const NONE: OperationTime = { count: 0, sumSeconds: 0, withinBound: [] };
