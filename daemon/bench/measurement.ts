/** Types of measurements. */
import type { Rig } from './rig.ts';

/** The required result of a measurement. */
export interface Target {
  /** Compared with the first baseline by `ratio` or `difference`, or an absolute `value`. */
  readonly kind: 'ratio' | 'difference' | 'value';
  readonly limit: number;
}

/** A value to compare with, measured in the same round, just before. */
export interface Baseline {
  readonly title: string;
  /**
   * One round, in the unit of the measurement. `before` has this round's values of the earlier
   * baselines, for a baseline derived from others; NaN stands for a skipped one.
   */
  readonly run: (rig: Rig, scale: number, before: readonly number[]) => Promise<number>;
  /** Why it cannot run on this machine; undefined if it can. */
  readonly obstacle?: () => string | undefined;
  /** The ratio to aim for beyond the target. */
  readonly aim?: number;
}

/** One measurement. Each `run` is one round and returns a value in `unit`. */
export interface Measurement {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  /** Undefined for a peer, which only serves for comparison. */
  readonly target?: Target;
  /** The value to aim for beyond the target. */
  readonly aim?: number;
  readonly baselines: readonly Baseline[];
  readonly run: (rig: Rig, scale: number) => Promise<number>;
  /** Why it cannot run on this machine; undefined if it can. */
  readonly obstacle?: () => string | undefined;
  /** Rounds, baselines included, that do not count, in which V8 compiles. Default 0. */
  readonly warmUps?: number;
  /** Measured once, whatever the number of rounds. */
  readonly once?: true;
}
