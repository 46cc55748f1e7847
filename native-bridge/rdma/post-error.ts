/** Why a post failed. */
import type { ErrnoCode } from '#contract/verbs/errors';
import { receiveRefusal, requestName } from '#contract/verbs/post-refusal';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import { codeOf, NativeError, unsupported } from './errors.ts';
import type { PostOutcome } from './work-request-list.ts';

/** The error for a failed list of receives, on a queue of at most `maxSge` elements. */
export function receivePostError(
  outcome: PostOutcome,
  requests: readonly RecvWR[],
  device: string,
  maxSge: number,
): NativeError {
  return postError(outcome, requests, device, (wr, code) => receiveRefusal(wr, code, maxSge));
}

/** Like `receivePostError`, with the reason that `explain` finds. */
export function postError<T extends SendFields | RecvWR>(
  { code: ours, errno, lacking, posted }: PostOutcome,
  requests: readonly T[],
  device: string,
  explain: (request: T | undefined, code: ErrnoCode) => string,
): NativeError {
  const code = ours ?? codeOf(errno);
  if (code === 'EOPNOTSUPP') return unsupported(device, lacking, posted);
  // The driver rejected requests that passed our checks; it gives only an errno.
  const why =
    ours === undefined && code !== 'ENOMEM'
      ? `the driver of ${device} refused it (${code})`
      : explain(requests[posted], code);
  return new NativeError(
    'refused',
    code,
    `${requestName(posted, requests[posted])}: ${why}`,
    posted,
  );
}
