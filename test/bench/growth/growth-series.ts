/** The shape of a series: one thing grows, step by step, and its cost is measured at each. */
import type { BenchDaemon } from '#daemon/bench/bench-daemon';

/** A figure of each step. */
export interface Metric {
  readonly key: string;
  readonly title: string;
}

/** Figures of a step, by the metrics' keys, without those that have no meaning at this step. */
export type Figures = Readonly<Record<string, number>>;

/** One series. */
export interface GrowthSeries {
  readonly name: string;
  readonly title: string;
  /** The objects that grow in number. */
  readonly axis: string;
  readonly metrics: readonly Metric[];
  /** In ascending order. */
  readonly steps: readonly number[];
  /** Starts the processes that all steps need. */
  readonly open: () => Promise<OpenSeries>;
}

/** A running series. */
export interface OpenSeries {
  /** Grows to `size`, and measures. */
  step(size: number): Promise<Figures>;
  /** Processes whose memory and descriptors grow with the steps. */
  readonly watched: readonly WatchedProcess[];
  /** Ends everything that was started. Safe at any time, even while a step runs. */
  close(): Promise<void>;
}

/** A process whose limits may end a series. */
export interface WatchedProcess {
  readonly name: string;
  readonly pid: number;
}

/** The daemons of a series as watched processes. */
export function watchedDaemons(daemons: readonly BenchDaemon[]): WatchedProcess[] {
  return daemons.map(({ address, pid }) => ({ name: `the daemon at ${address}`, pid }));
}
