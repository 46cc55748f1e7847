/** Runs batches of inputs and judges them, for tests and long runs. */
import { workListeners } from '#daemon/host/turn-note';
import { LongestWork } from '#daemon/main/turn-watch';
import { threadTimeMs } from '#native-bridge/libc/scheduling';
import { Draws, type InputName } from '../support/draws.ts';
import { starvedMs } from './silence-watch.ts';
import type { FuzzState, FuzzTarget, Outcome } from './target.ts';

/** A slower input is run again, and fails if it then takes this much processor time. */
const SLOW_MS = 1000;
/** In the second run elapsed time counts too, above this: machines are busy. */
const STUCK_MS = 10_000;

/** A failure: of an input, or of the end of a batch (`input` is then the number of its inputs). */
export interface Finding extends InputName {
  readonly text: string;
  readonly stack: string;
}

/** How a batch went. */
interface BatchReport {
  readonly inputs: number;
  readonly outcomes: ReadonlyMap<Outcome, number>;
  readonly slowestMs: number;
  /** Processor time of the last input, and its wall time without waits for the processor. */
  readonly lastCpuMs: number;
  readonly lastOwnMs: number;
  /** The work of the daemon that took longest in the last input; '' for none. */
  readonly longestWork: string;
  readonly finding: Finding | undefined;
}

interface BatchOptions {
  /** Default: those of the target. */
  readonly inputs?: number;
  readonly onInput?: (draws: Draws, input: number) => void;
  /** Inputs whose draws are recorded. Default: none. */
  readonly recorded?: (input: number) => boolean;
  /** Called before each input, to report progress. */
  readonly onStart?: (input: number) => void;
}

/** The name that replays an input, or its whole batch if the input's number is unknown. */
export function inputName({ target, seed, input }: InputName): string {
  return input < 0 ? `${target}:${seed}` : `${target}:${seed}:${input}`;
}

export function replayCommand(name: InputName): string {
  return `npm run fuzz -- --replay ${inputName(name)}`;
}

/** Runs the inputs of one batch, up to the first that fails. */
export async function runBatch(
  target: FuzzTarget,
  seed: number,
  options: BatchOptions = {},
): Promise<BatchReport> {
  const wanted = options.inputs ?? target.batchInputs;
  const outcomes = new Map<Outcome, number>();
  const draws = new Draws();
  const failed = (input: number, error: unknown): Finding => {
    const text = error instanceof Error ? error.message : String(error);
    const stack = error instanceof Error ? (error.stack ?? '') : '';
    return { target: target.name, seed, input, text, stack };
  };
  let slowestMs = 0;
  let lastCpuMs = 0;
  let lastOwnMs = 0;
  let longestWork = '';
  let input = 0;
  let finding: Finding | undefined;
  const stray = new StrayErrors();
  let state: FuzzState | undefined;
  try {
    draws.seed(seed, 0xffff_ffff);
    state = await target.open(draws);
    let before = performance.now();
    for (; input < wanted; input++) {
      options.onStart?.(input);
      draws.seed(seed, input, options.recorded?.(input) === true);
      const work = input + 1 === wanted ? listenToWork() : undefined;
      const cpuBefore = input + 1 === wanted ? process.cpuUsage() : undefined;
      const ownBefore = cpuBefore === undefined ? 0 : performance.now() - starvedMs();
      const result = state.run(draws);
      const outcome = typeof result === 'string' ? result : await result;
      if (cpuBefore !== undefined) {
        lastCpuMs = cpuMs(process.cpuUsage(cpuBefore));
        lastOwnMs = performance.now() - starvedMs() - ownBefore;
      }
      if (work !== undefined) longestWork = work();
      options.onInput?.(draws, input);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      stray.rethrow();
      const after = performance.now();
      if (after - before > slowestMs) slowestMs = after - before;
      before = after;
      if (slowestMs > SLOW_MS) {
        input++;
        break;
      }
    }
  } catch (error) {
    workListeners.onWork = undefined;
    options.onInput?.(draws, input);
    finding = failed(input, error);
  }
  try {
    await state?.close();
    stray.rethrow();
  } catch (error) {
    finding ??= failed(input, error);
  } finally {
    stray.stop();
  }
  return { inputs: input, outcomes, slowestMs, lastCpuMs, lastOwnMs, longestWork, finding };
}

/** As `runBatch`, but runs a slow input again; it fails if it is slow again. */
export async function judgeBatch(
  target: FuzzTarget,
  seed: number,
  options: BatchOptions = {},
): Promise<BatchReport> {
  const report = await runBatch(target, seed, options);
  if (report.finding !== undefined || report.slowestMs <= SLOW_MS) return report;
  const again = await runBatch(target, seed, { ...options, inputs: report.inputs });
  const isSlow = again.lastCpuMs > SLOW_MS || again.lastOwnMs > STUCK_MS;
  if (again.finding !== undefined || !isSlow) return { ...report, finding: again.finding };
  const input = again.inputs - 1;
  const place = again.longestWork === '' ? '' : `; the longest work: ${again.longestWork}`;
  const text = `an input took ${report.slowestMs.toFixed()} ms, and ${again.lastCpuMs.toFixed()} ms of the processor again${place}`;
  return { ...report, finding: { target: target.name, seed, input, text, stack: '' } };
}

/** Listens to the work of the daemon. The result stops that and returns the work that took longest. */
function listenToWork(): () => string {
  const longest = new LongestWork(threadTimeMs());
  workListeners.onWork = (what, number) => longest.begin(`${what} ${number}`, threadTimeMs());
  return () => {
    workListeners.onWork = undefined;
    return longest.end(threadTimeMs()).longest;
  };
}

function cpuMs({ user, system }: NodeJS.CpuUsage): number {
  return (user + system) / 1000;
}

/** Errors that no call returns: from event handlers, timers and promises without an await. */
class StrayErrors {
  readonly #errors: unknown[] = [];
  readonly #note = (error: unknown): void => void this.#errors.push(error);

  constructor() {
    process.on('uncaughtException', this.#note);
    process.on('unhandledRejection', this.#note);
  }

  rethrow(): void {
    if (this.#errors.length > 0) throw this.#errors.shift();
  }

  stop(): void {
    process.off('uncaughtException', this.#note);
    process.off('unhandledRejection', this.#note);
  }
}
