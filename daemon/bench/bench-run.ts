/** Runs measurements in interleaved rounds. */
import { loadavg } from 'node:os';
import { failureText, untilAborted, usageFailure } from '../console/failure.ts';
import type { Output } from '../console/output.ts';
import type { Measurement } from './measurement.ts';
import { MEASUREMENTS } from './measurements.ts';
import {
  type BenchReport,
  type Failed,
  machineFacts,
  type Result,
  summarise,
  type Unmeasured,
} from './report.ts';
import { Rig } from './rig.ts';

export interface BenchOptions {
  /** Names of measurements; empty for all. */
  readonly only: readonly string[];
  /** Rounds of each measurement, 1 or more. */
  readonly rounds: number;
  /** Fraction of the full load of a round. */
  readonly scale: number;
  /** Where the daemons write CPU profiles, or undefined. */
  readonly profileFolder: string | undefined;
}

/** The named measurements; all if none is named. CommandFailure for an unknown name. */
export function selectMeasurements(only: readonly string[]): readonly Measurement[] {
  const unknown = only.find((name) => !MEASUREMENTS.some((each) => each.name === name));
  if (unknown !== undefined) {
    const names = MEASUREMENTS.map((each) => each.name).join(', ');
    throw usageFailure(`unknown measurement '${unknown}'; choose from ${names}`);
  }
  return only.length === 0 ? MEASUREMENTS : MEASUREMENTS.filter((each) => only.includes(each.name));
}

/**
 * Runs the bench; every process that it started has exited when it settles. A failed measurement is
 * reported, and the others are made.
 */
export async function runBench(
  options: BenchOptions,
  output: Output,
  signal: AbortSignal,
): Promise<BenchReport> {
  const selected = selectMeasurements(options.only);
  const begun = new Date();
  const start = performance.now();
  const loadBefore = loadavg()[0] ?? 0;
  const results: Result[] = [];
  const unmeasured: Unmeasured[] = [];
  const failed: Failed[] = [];
  let rig = new Rig(options.profileFolder);
  try {
    for (const [index, measurement] of selected.entries()) {
      const { name, title } = measurement;
      const missing = measurement.obstacle?.();
      if (missing !== undefined) {
        unmeasured.push({ name, missing });
        continue;
      }
      output.note(`measuring ${name} (${index + 1} of ${selected.length}): ${title}`);
      try {
        const result = measure(measurement, rig, options, unmeasured);
        results.push(await untilAborted(result, signal));
      } catch (error) {
        if (signal.aborted) throw error;
        const reason = failureText(error);
        output.note(`${name} failed: ${reason}`);
        failed.push({ name, reason });
        // Its processes may be in the middle of an operation.
        await rig.close();
        rig = new Rig(options.profileFolder);
      }
    }
    const { version, crcEngine } = await rig.daemonFacts();
    return {
      format: 1,
      emulated: true,
      date: begun.toISOString(),
      version,
      ...machineFacts(),
      crcEngine,
      loadBefore,
      rounds: options.rounds,
      seconds: Math.round((performance.now() - start) / 1000),
      results,
      unmeasured,
      failed,
    };
  } finally {
    await rig.close();
  }
}

/** Runs one measurement; missing or failed baselines go to `unmeasured`. */
async function measure(
  measurement: Measurement,
  rig: Rig,
  options: BenchOptions,
  unmeasured: Unmeasured[],
): Promise<Result> {
  const { name } = measurement;
  const measured: number[] = [];
  const baselines = measurement.baselines.map(({ title, obstacle }): number[] | undefined => {
    const missing = obstacle?.();
    if (missing === undefined) return [];
    unmeasured.push({ name, against: title, missing });
    return undefined;
  });
  const warmUps = measurement.warmUps ?? 0;
  const rounds = measurement.once === true ? 1 : options.rounds;
  for (let round = -warmUps; round < rounds; round++) {
    const values: number[] = [];
    for (const [index, baseline] of measurement.baselines.entries()) {
      try {
        const skipped = baselines[index] === undefined;
        values.push(skipped ? Number.NaN : await baseline.run(rig, options.scale, values));
      } catch (error) {
        // A peer that fails must not lose our own result.
        if (baseline.obstacle === undefined) throw error;
        const missing = `it failed: ${failureText(error)}`;
        unmeasured.push({ name, against: baseline.title, missing });
        baselines[index] = undefined;
        values.push(Number.NaN);
      }
    }
    const value = await measurement.run(rig, options.scale);
    if (round < 0) continue;
    measured.push(value);
    for (const [index, series] of baselines.entries()) series?.push(values[index] ?? Number.NaN);
  }
  return summarise(measurement, measured, baselines);
}
