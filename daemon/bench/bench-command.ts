/** `iwarpd bench`, and `npm run bench`, which is the same with more rounds. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { CommandFailure, failureText } from '../console/failure.ts';
import type { Output } from '../console/output.ts';
import { type BenchOptions, reportLines, runBench, selectMeasurements } from './bench-run.ts';

/** Runs the bench, prints the table, and writes the report to `jsonFile` (`-`: prints it instead). */
export async function runBenchCommand(
  options: BenchOptions & { readonly jsonFile: string | undefined; readonly targets: boolean },
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  selectMeasurements(options.only);
  const { jsonFile, profileFolder, targets } = options;
  if (profileFolder !== undefined) mkdirSync(profileFolder, { recursive: true });
  const report = await runBench(options, output, signal);
  const json = JSON.stringify(report, undefined, 2);
  if (jsonFile === '-') return output.line(json);
  for (const line of reportLines(report, targets)) output.line(line);
  if (jsonFile !== undefined) writeReport(jsonFile, `${json}\n`);
}

function writeReport(path: string, text: string): void {
  try {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  } catch (error) {
    throw new CommandFailure(`cannot write ${path}: ${failureText(error)}`, { cause: error });
  }
}
