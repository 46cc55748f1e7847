/** `iwarpd run`: runs unmodified rdma-core programs on the emulated devices. */
import { rmSync } from 'node:fs';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { NetworkReach } from '#contract/protocol/ipc-admin';
import {
  CommandFailure,
  failureCode,
  failureText,
  STATUS_FAILED,
  usageFailure,
} from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { preloadedWithoutShim, shimVariables } from '#daemon/console/shim-environment';
import { Findings } from '#daemon/lint/findings';
import { createLog } from '#daemon/main/log';
import { instanceHint, socketPathOfThisProcess } from '#verbs-api/client/daemon-place';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { startCommand } from '#verbs-api/client/start-command';
import { isNative } from '../arguments.ts';
import { type DaemonArguments, givenDaemonOptions } from '../daemon-options.ts';
import { daemonSettings, openLog } from '../daemon-settings.ts';
import {
  findProgram,
  hasForeignLoader,
  neededLibraries,
  preloadObstacle,
} from '../program-file.ts';
import { JunitFile } from './junit-file.ts';
import { type LintMode, lintLines, lintTitle } from './lint-lines.ts';
import { withMountedSysfs } from './mounted-sysfs.ts';
import { makePrivateFolder, removeDeadFolders, socketIn } from './private-folder.ts';
import { endBySignal, type ProgramEnd, runToEnd, SignalPassing } from './program-process.ts';
import { type RecorderArguments, startRecorders } from './recorders.ts';
import { RunLog } from './run-log.ts';
import {
  githubAnnotation,
  idleFaultLines,
  printReport,
  REPORTED_REFUSALS_MAX,
  type RunFacts,
  type RunReport,
  runReport,
  shortReport,
} from './run-report.ts';
import { isRunning, sharedDaemon, startPrivate, type UsedDaemon } from './used-daemon.ts';

/** A shell's exit statuses for a program that does not exist, or cannot be executed. */
const STATUS_NOT_FOUND = 127;
const STATUS_NOT_EXECUTABLE = 126;
/** Time for processes left by the program to end, before their objects count as open. */
const ENDING_MS = 1_000;
const ENDING_LOOK_MS = 20;

export interface RunArguments extends DaemonArguments, RecorderArguments {
  readonly socket?: string;
  readonly fresh?: boolean;
  /** Show the devices in /sys by mounts, too. */
  readonly mountSysfs?: boolean;
  readonly expectClean?: boolean;
  readonly junit?: string;
  /** Print why verbs are refused. */
  readonly explain?: boolean;
  /** Print advice; with `error`, advice is a failure. */
  readonly lint?: LintMode;
}

interface RunResult {
  readonly end: ProgramEnd;
  readonly report: RunReport | undefined;
  /** Why recordings are truncated. */
  readonly unrecorded: readonly string[];
  /** Faults that never triggered, unless a report contains them. */
  readonly idleFaults: readonly string[];
  /** Advice, unless the report contains it. */
  readonly findings: Findings | undefined;
}

/**
 * Runs a program to its end, and ends this process the same way. CommandFailure if it cannot be
 * started.
 */
export async function runProgram(
  words: readonly string[],
  given: RunArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const passing = new SignalPassing(signal);
  const junit = given.junit === undefined ? undefined : new JunitFile(given.junit, words);
  let result: RunResult | undefined;
  try {
    result = await runOnDaemon(words, given, { junit, passing }, output);
  } catch (error) {
    await junit?.failed(failureText(error));
    throw error;
  } finally {
    passing.end();
  }
  if (result === undefined) {
    const { early = 'SIGTERM' } = passing;
    const text = `ended by ${early}, before the program ran`;
    await junit?.failed(text);
    output.note(`iwarpd: ${text}`);
    return endBySignal(early);
  }
  const { end, unrecorded, idleFaults, findings } = result;
  const short = result.report ?? shortReport(words, end, unrecorded);
  const unwritten = await failureOfFile(junit?.ended(short));
  // On a running daemon, add nothing to the output of a failed program.
  const report = unrecorded.length === 0 ? result.report : short;
  if (report !== undefined) {
    if (process.env['GITHUB_ACTIONS'] === 'true') output.note(githubAnnotation(report));
    printReport(report, output);
  }
  for (const line of idleFaults) output.note(`iwarpd: ${line}`);
  if (findings !== undefined && findings.list().length > 0) {
    output.note(`iwarpd: ${lintTitle(findings)}`);
    for (const line of lintLines(findings)) output.note(`  ${line}`);
  }
  if (unwritten !== undefined) throw unwritten;
  if ('error' in end) return;
  if ('signal' in end) return endBySignal(end.signal);
  process.exitCode = end.status === 0 && report !== undefined ? STATUS_FAILED : end.status;
}

