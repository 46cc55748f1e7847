/** Posts one or several work requests; reports which one was refused, and why. */
import { type ErrnoCode, VerbsError } from '#contract/verbs/errors';
import { requestName } from '#contract/verbs/post-refusal';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';

export interface PostQueue<T> {
  /** Posts one request. Returns undefined if posted, otherwise the error code. */
  post(request: T): ErrnoCode | undefined;
  /** Explains why `post` refused a request with `code`. */
  explain(request: T | undefined, code: ErrnoCode): string;
}

/** Posts each request in order. Throws at the first refusal, with its index in `badIndex`. */
export function postAll<T extends SendFields | RecvWR>(
  requests: T | readonly T[],
  queue: PostQueue<T>,
): void {
  if (!isList(requests)) {
    const refusal = postOne(queue, requests);
    if (refusal !== undefined) throw refused(queue, requests, 0, refusal);
    return;
  }
  for (let index = 0; index < requests.length; index += 1) {
    const request = requests[index];
    const refusal = request === undefined ? 'EINVAL' : postOne(queue, request);
    if (refusal !== undefined) throw refused(queue, request, index, refusal);
  }
}

/** A field of an unusable type, such as a bigint where a number belongs, is invalid. */
function postOne<T>(queue: PostQueue<T>, request: T): ErrnoCode | undefined {
  try {
    return queue.post(request);
  } catch (error) {
    if (error instanceof TypeError) return 'EINVAL';
    throw error;
  }
}

function isList<T extends object>(requests: T | readonly T[]): requests is readonly T[] {
  return Array.isArray(requests);
}

function refused<T extends SendFields | RecvWR>(
  queue: PostQueue<T>,
  request: T | undefined,
  badIndex: number,
  code: ErrnoCode,
): VerbsError {
  const text = `${requestName(badIndex, request)}: ${queue.explain(request, code)}`;
  return new VerbsError(code, text, { badIndex });
}
