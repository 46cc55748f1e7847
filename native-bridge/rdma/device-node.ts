/** Device nodes, as far as it matters why one does not open. */
import { accessSync, constants } from 'node:fs';
import { callFailure, type NativeError } from './errors.ts';

/**
 * What a failed `call` that opens the node `name` says. The libraries look for a node in several
 * places and report the last; what is wrong with the usual one comes first.
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
    // A node that is not there says no more than the library does.
    if (known && !('code' in error && error.code === 'ENOENT')) {
      return callFailure(call, `${subject} (${node})`, Number(error.errno));
    }
  }
  return callFailure(call, `${subject} (${name})`, errno);
}
