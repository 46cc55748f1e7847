/** A command's failure: one line with cause and fix, and an exit status. */
import { isVerbsError } from '#contract/verbs/errors';

export const STATUS_FAILED = 1;
const STATUS_USAGE = 2;
/** Exit status after Ctrl-C, as a shell reports it: 128 and the number of SIGINT. */
export const STATUS_INTERRUPTED = 130;

/** A failure that the user can fix. The command prints `message`. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure';
  /** Exit status of the command, not 0. */
  readonly exitStatus: number;

  constructor(message: string, options: { exitStatus?: number; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.exitStatus = options.exitStatus ?? STATUS_FAILED;
  }
}

/** Results could not be written. Counts as a failure even if the command was interrupted. */
export class WriteFailure extends CommandFailure {
  constructor(file: string, cause: unknown) {
    super(`cannot write ${file}: ${fileFailureText(cause)}`, { cause });
  }
}

/** The reason with which the signal of a command fires. */
export class Interruption extends Error {
  override readonly name = 'Interruption';
  /** SIGPIPE: the reader of the output is gone. Undefined if the process at the other end of a channel has ended. */
  readonly by: NodeJS.Signals | undefined;

  constructor(by?: NodeJS.Signals) {
    super('interrupted');
    this.by = by;
  }
}

export function usageFailure(message: string): CommandFailure {
  return new CommandFailure(message, { exitStatus: STATUS_USAGE });
}

export function oneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, ' ');
}

/** The error message on one line, without a stack; adds a verb's code if the text lacks it. */
export function failureText(error: unknown): string {
  const named = isVerbsError(error) && error.message.includes(error.code);
  // The text of a failed system call already contains its code: `read-only file system (EROFS)`.
  if (isVerbsError(error) && !named && !/\(E[A-Z0-9]+\)/.test(error.message)) {
    return oneLine(`${error.message} (${error.code})`);
  }
  if (error instanceof Error) return oneLine(error.message === '' ? error.name : error.message);
  return oneLine(String(error));
}

/**
 * The reason of a failed file operation: `no such file or directory (ENOENT)`. For messages that name
 * the file themselves; Node's own text would repeat it.
 */
export function fileFailureText(error: unknown): string {
  const text = failureText(error);
  const [, code, reason] = /^(E[A-Z0-9]+): ([^,]+), \w+(?: .*)?$/.exec(text) ?? [];
  return reason === undefined ? text : `${reason} (${code})`;
}

/** The code of a failed system call or verb, if `error` has one. */
export function failureCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** Settles as `work` does, or rejects with the reason of `signal` as soon as it fires. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
