/** Runs the seeds that its parent sends, and reports the results. */
import { runOver, type SimulatedOver } from './over.ts';
import { BrokenRule, type Rule } from './rules.ts';

/** Seeds to run, from the parent. */
export interface Batch {
  readonly first: number;
  readonly count: number;
  /** Distance between two seeds. */
  readonly stride: number;
  /** Undefined: TCP; some seeds also run over SCTP or RoCE. */
  readonly over: SimulatedOver | undefined;
}

/** A seed that failed. */
export interface Failure {
  readonly seed: number;
  readonly over: SimulatedOver;
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

/** Of this many seeds, one also runs over SCTP, and another one over RoCE. */
const SEEDS_OF_ALL = 4;

function networksOf(seed: number, over: SimulatedOver | undefined): readonly SimulatedOver[] {
  if (over !== undefined) return [over];
  if (seed % SEEDS_OF_ALL === 0) return ['tcp', 'sctp'];
  return seed % SEEDS_OF_ALL === 2 ? ['tcp', 'roce'] : ['tcp'];
}

async function runBatch({ first, count, stride, over }: Batch): Promise<BatchReport> {
  let completions = 0;
  let established = 0;
  for (let index = 0; index < count; index += 1) {
    const seed = first + index * stride;
    for (const network of networksOf(seed, over)) {
      try {
        const result = await runOver(seed, network);
        completions += result.completions;
        established += result.established;
      } catch (error) {
        const rule = error instanceof BrokenRule ? error.rule : undefined;
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        const failure = { seed, over: network, text, rule };
        return { done: index + 1, completions, established, failure };
      }
    }
  }
  return { done: count, completions, established, failure: undefined };
}

process.on('message', (batch: Batch) => {
  void runBatch(batch).then((report) => process.send?.(report));
});
