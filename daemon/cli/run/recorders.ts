/**
 * `iwarpd capture` and `iwarpd trace` beside the program of a run. Each is a process of its own, as when
 * a user starts it: it never takes the daemon's time, and its file is as complete as one of theirs.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { CommandFailure, fileFailureText } from '../../console/failure.ts';

/** The files to record to. */
export interface RecorderArguments {
  readonly capture?: string;
  readonly trace?: string;
}

/** Recorders under way. */
interface Recorders {
  /** Ends them; their files are complete then. */
  stop(): Promise<void>;
}

/** What a recorder prints once it records. */
const RECORDING = /^(?:capturing|tracing)\b/m;
/** Enough for the line that says why a recorder failed. */
const MESSAGE_MAX_CHARACTERS = 4096;
/** A recorder that takes longer to write the end of its file is killed. */
const STOP_MS = 10_000;

/** Starts the recorders that the command line asks for. CommandFailure if one cannot record. */
export async function startRecorders(
  socketPath: string,
  { capture, trace }: RecorderArguments,
): Promise<Recorders> {
  const running: ChildProcess[] = [];
  const recorders: Recorders = {
    stop: async () => {
      await Promise.all(running.map(end));
    },
  };
  try {
    if (capture !== undefined) {
      running.push(recorder(['capture', '-w', capture, '--socket', socketPath], 'ignore'));
    }
    if (trace !== undefined) {
      const file = openTrace(trace);
      running.push(recorder(['trace', '--socket', socketPath], file));
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

function recorder(words: readonly string[], output: 'ignore' | number): ChildProcess {
  const script = process.argv[1] ?? '';
  return spawn(process.execPath, [script, ...words], { stdio: ['ignore', output, 'pipe'] });
}

/** Resolves once a recorder records. */
function recording(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stderr?.setEncoding('utf8').on('data', (part: string) => {
      if (text.length < MESSAGE_MAX_CHARACTERS) text += part;
      if (RECORDING.test(text)) resolve();
    });
    child.once('error', reject);
    child.once('close', () => {
      const reason = text.trim().replace(/^iwarpd: /, '');
      reject(new CommandFailure(reason === '' ? 'a recorder ended without a message' : reason));
    });
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGINT');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await ended;
  clearTimeout(timer);
}
