/** Why the daemon could not write what it keeps beside its socket. */
import { VerbsError } from '#contract/verbs/errors';

/** `what` the daemon tried, `write` or `create`, and the cause with its fix. */
export function placeFailure(what: string, path: string, error: unknown): VerbsError {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new VerbsError(
      'ENOSPC',
      `cannot ${what} ${path}: no space left on its file system; free some, or choose another directory`,
    );
  }
  return new VerbsError(
    'EACCES',
    `cannot ${what} ${path} (${String(code)}): another user may own what is there; choose a socket in a directory of your own with --socket`,
  );
}
