/**
 * `npm run bench`: the full load of `iwarpd bench`, and CPU profiles of the daemons on request;
 * `npm run bench -- growth`: how cost grows; `npm run bench -- against`: what a change costs. README.md
 * beside this file lists the measurements.
 */
import { fileURLToPath } from 'node:url';
import { failIfAny, runBenchCommand, writeReport } from '#daemon/bench/bench-command';
import {
  CommandFailure,
  failureText,
  STATUS_FAILED,
  STATUS_INTERRUPTED,
} from '#daemon/console/failure';
import { STANDARD_OUTPUT } from '#daemon/console/output';
import { againstLines } from './against/against-report.ts';
import { runAgainst } from './against/against-run.ts';
import { OWN_BUILD, otherBuild } from './against/other-build.ts';
import { BENCH_USAGE, type BenchArguments, parseBenchArguments } from './arguments.ts';
import { growthLines } from './growth/growth-report.ts';
import { runGrowth } from './growth/growth-run.ts';
import { keepGrowth, keepRun } from './keep.ts';
import { profileLines } from './profile-summary.ts';

/** This folder in the checkout, not in `dist`. */
const FOLDER = fileURLToPath(new URL('../../../test/bench/', import.meta.url));

async function main(): Promise<void> {
  const interruption = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.once(name, () => {
      const exitStatus = STATUS_INTERRUPTED;
      interruption.abort(new CommandFailure('interrupted', { exitStatus }));
    });
  }
  try {
    await run(parseBenchArguments(process.argv.slice(2)), interruption.signal);
  } catch (error) {
    STANDARD_OUTPUT.note(`bench: ${failureText(error)}`);
    process.exitCode = error instanceof CommandFailure ? error.exitStatus : STATUS_FAILED;
  }
}

async function run(given: BenchArguments, signal: AbortSignal): Promise<void> {
  if (given.command === 'help') {
    STANDARD_OUTPUT.line(BENCH_USAGE);
    return;
  }
  if (given.command === 'growth') {
    const { jsonFile, keep } = given;
    const report = await runGrowth(given, STANDARD_OUTPUT, signal);
    for (const line of growthLines(report)) STANDARD_OUTPUT.line(line);
    if (jsonFile !== undefined) writeReport(jsonFile, report);
    if (keep) keepGrowth(report, FOLDER);
    return;
  }
  if (given.command === 'against') {
    const builds = { before: await otherBuild(given.directory), after: OWN_BUILD };
    const report = await runAgainst(builds, given, STANDARD_OUTPUT, signal);
    for (const line of againstLines(report)) STANDARD_OUTPUT.line(line);
    if (given.jsonFile !== undefined) writeReport(given.jsonFile, report);
    failIfAny(report.failed);
    return;
  }
  const { keep, profileFolder } = given;
  await runBenchCommand(
    { ...given, scale: 1, targets: true },
    STANDARD_OUTPUT,
    signal,
    keep ? (report) => keepRun(report, FOLDER) : undefined,
  );
  if (profileFolder === undefined) return;
  for (const line of profileLines(profileFolder)) STANDARD_OUTPUT.line(line);
}

await main();
