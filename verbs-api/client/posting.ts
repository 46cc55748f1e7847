/** Posting one or several work requests: what was refused, and at which index. */
import { type ErrnoCode, VerbsError } from '../contract/errors.ts';

/**
 * Calls `post` for each request in order; throws at the first refusal, with its index. `device` is
 * the name of the device, for the text.
 */
export function postAll<T extends object>(
  requests: T | readonly T[],
  post: (request: T) => ErrnoCode | undefined,
  device: string,
): void {
  if (!isList(requests)) {
    const refusal = post(requests);
    if (refusal !== undefined) throw refused(refusal, 0, device);
    return;
  }
  for (let index = 0; index < requests.length; index += 1) {
    const request = requests[index];
    const refusal = request === undefined ? 'EINVAL' : post(request);
    if (refusal !== undefined) throw refused(refusal, index, device);
  }
}

function isList<T extends object>(requests: T | readonly T[]): requests is readonly T[] {
  return Array.isArray(requests);
}

function refused(code: ErrnoCode, badIndex: number, device: string): VerbsError {
  return new VerbsError(code, `${refusalText(code, device)} (request ${badIndex})`, { badIndex });
}

function refusalText(code: ErrnoCode, device: string): string {
  if (code === 'ENOMEM') return 'the queue is full';
  return code === 'EOPNOTSUPP' ? `${device} has no such operation` : 'malformed work request';
}
