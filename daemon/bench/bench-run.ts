/** Runs measurements in interleaved rounds and reports medians and ratios. */
import { availableParallelism, cpus, loadavg, release } from 'node:os';
import { CommandFailure, failureText, untilAborted, usageFailure } from '../console/failure.ts';
import { type Output, tableLines } from '../console/output.ts';
import type { Measurement, Target } from './measurement.ts';
import { MEASUREMENTS } from './measurements.ts';
import { Rig } from './rig.ts';
import { median, readable } from './statistics.ts';

/** How to run a bench. */
export interface BenchOptions {
  /** Names of measurements; none for all. */
  readonly only: readonly string[];
  /** Rounds of each measurement, 1 or more. */
  readonly rounds: number;
  /** Share of the full load of a round. */
  readonly scale: number;
  /** Where the daemons leave CPU profiles, or undefined for none. */
  readonly profileFolder: string | undefined;
}

/** A series of rounds. */
interface Series {
  readonly median: number;
  readonly rounds: readonly number[];
}

/** A baseline's rounds, and what was measured compared with it: the medians of the rounds'. */
interface Comparison extends Series {
  readonly title: string;
  /** Measured over baseline. */
  readonly ratio: number;
  /** Measured less baseline, in the unit of both. */
  readonly difference: number;
}

/** What came out of one measurement. */
interface Result {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  readonly measured: Series;
  readonly baselines: readonly Comparison[];
  readonly target: { readonly kind: Target['kind']; readonly limit: number };
  readonly aim: number | undefined;
  readonly met: boolean;
}

/** A whole run, as `--json` writes it. */
interface BenchReport {
  readonly format: 1;
  readonly emulated: true;
  readonly node: string;
  readonly kernel: string;
  readonly cpu: string;
  readonly cores: number;
  readonly crcEngine: string;
  /** Load of the machine in the minute before the run: other work shows in every figure. */
  readonly loadBefore: number;
  readonly rounds: number;
  readonly results: readonly Result[];
  /** Measurements that this machine cannot make. */
  readonly unmeasured: readonly Unmeasured[];
}

/** A measurement that was not made. */
interface Unmeasured {
  readonly name: string;
  readonly missing: string;
}

/** The measurements named, all when none is. CommandFailure for an unknown name. */
export function selectMeasurements(only: readonly string[]): readonly Measurement[] {
  const unknown = only.find((name) => !MEASUREMENTS.some((each) => each.name === name));
  if (unknown !== undefined) {
    const names = MEASUREMENTS.map((each) => each.name).join(', ');
    throw usageFailure(`unknown measurement '${unknown}'; choose from ${names}`);
  }
  return only.length === 0 ? MEASUREMENTS : MEASUREMENTS.filter((each) => only.includes(each.name));
}

/** Runs the bench; every process that it started has gone when it settles. */
export async function runBench(
  options: BenchOptions,
  output: Output,
  signal: AbortSignal,
): Promise<BenchReport> {
  const selected = selectMeasurements(options.only);
  const rig = new Rig(options.profileFolder);
  const loadBefore = loadavg()[0] ?? 0;
  try {
    const results: Result[] = [];
    const unmeasured: Unmeasured[] = [];
    for (const measurement of selected) {
      const missing = measurement.obstacle?.();
      if (missing !== undefined) {
        unmeasured.push({ name: measurement.name, missing });
        continue;
      }
      output.note(`measuring ${measurement.name}: ${measurement.title}`);
      results.push(await untilAborted(measure(measurement, rig, options), signal));
    }
    return {
      format: 1,
      emulated: true,
      node: process.version,
      kernel: release(),
      cpu: cpus()[0]?.model ?? 'unknown',
      cores: availableParallelism(),
      crcEngine: await rig.crcEngine(),
      loadBefore,
      rounds: options.rounds,
      results,
      unmeasured,
    };
  } finally {
    await rig.close();
  }
}

async function measure(measurement: Measurement, rig: Rig, options: BenchOptions): Promise<Result> {
  const measured: number[] = [];
  const baselines = measurement.baselines.map((): number[] => []);
  const warmUps = measurement.warmUps ?? 0;
  const rounds = measurement.once === true ? 1 : options.rounds;
  try {
    for (let round = -warmUps; round < rounds; round++) {
      const values: number[] = [];
      for (const { run } of [...measurement.baselines, measurement]) {
        values.push(await run(rig, options.scale));
      }
      if (round < 0) continue;
      for (const [index, rows] of [...baselines, measured].entries()) {
        rows.push(values[index] ?? Number.NaN);
      }
    }
  } catch (error) {
    throw new CommandFailure(`${measurement.name}: ${failureText(error)}`, { cause: error });
  }
  return summarise(measurement, measured, baselines);
}

/** Medians, ratios and the verdict of one measurement. */
export function summarise(
  measurement: Measurement,
  measured: readonly number[],
  baselines: readonly (readonly number[])[],
): Result {
  const value = median(measured);
  const compared = measurement.baselines.map((baseline, index) => {
    const rounds = baselines[index] ?? [];
    // Round by round, so that other work on the machine weighs on both sides.
    const ratios = rounds.map((each, round) => (measured[round] ?? Number.NaN) / each);
    const differences = rounds.map((each, round) => (measured[round] ?? Number.NaN) - each);
    return {
      title: baseline.title,
      median: median(rounds),
      rounds,
      ratio: median(ratios),
      difference: median(differences),
    };
  });
  const { kind, limit, aim } = measurement.target;
  const judged = kind === 'value' ? value : (compared[0]?.[kind] ?? Number.NaN);
  return {
    name: measurement.name,
    title: measurement.title,
    unit: measurement.unit,
    better: measurement.better,
    measured: { median: value, rounds: measured },
    baselines: compared,
    target: { kind, limit },
    aim,
    met: measurement.better === 'higher' ? judged >= limit : judged <= limit,
  };
}

/** The report as a table for people; with `targets`, also what developers hold it to. */
export function reportLines(report: BenchReport, targets: boolean): string[] {
  const head = ['measurement', 'median', 'unit', 'against', 'median', 'ratio'];
  const rows = [[...head, ...(targets ? ['target', 'met'] : [])]];
  for (const result of report.results) {
    const [first, ...others] = result.baselines;
    const sign = result.better === 'higher' ? '>=' : '<=';
    const target = `${sign} ${targetText(result.target)}`;
    rows.push([
      result.name,
      readable(result.measured.median),
      result.unit,
      ...(first === undefined
        ? ['', '', '']
        : [first.title, readable(first.median), first.ratio.toFixed(2)]),
      ...(targets ? [target, result.met ? 'yes' : 'no'] : []),
    ]);
    for (const other of others) {
      rows.push(['', '', '', other.title, readable(other.median), other.ratio.toFixed(2)]);
    }
  }
  return [
    `emulated RNIC over loopback; ${report.cores} cores (${report.cpu}), Node ${report.node}, CRC32C by ${report.crcEngine}; medians of ${report.rounds} interleaved rounds; load before ${report.loadBefore.toFixed(1)}`,
    '',
    ...tableLines(rows),
    ...report.unmeasured.map(({ name, missing }) => `${name} was not measured: ${missing}`),
  ];
}

function targetText({ kind, limit }: Result['target']): string {
  if (kind === 'ratio') return `${readable(limit)} x`;
  return kind === 'difference' ? `${readable(limit)} more` : readable(limit);
}
