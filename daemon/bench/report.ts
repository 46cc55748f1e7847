/** The results of a run: medians, ratios, verdicts, and the table. */

import { availableParallelism, cpus, release } from 'node:os';
import { tableLines } from '../console/output.ts';
import type { Measurement, Target } from './measurement.ts';

interface Series {
  readonly median: number;
  readonly rounds: readonly number[];
}

/** A goal, and whether it was met. */
interface Verdict {
  readonly kind: Target['kind'];
  readonly limit: number;
  readonly met: boolean;
}

/** A baseline's rounds, and the measurement compared with them; medians over the rounds. */
interface Comparison extends Series {
  readonly title: string;
  /** Measured over baseline. */
  readonly ratio: number;
  /** Measured less baseline, in the unit of both. */
  readonly difference: number;
  /** The ratio to aim for beyond the target. */
  readonly aim?: Verdict;
}

export interface Result {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  readonly measured: Series;
  readonly baselines: readonly Comparison[];
  /** Undefined for a peer, and if the machine lacks the baseline to compare with. */
  readonly target: Target | undefined;
  /** The limit of the first aim. */
  readonly aim: number | undefined;
  /** Whether the target was met; undefined without one. */
  readonly met: boolean | undefined;
  /** The value to aim for beyond the target. */
  readonly valueAim?: Verdict;
}

/** A whole run, as `--json` writes it. */
export interface BenchReport extends MachineFacts {
  readonly format: 1;
  readonly emulated: true;
  /** Start time, as ISO 8601. */
  readonly date: string;
  readonly version: string;
  readonly crcEngine: string;
  /** Load of the machine in the minute before the run: other work affects every result. */
  readonly loadBefore: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Result[];
  /** Measurements and baselines that this machine cannot make. */
  readonly unmeasured: readonly Unmeasured[];
  readonly failed: readonly Failed[];
}

export interface Failed {
  readonly name: string;
  readonly reason: string;
}

/** A measurement, or one of its baselines, that was not made. */
export interface Unmeasured {
  readonly name: string;
  /** The title of the baseline; undefined: the measurement itself. */
  readonly against?: string;
  readonly missing: string;
}

/**
 * Medians, ratios and verdicts of one measurement. `baselines` has a series for each baseline, or
 * undefined for one that the machine lacks.
 */
export function summarise(
  measurement: Measurement,
  measured: readonly number[],
  baselines: readonly (readonly number[] | undefined)[],
): Result {
  const { name, title, unit, better, target, aim } = measurement;
  const value = median(measured);
  const judge = (kind: Target['kind'], limit: number, figure: number): Verdict => ({
    kind,
    limit,
    met: better === 'higher' ? figure >= limit : figure <= limit,
  });
  const compared = measurement.baselines.map((baseline, index): Comparison | undefined => {
    const rounds = baselines[index];
    if (rounds === undefined) return undefined;
    // Computed per round, so that other work on the machine affects both sides.
    const ratio = median(rounds.map((each, round) => (measured[round] ?? Number.NaN) / each));
    const difference = median(rounds.map((each, round) => (measured[round] ?? Number.NaN) - each));
    return {
      title: baseline.title,
      median: median(rounds),
      rounds,
      ratio,
      difference,
      ...(baseline.aim === undefined ? {} : { aim: judge('ratio', baseline.aim, ratio) }),
    };
  });
  const figure =
    target === undefined || target.kind === 'value' ? value : compared[0]?.[target.kind];
  const judged = figure === undefined ? undefined : target;
  const known = compared.filter((each) => each !== undefined);
  return {
    name,
    title,
    unit,
    better,
    measured: { median: value, rounds: measured },
    baselines: known,
    target: judged,
    aim: aim ?? known.find((each) => each.aim !== undefined)?.aim?.limit,
    met:
      judged === undefined || figure === undefined
        ? undefined
        : judge(judged.kind, judged.limit, figure).met,
    ...(aim === undefined ? {} : { valueAim: judge('value', aim, value) }),
  };
}

