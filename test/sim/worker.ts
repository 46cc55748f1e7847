/** Runs the seeds that its parent sends, and reports the results. */
import { CARRIERS, type Carrier } from './plan.ts';
import { BrokenRule, type Rule } from './rules.ts';
import { run } from './run.ts';

/** Seeds to run, from the parent. */
export interface Batch {
  readonly first: number;
  readonly count: number;
  /** Distance between two seeds. */
  readonly stride: number;
  /** Undefined for TCP, and SCTP with some seeds. */
  readonly over: Carrier | undefined;
}

/** A seed that failed. */
export interface Failure {
  readonly seed: number;
  readonly carrier: Carrier;
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

/** One seed in this many runs over SCTP, too. */
const SCTP_ONE_IN = 4;

function carriersOf(seed: number, over: Carrier | undefined): readonly Carrier[] {
  if (over !== undefined) return [over];
  return seed % SCTP_ONE_IN === 0 ? CARRIERS : ['tcp'];
}

async function runBatch({ first, count, stride, over }: Batch): Promise<BatchReport> {
  let completions = 0;
  let established = 0;
  for (let index = 0; index < count; index += 1) {
    const seed = first + index * stride;
    for (const carrier of carriersOf(seed, over)) {
      try {
        const result = await run(seed, carrier);
        completions += result.completions;
        established += result.established;
      } catch (error) {
        const rule = error instanceof BrokenRule ? error.rule : undefined;
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        const failure = { seed, carrier, text, rule };
        return { done: index + 1, completions, established, failure };
      }
    }
  }
  return { done: count, completions, established, failure: undefined };
}

process.on('message', (batch: Batch) => {
  void runBatch(batch).then((report) => process.send?.(report));
});
