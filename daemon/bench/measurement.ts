/** The shape of a measurement. */
import type { Rig } from './rig.ts';

/** What a measurement has to reach. */
export interface Target {
  /** Compared with the first baseline by `ratio` or `difference`, or an absolute `value`. */
  readonly kind: 'ratio' | 'difference' | 'value';
  readonly limit: number;
}

/** What a measurement is compared with, measured in the same round, just before. */
export interface Baseline {
  readonly title: string;
  /**
   * One round, in the unit of the measurement. `before` has this round's values of the baselines
   * before this one, for a baseline that follows from others; NaN stands for a skipped one.
   */
  readonly run: (rig: Rig, scale: number, before: readonly number[]) => Promise<number>;
  /** What this machine lacks for it, or undefined when it can run. */
  readonly obstacle?: () => string | undefined;
  /** The ratio to it that would be better still. */
  readonly aim?: number;
}

/** One measurement. Each `run` is one round and gives a value in `unit`. */
export interface Measurement {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  /** Undefined for a peer, which is there to be compared with. */
  readonly target?: Target;
  /** The value that would be better still. */
  readonly aim?: number;
  readonly baselines: readonly Baseline[];
  readonly run: (rig: Rig, scale: number) => Promise<number>;
  /** What this machine lacks for it, or undefined when it can run. */
  readonly obstacle?: () => string | undefined;
  /** Rounds, baselines included, before the first that counts: until V8 has compiled. Default 0. */
  readonly warmUps?: number;
  /** Measured once, whatever the number of rounds. */
  readonly once?: true;
}
