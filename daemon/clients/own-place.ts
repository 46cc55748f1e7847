/** Explains why the daemon could not write the files beside its socket. */
import { VerbsError } from '#contract/verbs/errors';

/** `what` is the failed action, `write` or `create`. The message has the cause and the fix. */
export function placeFailure(what: string, path: string, error: unknown): VerbsError {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new VerbsError(
      'ENOSPC',
      `cannot ${what} ${path}: no space left on its file system; free some space, or choose another directory`,
    );
  }
  return new VerbsError(
    'EACCES',
    `cannot ${what} ${path} (${String(code)}): another user may own the path; choose a socket in a directory of your own with --socket`,
  );
}
