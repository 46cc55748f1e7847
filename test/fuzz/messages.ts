/** Messages between a run and its workers. */
import type { Finding } from './batch.ts';

/** Work for a worker: batches of one target, by number. */
export interface Unit {
  readonly target: string;
  readonly firstBatch: number;
  readonly batches: number;
}

/** Results of a unit, or of its finished part. */
export interface UnitReport {
  readonly unit: Unit;
  readonly inputs: number;
  readonly batches: number;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly slowestMs: number;
  readonly busyMs: number;
  readonly finding: Finding | undefined;
}

export type ToWorker =
  | { readonly type: 'unit'; readonly unit: Unit; readonly runSeed: number }
  | { readonly type: 'end' };

export type FromWorker =
  | {
      readonly type: 'alive';
      readonly target: string;
      readonly seed: number;
      readonly input: number;
    }
  | { readonly type: 'report'; readonly report: UnitReport };