/** The report as a table; with `targets`, also the developers' targets. */
export function reportLines(report: BenchReport, targets: boolean): string[] {
  return [
    `emulated RNIC over loopback; ${report.cores} cores (${report.cpu}), Node ${report.node}, CRC32C by ${report.crcEngine}; medians of ${report.rounds} interleaved rounds; load before ${report.loadBefore.toFixed(1)}; took ${durationText(report.seconds)}`,
    '',
    ...tableLines(reportRows(report.results, targets)),
    ...(targets ? ['', verdictLine(report.results)] : []),
    ...skippedLines(report.unmeasured),
    ...report.failed.map(({ name, reason }) => `${name} FAILED: ${reason}`),
  ];
}

/** A duration in words: minutes from one and a half of them up. */
export function durationText(seconds: number): string {
  return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** The table's rows, the header first. */
export function reportRows(results: readonly Result[], targets: boolean): string[][] {
  const head = ['measurement', 'median', 'unit', 'against', 'median', 'ratio'];
  const rows = [[...head, ...(targets ? ['target', 'met', 'aim', 'reached'] : [])]];
  for (const result of results) {
    const sign = result.better === 'higher' ? '>=' : '<=';
    const [first, ...others] = result.baselines;
    rows.push([
      result.name,
      readable(result.measured.median),
      result.unit,
      ...comparisonCells(first),
      ...(targets
        ? [
            result.target === undefined ? '' : `${sign} ${limitText(result.target)}`,
            yesOrNo(result.met),
            ...verdictCells(result.valueAim ?? first?.aim, sign),
          ]
        : []),
    ]);
    for (const other of others) {
      const cells = targets ? ['', '', ...verdictCells(other.aim, sign)] : [];
      rows.push(['', '', '', ...comparisonCells(other), ...cells]);
    }
  }
  return rows;
}

function comparisonCells(comparison: Comparison | undefined): string[] {
  if (comparison === undefined) return ['', '', ''];
  return [comparison.title, readable(comparison.median), comparison.ratio.toFixed(2)];
}

function verdictCells(verdict: Verdict | undefined, sign: string): string[] {
  return verdict === undefined ? ['', ''] : [`${sign} ${limitText(verdict)}`, yesOrNo(verdict.met)];
}

function yesOrNo(met: boolean | undefined): string {
  return met === undefined ? '' : met ? 'yes' : 'no';
}

function limitText({ kind, limit }: Target): string {
  if (kind === 'ratio') return `${readable(limit)} x`;
  return kind === 'difference' ? `${readable(limit)} more` : readable(limit);
}

/** Counts the targets and aims that were met. */
export function verdictLine(results: readonly Result[]): string {
  const targets = results.flatMap(({ met }) => (met === undefined ? [] : [met]));
  const aims = results
    .flatMap(({ valueAim, baselines }) => [valueAim, ...baselines.map(({ aim }) => aim)])
    .flatMap((aim) => (aim === undefined ? [] : [aim.met]));
  const count = (all: readonly boolean[]) => `${all.filter(Boolean).length} of ${all.length}`;
  return `targets: ${count(targets)} met; aims: ${count(aims)} reached`;
}

export function skippedLines(unmeasured: readonly Unmeasured[]): string[] {
  if (unmeasured.length === 0) return [];
  return [
    `${unmeasured.length} ${unmeasured.length === 1 ? 'line' : 'lines'} skipped:`,
    ...unmeasured.map(({ name, against, missing }) =>
      against === undefined
        ? `${name} was not measured: ${missing}`
        : `${name} was not compared with ${against}: ${missing}`,
    ),
  ];
}

/** The median; for an even count, the mean of the middle two. RangeError for no values. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new RangeError('cannot compute the median of no values');
  if (sorted.length % 2 === 1) return upper;
  const lower = sorted[middle - 1];
  return lower === undefined ? upper : (lower + upper) / 2;
}

/** `value` with about three significant digits and a thousands separator. */
export function readable(value: number): string {
  const magnitude = Math.abs(value);
  const digits = magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2;
  const [whole = '', fraction] = value.toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=([0-9]{3})+$)/g, ',');
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

export interface MachineFacts {
  readonly node: string;
  readonly kernel: string;
  readonly cpu: string;
  readonly cores: number;
}

export function machineFacts(): MachineFacts {
  return {
    node: process.version,
    kernel: release(),
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
  };
}
