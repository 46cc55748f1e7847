/** Posting one or several work requests: what was refused, and at which index. */
import { type ErrnoCode, VerbsError } from '../contract/errors.ts';

/** Calls `post` for each request in order; throws at the first refusal, with its index. */
export function postAll<T extends object>(
  requests: T | readonly T[],
  post: (request: T) => ErrnoCode | undefined,
): void {
  if (!isList(requests)) {
    const refusal = post(requests);
    if (refusal !== undefined) throw refused(refusal, 0);
    return;
  }
  for (let index = 0; index < requests.length; index += 1) {
    const request = requests[index];
    const refusal = request === undefined ? 'EINVAL' : post(request);
    if (refusal !== undefined) throw refused(refusal, index);
  }
}

function isList<T extends object>(requests: T | readonly T[]): requests is readonly T[] {
  return Array.isArray(requests);
}

function refused(code: ErrnoCode, badIndex: number): VerbsError {
  const text = code === 'ENOMEM' ? 'the queue is full' : 'malformed work request';
  return new VerbsError(code, `${text} (request ${badIndex})`, { badIndex });
}
