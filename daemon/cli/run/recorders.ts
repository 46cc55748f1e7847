/**
 * `iwarpd capture` and `iwarpd trace` alongside the program of a run. Each is a separate process, as if
 * a user had started it: it never takes the daemon's time, and its file is as complete.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { CommandFailure, fileFailureText, STATUS_INTERRUPTED } from '#daemon/console/failure';

export interface RecorderArguments {
  readonly capture?: string;
  readonly trace?: string;
}

interface Recorders {
  /** Stops them; their files are then complete. Returns why any file is truncated. */
  stop(): Promise<string[]>;
}

interface Recorder {
  readonly child: ChildProcess;
  readonly path: string;
  readonly closed: Promise<void>;
  /** The end of its output. */
  text: string;
}

/** A recorder prints this once it records. */
const RECORDING = /^(?:capturing|tracing)\b/m;
/** Enough for the last line, which says why a recorder failed. */
const MESSAGE_MAX_CHARACTERS = 4096;
const FAILURE = /^iwarpd: (.*)$/gm;
/** Time for a recorder to write the end of its file; then it is killed. */
const STOP_MS = 10_000;

/** Starts the requested recorders. CommandFailure if one cannot record. */
export async function startRecorders(
  socketPath: string,
  { capture, trace }: RecorderArguments,
): Promise<Recorders> {
  const running: Recorder[] = [];
  const recorders: Recorders = {
    stop: async () => (await Promise.all(running.map(end))).filter((each) => each !== undefined),
  };
  try {
    if (capture !== undefined) {
      running.push(recorder(capture, ['capture', '-w', capture, '--socket', socketPath], 'ignore'));
    }
    if (trace !== undefined) {
      const file = openTrace(trace);
      running.push(recorder(trace, ['trace', '--socket', socketPath], file));
      closeSync(file);
    }
    await Promise.all(running.map(recording));
    return recorders;
  } catch (error) {
    await recorders.stop();
    throw error;
  }
}

function openTrace(path: string): number {
  try {
    return openSync(path, 'w', 0o600);
  } catch (error) {
    throw new CommandFailure(`cannot write the trace ${path}: ${fileFailureText(error)}`, {
      cause: error,
    });
  }
}

function recorder(path: string, words: readonly string[], output: 'ignore' | number): Recorder {
  const script = process.argv[1] ?? '';
  const child = spawn(process.execPath, [script, ...words], { stdio: ['ignore', output, 'pipe'] });
  const closed = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
  });
  const started = { child, path, closed, text: '' };
  child.stderr?.setEncoding('utf8').on('data', (part: string) => {
    started.text = (started.text + part).slice(-MESSAGE_MAX_CHARACTERS);
  });
  return started;
}

function recording(started: Recorder): Promise<void> {
  const { child } = started;
  return new Promise((resolve, reject) => {
    child.stderr?.on('data', () => {
      if (RECORDING.test(started.text)) resolve();
    });
    child.once('error', reject);
    child.once('close', () => {
      const reason = started.text.trim().replace(/^iwarpd: /, '');
      reject(new CommandFailure(reason === '' ? 'a recorder ended without a message' : reason));
    });
  });
}

/** Stops a recorder. Returns why its file is truncated, if it is. */
async function end(started: Recorder): Promise<string | undefined> {
  const { child, path, closed } = started;
  child.kill('SIGINT');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await closed;
  clearTimeout(timer);
  if (child.exitCode === 0 || child.exitCode === STATUS_INTERRUPTED) return undefined;
  const how = child.signalCode ?? `status ${child.exitCode}`;
  const reason = [...started.text.matchAll(FAILURE)].at(-1)?.[1] ?? `it ended with ${how}`;
  return reason.startsWith('cannot write ') ? reason : `${path} is cut short: ${reason}`;
}
