/** The shape of a measurement. */
import type { Rig } from './rig.ts';

/** A figure to reach. */
export interface Target {
  /** Compared with the first baseline by `ratio` or `difference`, or an absolute `value`. */
  readonly kind: 'ratio' | 'difference' | 'value';
  readonly limit: number;
  /** What would be better still. */
  readonly aim?: number;
}

/** One measurement. Each `run` is one round and gives a value in `unit`. */
export interface Measurement {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  readonly target: Target;
  readonly baselines: readonly {
    readonly title: string;
    readonly run: (rig: Rig, scale: number) => Promise<number>;
  }[];
  readonly run: (rig: Rig, scale: number) => Promise<number>;
  /** What this machine lacks for it, or undefined when it can run. */
  readonly obstacle?: () => string | undefined;
  /** Rounds, baselines included, before the first that counts: until V8 has compiled. Default 0. */
  readonly warmUps?: number;
  /** Measured once, whatever the number of rounds. */
  readonly once?: true;
}
