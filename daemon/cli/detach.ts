/**
 * `iwarpd start --detach`: a daemon in a separate session, and a command that exits once it is
 * ready. The daemon's standard error is its log. If a start fails, the daemon also prints the
 * reason on its standard output, since the log may be on a full disk.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { CommandFailure, fileFailureText, STATUS_FAILED } from '../console/failure.ts';
import { jsonLine, type Output } from '../console/output.ts';
import { preparePlace } from '../ipc/socket-place.ts';
import type { DaemonReady } from '../main/daemon.ts';
import { DETACHED_VARIABLE, reportedFailure } from './detached-failure.ts';
import { readyLine, type StartArguments, startSettings } from './start.ts';

/** The log contains names of programs and peers. */
const LOG_MODE = 0o600;
/** Far more than the ready line of a daemon with the maximum of devices. */
const READY_MAX_CHARACTERS = 1024 * 1024;
/** The part at the end of the log in which to search for the reason of a failure. */
const LOG_END_BYTES = 64 * 1024;
/** The start of a process's last message: a command's reason, or an error of Node. */
const FAILURE = /^(?:iwarpd: |(?=\w*Error\b.*:))(.*)$/gm;

interface Started {
  /** Its ready line, as JSON. */
  readonly ready: string;
}

/** Starts the daemon. CommandFailure with the daemon's reason and status if it does not get ready. */
export async function runDetached(
  given: StartArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  // Also reports a wrong option before anything is started.
  const { socketPath } = startSettings(given).config;
  preparePlace(socketPath);
  const path = given.logFile ?? `${socketPath.replace(/\.sock$/, '')}.log`;
  const log = openLogFile(path);
  try {
    const before = fstatSync(log).size;
    const { ready } = await startChild(log, before, signal);
    const record = JSON.parse(ready) as DaemonReady;
    if (given.json === true) output.line(jsonLine({ ...record, logFile: path }));
    else output.line(readyLine(record, given, `pid ${record.pid}, log ${path}`));
  } finally {
    closeSync(log);
  }
}

/** Opens a file of this user only: others may be able to create files in the directory, too. */
function openLogFile(path: string): number {
  try {
    const { O_APPEND, O_CREAT, O_NOFOLLOW, O_RDWR } = constants;
    const fd = openSync(path, O_APPEND | O_CREAT | O_NOFOLLOW | O_RDWR, LOG_MODE);
    if (fstatSync(fd).uid === process.geteuid?.()) return fd;
    closeSync(fd);
  } catch (error) {
    throw new CommandFailure(`cannot write the log ${path}: ${fileFailureText(error)}`, {
      cause: error,
    });
  }
  throw new CommandFailure(`cannot write the log ${path}: it belongs to another user`);
}

async function startChild(log: number, before: number, signal: AbortSignal): Promise<Started> {
  // npm waits for this command, not for the daemon.
  const { npm_lifecycle_script: _, ...environment } = process.env;
  const child = spawn(process.execPath, [...process.execArgv, ...daemonWords(process.argv)], {
    detached: true,
    stdio: ['ignore', 'pipe', log],
    env: { ...environment, [DETACHED_VARIABLE]: '1' },
  });
  const stop = (): void => void child.kill('SIGTERM');
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop);
  try {
    return await readyOf(child, log, before);
  } finally {
    signal.removeEventListener('abort', stop);
    child.stdout?.destroy();
    child.unref();
  }
}

/** This command's arguments, changed to those of a foreground daemon that logs to standard error. */
function daemonWords(words: readonly string[]): string[] {
  const [, script = '', ...rest] = words;
  const end = rest.indexOf('--detach');
  return [script, ...rest.slice(0, end), ...rest.slice(end + 1), '--json'];
}

function readyOf(child: ChildProcess, log: number, before: number): Promise<Started> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (part: string) => {
      text += part;
      const [line = '', rest] = text.split('\n', 2);
      if (rest !== undefined && reportedFailure(text) === undefined) resolve({ ready: line });
      else if (text.length > READY_MAX_CHARACTERS) child.kill('SIGTERM');
    });
    child.once('error', reject);
    child.once('close', (status, name) => {
      const ending = `it ended with ${name ?? `status ${status}`}`;
      const reason = reportedFailure(text) ?? failureIn(log, before) ?? ending;
      const exitStatus = status === null || status === 0 ? STATUS_FAILED : status;
      reject(new CommandFailure(`the daemon has not started: ${reason}`, { exitStatus }));
    });
  });
}

/** The reason of the failure in the daemon's log. */
function failureIn(log: number, before: number): string | undefined {
  const end = fstatSync(log).size;
  const from = Math.max(before, end - LOG_END_BYTES);
  const bytes = Buffer.alloc(Math.max(end - from, 0));
  const read = readSync(log, bytes, 0, bytes.length, from);
  const text = bytes.toString('utf8', 0, read);
  return [...text.matchAll(FAILURE)].at(-1)?.[1];
}
