/** Runs the seeds that its parent sends, and reports the results. */

import { BrokenRule, type Rule } from './rules.ts';
import { run } from './run.ts';

/** Seeds to run, from the parent. */
export interface Batch {
  readonly first: number;
  readonly count: number;
  /** Distance between two seeds. */
  readonly stride: number;
}

/** A seed that failed. */
export interface Failure {
  readonly seed: number;
  readonly text: string;
  /** Undefined for an error other than a broken rule. */
  readonly rule: Rule | undefined;
}

/** The worker's report. */
export interface BatchReport {
  /** Seeds run; fewer than requested after a failure. */
  readonly done: number;
  readonly completions: number;
  readonly established: number;
  readonly failure: Failure | undefined;
}

async function runBatch({ first, count, stride }: Batch): Promise<BatchReport> {
  let completions = 0;
  let established = 0;
  for (let index = 0; index < count; index += 1) {
    const seed = first + index * stride;
    try {
      const result = await run(seed);
      completions += result.completions;
      established += result.established;
    } catch (error) {
      const rule = error instanceof BrokenRule ? error.rule : undefined;
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      return { done: index + 1, completions, established, failure: { seed, text, rule } };
    }
  }
  return { done: count, completions, established, failure: undefined };
}

process.on('message', (batch: Batch) => {
  void runBatch(batch).then((report) => process.send?.(report));
});
