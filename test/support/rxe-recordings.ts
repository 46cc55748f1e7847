/** Commands of programs on the kernel's rxe, as recorded: see the files' sources. */
import { readVectors } from './vectors.ts';

/** A program's bytes and the kernel's response, as hexadecimal text. */
export interface Recording {
  readonly command: string;
  readonly program: string;
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

const CM_RECORDINGS = readVectors<{ readonly recordings: readonly Recording[] }>('rxe-cm.json');

/** The recordings of an rdma_cm command by one end of a program, in their order. */
export function recordedCm(command: string, program: string): readonly Recording[] {
  return CM_RECORDINGS.recordings.filter((one) => {
    return one.command === command && one.program === program;
  });
}
