/** Figures of the bench over time: a file with one line of JSON for each run that was kept. */
import { z } from 'zod';
import type { BenchReport, Result } from '#daemon/bench/report';
import { CommandFailure, failureText } from '#daemon/console/failure';

/** More lines than a useful chart holds. */
const ENTRIES_MAX = 10_000;

const FIGURE = z.object({
  value: z.number(),
  unit: z.string(),
  /** The ratio to each baseline of the run, by the baseline's title. */
  ratios: z.record(z.string(), z.number()).optional(),
  /** Whether the target was met. */
  met: z.boolean().optional(),
});

const ENTRY = z.object({
  date: z.iso.datetime(),
  version: z.string(),
  cores: z.number().int().positive(),
  cpu: z.string(),
  crcEngine: z.string(),
  /** Load before the run; missing in the oldest entries. */
  load: z.number().nonnegative().optional(),
  rounds: z.number().int().positive(),
  figures: z.record(z.string(), FIGURE),
});

/** One run that was kept. */
export type HistoryEntry = z.infer<typeof ENTRY>;

/** The record of a run: medians, not rounds. */
export function historyEntry(report: BenchReport): HistoryEntry {
  const { date, version, cores, cpu, crcEngine, loadBefore, rounds, results } = report;
  return {
    date,
    version,
    cores,
    cpu,
    crcEngine,
    load: significant(loadBefore),
    rounds,
    figures: Object.fromEntries(results.map((result) => [result.name, figureOf(result)])),
  };
}

function figureOf({ measured, unit, baselines, met }: Result): HistoryEntry['figures'][string] {
  const ratios = baselines.map(({ title, ratio }) => [title, significant(ratio)]);
  return {
    value: significant(measured.median),
    unit,
    ...(ratios.length === 0 ? {} : { ratios: Object.fromEntries(ratios) }),
    ...(met === undefined ? {} : { met }),
  };
}

/** Four digits: more would be noise, in a file that people read. */
function significant(value: number): number {
  return Number(value.toPrecision(4));
}

/** The entries of a history, oldest first. Throws CommandFailure that names the invalid line. */
export function parseHistory(text: string, path: string): HistoryEntry[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  if (lines.length > ENTRIES_MAX) {
    throw new CommandFailure(`${path} has more than ${ENTRIES_MAX} lines; remove the oldest`);
  }
  const entries = lines.map((line, index) => parseEntry(line, `${path}:${index + 1}`));
  return entries.sort((left, right) => Date.parse(left.date) - Date.parse(right.date));
}

function parseEntry(line: string, place: string): HistoryEntry {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new CommandFailure(`${place} is not JSON: ${failureText(error)}; remove the line`);
  }
  const parsed = ENTRY.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const what = `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}`;
  throw new CommandFailure(`${place} is not a run of the bench: ${what}; remove the line`);
}
