/** `iwarpd bench`, and `npm run bench`, which runs more rounds. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { CommandFailure, failureText } from '../console/failure.ts';
import type { Output } from '../console/output.ts';
import { type BenchOptions, runBench, selectMeasurements } from './bench-run.ts';
import { type BenchReport, type Failed, reportLines } from './report.ts';

/**
 * Runs the bench, prints the table, and writes the report to `jsonFile` (`-`: prints it instead). Calls
 * `keep` with the report as soon as it is complete. CommandFailure at the end if a measurement failed.
 */
export async function runBenchCommand(
  options: BenchOptions & { readonly jsonFile: string | undefined; readonly targets: boolean },
  output: Output,
  signal: AbortSignal,
  keep: (report: BenchReport) => void = () => {},
): Promise<void> {
  selectMeasurements(options.only);
  const { jsonFile, profileFolder, targets } = options;
  if (profileFolder !== undefined) mkdirSync(profileFolder, { recursive: true });
  const report = await runBench(options, output, signal);
  const lines = jsonFile === '-' ? [jsonOf(report)] : reportLines(report, targets);
  for (const line of lines) output.line(line);
  if (jsonFile !== undefined && jsonFile !== '-') writeReport(jsonFile, report);
  keep(report);
  failIfAny(report.failed);
}

/** CommandFailure that names the failed measurements, if there are any. */
export function failIfAny(failed: readonly Failed[]): void {
  if (failed.length === 0) return;
  const names = failed.map(({ name }) => name).join(', ');
  throw new CommandFailure(`${failed.length} of the measurements failed: ${names}`);
}

/** Writes a report to a file as JSON. CommandFailure if that fails. */
export function writeReport(path: string, report: object): void {
  try {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${jsonOf(report)}\n`);
  } catch (error) {
    throw new CommandFailure(`cannot write ${path}: ${failureText(error)}`, { cause: error });
  }
}

function jsonOf(report: object): string {
  return JSON.stringify(report, undefined, 2);
}
