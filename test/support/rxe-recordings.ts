/** Commands of programs on the kernel's rxe, as recorded: see the file's source. */
import { readVectors } from './vectors.ts';

/** What a program wrote and what the kernel stored, as hexadecimal text. */
interface Recording {
  readonly command: string;
  readonly request: string;
  readonly response: string;
  /** Set where the kernel refused. */
  readonly error?: string;
}

const RECORDINGS = readVectors<{ readonly recordings: readonly Recording[] }>('rxe-uverbs.json');

/** The requests of all recordings, as hexadecimal text. */
export function recordedCommands(): string[] {
  return RECORDINGS.recordings.map(({ request }) => request);
}

/** The first recording of a command, or the first that was refused with `refusal`. */
export function recordedCommand(name: string, refusal?: string): Recording {
  const found = RECORDINGS.recordings.find(({ command, error }) => {
    return command === name && (refusal === undefined || error === refusal);
  });
  if (found === undefined) throw new Error(`no recording of ${name}`);
  return found;
}
