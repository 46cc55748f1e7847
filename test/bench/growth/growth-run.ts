/** Runs series step by step, within a time limit and the machine's resources. */
import { loadavg } from 'node:os';
import { machineFacts } from '#daemon/bench/report';
import { failureText, untilAborted, usageFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import type { GrowthReport, SeriesResult, SkippedStep } from './growth-report.ts';
import type { Figures, GrowthSeries } from './growth-series.ts';
import { availableBytes, type Sample, sampleOf, shortage } from './headroom.ts';
import { GROWTH_SERIES } from './series.ts';

/** Longer than any step that makes progress takes, even on a busy machine. */
const STEP_TIMEOUT_MS = 240_000;

/** How to run. */
interface GrowthOptions {
  /** Names of series; none for all. */
  readonly only: readonly string[];
  /** No step starts after this time. */
  readonly minutes: number;
}

/** The clock of a run, in milliseconds. */
type Clock = () => number;

/** The named series, or all if `only` is empty. Throws CommandFailure for an unknown name. */
export function selectSeries(only: readonly string[]): readonly GrowthSeries[] {
  const unknown = only.find((name) => !GROWTH_SERIES.some((each) => each.name === name));
  if (unknown !== undefined) {
    const names = GROWTH_SERIES.map((each) => each.name).join(', ');
    throw usageFailure(`unknown series '${unknown}'; choose from ${names}`);
  }
  return GROWTH_SERIES.filter(({ name }) => only.length === 0 || only.includes(name));
}

/** Runs the series. All processes that it started have ended when the promise settles. */
export async function runGrowth(
  { only, minutes }: GrowthOptions,
  output: Output,
  signal: AbortSignal,
): Promise<GrowthReport> {
  const selected = selectSeries(only);
  const date = new Date().toISOString();
  const loadBefore = loadavg()[0] ?? 0;
  const deadline = performance.now() + minutes * 60_000;
  const series: SeriesResult[] = [];
  for (const each of selected) {
    output.note(`measuring ${each.name}: ${each.title}`);
    series.push(await runSeries(each, { deadline, output, signal, now: () => performance.now() }));
  }
  return { format: 1, emulated: true, date, ...machineFacts(), loadBefore, minutes, series };
}

/** Options of a series. */
interface SeriesRun {
  readonly deadline: number;
  readonly output: Output;
  readonly signal: AbortSignal;
  readonly now: Clock;
}

/** Runs one series up to its limits. Rejects only when `signal` fires. */
export async function runSeries(
  series: GrowthSeries,
  { deadline, output, signal, now }: SeriesRun,
): Promise<SeriesResult> {
  const { name, title, axis, metrics, steps } = series;
  const rows: { size: number; figures: Figures }[] = [];
  const skipped: SkippedStep[] = [];
  const skipFrom = (index: number, why: string) => {
    for (const size of steps.slice(index)) skipped.push({ size, why });
  };
  if (now() > deadline) {
    skipFrom(0, OUT_OF_TIME);
    return { name, title, axis, metrics, rows, skipped };
  }
  const opening = series.open();
  try {
    const open = await untilAborted(opening, signal);
    const samples: Sample[] = [sampleOf(0, open.watched)];
    for (const [index, size] of steps.entries()) {
      const why = now() > deadline ? OUT_OF_TIME : shortage(size, samples, availableBytes());
      if (why !== undefined) {
        skipFrom(index, why);
        break;
      }
      output.note(`  ${size} ${axis}`);
      try {
        const limit = AbortSignal.any([signal, AbortSignal.timeout(STEP_TIMEOUT_MS)]);
        rows.push({ size, figures: await untilAborted(open.step(size), limit) });
        samples.push(sampleOf(size, open.watched));
      } catch (error) {
        if (signal.aborted) throw error;
        skipFrom(index, `The first of them failed: ${failureText(error)}`);
        break;
      }
    }
  } catch (error) {
    if (signal.aborted) throw error;
    skipFrom(0, `The series could not begin: ${failureText(error)}`);
  } finally {
    // Parts that are still starting must end, too.
    const open = await opening.catch(() => undefined);
    await open?.close();
  }
  return { name, title, axis, metrics, rows, skipped };
}

const OUT_OF_TIME = 'The time is over; give it more with --minutes';
