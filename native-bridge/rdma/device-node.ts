/** Device nodes: why one does not open. */
import { accessSync, constants } from 'node:fs';
import { callFailure, type NativeError } from './errors.ts';

/**
 * The error for a failed `call` that opens the node `name`. The libraries look for a node in several
 * places and report the last; a problem with the usual one takes precedence.
 */
export function nodeFailure(
  call: string,
  subject: string,
  name: string,
  errno: number,
): NativeError {
  const node = `/dev/infiniband/${name}`;
  try {
    accessSync(node, constants.R_OK | constants.W_OK);
  } catch (error) {
    const known = error instanceof Error && 'errno' in error && typeof error.errno === 'number';
    // A missing node adds nothing to the library's own error.
    if (known && !('code' in error && error.code === 'ENOENT')) {
      return callFailure(call, `${subject} (${node})`, Number(error.errno));
    }
  }
  return callFailure(call, `${subject} (${name})`, errno);
}
