/** Runs seeds for its parent, which sends their runs and numbers. Answers each with its error, or ''. */
import { loadRun, type RunName } from './runs.ts';

/** A seed to run. */
export interface CleanSeed {
  readonly run: RunName;
  readonly seed: number;
}

async function errorOf({ run, seed }: CleanSeed): Promise<string> {
  try {
    await (await loadRun(run))(seed);
    return '';
  } catch (error) {
    return `seed ${seed}: ${error instanceof Error ? error.message : String(error)}`;
  }
}

process.on('message', (seed: CleanSeed) => {
  void errorOf(seed).then((text) => process.send?.(text));
});