/** The failure to write a file, to report after everything else. */
async function failureOfFile(written: Promise<void> | undefined): Promise<unknown> {
  try {
    await written;
    return undefined;
  } catch (error) {
    return error;
  }
}

/** Undefined if a signal arrived before the program ran. */
async function runOnDaemon(
  words: readonly string[],
  given: RunArguments,
  { junit, passing }: { readonly junit: JunitFile | undefined; readonly passing: SignalPassing },
  output: Output,
): Promise<RunResult | undefined> {
  const [name = ''] = words;
  const found = findProgram(name, process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin');
  if ('error' in found) throw notRunnable(name, found.error);
  const runner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const obstacle = preloadObstacle(found.path, runner);
  if (obstacle !== undefined) {
    const seen =
      given.mountSysfs === true
        ? 'see the emulated devices in /sys only'
        : 'not see the emulated devices';
    output.note(`iwarpd: ${found.path} ${obstacle}; it will ${seen}`);
  }
  // Report a missing library before starting a daemon.
  shimVariables(socketOf(given), process.env);
  const findings = given.lint === undefined ? undefined : new Findings();
  if (passing.early !== undefined) return undefined;
  const daemon = await usedDaemon(given, findings);
  try {
    const recorders = await startRecorders(daemon.socketPath, given);
    const needed = neededLibraries(found.path);
    const variables = shimVariables(daemon.socketPath, process.env, needed);
    // The program must end with this process, whose devices it uses.
    const run = daemon.isPrivate ? { IWARPD_RUN_PID: String(process.pid) } : {};
    const explained = given.explain === true ? { IWARPD_EXPLAIN: '1' } : {};
    const without = hasForeignLoader(found.path)
      ? { LD_PRELOAD: preloadedWithoutShim(process.env) }
      : {};
    const environment = { ...process.env, ...variables, ...without, ...explained, ...run };
    const onOutput = junit?.keepOutput;
    const started = given.mountSysfs === true ? withMountedSysfs(words, environment) : words;
    // A start may take a single turn, and signals are delivered between turns.
    await nextTurn();
    const end =
      passing.early === undefined
        ? await runToEnd({ words: started, environment, passing, onOutput })
        : undefined;
    const unrecorded = await recorders.stop();
    if (end === undefined) return undefined;
    if ('error' in end) throw notRunnable(name, failureCode(end.error) ?? 'EACCES');
    const facts = { words, end, unrecorded };
    const report = await reportOn(facts, daemon, given, findings);
    const idleFaults = report === undefined ? await idleFaultsOf(daemon) : [];
    const advice = given.lint === 'error' ? undefined : findings;
    return { end, report, unrecorded, idleFaults, findings: advice };
  } finally {
    await daemon.stop();
  }
}

function socketOf(given: RunArguments): string {
  return given.socket ?? socketPathOfThisProcess();
}

function notRunnable(name: string, code: string): CommandFailure {
  if (code === 'ENOENT') {
    return new CommandFailure(`no such program: ${name}`, { exitStatus: STATUS_NOT_FOUND });
  }
  const message = `cannot execute ${name}: ${code === 'EACCES' ? 'permission denied (EACCES)' : code}`;
  return new CommandFailure(message, { exitStatus: STATUS_NOT_EXECUTABLE });
}

/** A daemon; for a private one, its log and the number of its initial faults. */
type RunDaemon = UsedDaemon & { readonly log?: RunLog; readonly faults?: number };

/**
 * The running daemon, or a private one: if any option describes one, or if none is running and the
 * command line names none.
 */
async function usedDaemon(given: RunArguments, findings: Findings | undefined): Promise<RunDaemon> {
  const { fresh = false, expectClean = false } = given;
  const wanted =
    fresh || expectClean || findings !== undefined || givenDaemonOptions(given).length > 0;
  if (wanted) return await privateDaemon(given, 'isolated', findings);
  const socket = socketOf(given);
  if (await isRunning(socket)) return sharedDaemon(socket);
  // Do not hide a misspelt name by starting a private daemon.
  if (given.socket !== undefined) {
    throw new CommandFailure(
      `no daemon at ${socket}${instanceHint(socket)}; start it with \`${startCommand(socket)}\`, or use a private one with --fresh`,
    );
  }
  // It replaces the missing daemon, and reaches the same hosts.
  return await privateDaemon(given, 'host', undefined);
}

async function privateDaemon(
  given: RunArguments,
  network: NetworkReach,
  findings: Findings | undefined,
): Promise<RunDaemon> {
  if (given.device?.some(isNative) === true) {
    throw usageFailure('`iwarpd run` offers emulated devices only; serve native ones with `start`');
  }
  await removeDeadFolders();
  const folder = makePrivateFolder();
  const socketPath = socketIn(folder);
  try {
    // Unmodified programs see only emulated devices; they can use native ones directly.
    const settings = daemonSettings(given, { socketPath, native: false }, network);
    const { logLevel, logFormat } = settings.options;
    const asked = [logLevel, logFormat, given.logFile].some((option) => option !== undefined);
    const log = new RunLog(openLog(given.logFile, logFormat), asked ? 'all' : 'errors');
    const options = { ...settings.options, socketPath };
    try {
      const daemonLog = createLog(settings.config.logLevel, log);
      const daemon = await startPrivate(folder, options, daemonLog, findings);
      return { ...daemon, log, faults: settings.config.faults.length };
    } catch (error) {
      throw settings.failure(error);
    }
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

/** The report on a program that failed, left objects open although that is an error, or needs advice. */
async function reportOn(
  known: Pick<RunFacts, 'words' | 'end' | 'unrecorded'>,
  { socketPath, isPrivate, log, faults: givenFaults = 0 }: RunDaemon,
  given: RunArguments,
  findings: Findings | undefined,
): Promise<RunReport | undefined> {
  const { expectClean = false, lint } = given;
  const { end, unrecorded } = known;
  const failed = !('status' in end) || end.status !== 0 || unrecorded.length > 0;
  if (!isPrivate || 'error' in end || !(failed || expectClean || lint !== undefined))
    return undefined;
  await untilEnded(socketPath);
  const faults = await queryDaemon('listFaults', {}, { socketPath });
  const refusals = await queryDaemon(
    'listRefusals',
    { limit: REPORTED_REFUSALS_MAX },
    { socketPath },
  );
  const lines = log?.lastLines ?? [];
  const open = await queryDaemon('reset', {}, { socketPath });
  const failing = lint === 'error' ? findings : undefined;
  const facts = { ...known, open, expectClean, givenFaults, faults, refusals, log: lines };
  return runReport({ ...facts, findings: failing });
}

/** Lines about faults that never triggered, for a program that succeeded. */
async function idleFaultsOf({ socketPath, faults: count = 0 }: RunDaemon): Promise<string[]> {
  if (count === 0) return [];
  const faults = await queryDaemon('listFaults', {}, { socketPath });
  return idleFaultLines(faults.filter(({ id }) => id <= count));
}

/** Waits, for a limited time, until the daemon's clients have ended: the program may not wait for all of its processes. */
async function untilEnded(socketPath: string): Promise<void> {
  const deadline = performance.now() + ENDING_MS;
  while (performance.now() < deadline) {
    const clients = await queryDaemon('listClients', {}, { socketPath });
    if (clients.length === 0) return;
    await sleep(ENDING_LOOK_MS);
  }
}
