/** The only place where a refusal becomes an errno for C, and is recorded with its reason. */
import { isVerbsError } from '#contract/verbs/errors';
import type { Refusals } from '#daemon/refusals/refusals';
import { inC } from './c-spelling.ts';
import { type KernelCaller, type KernelFile, type KernelReply, refusal } from './kernel-file.ts';
import type { ShimRequest } from './shim-protocol.ts';

/**
 * Executes a request. A `VerbsError` becomes the reply; any other error is a broken invariant and
 * stops the daemon.
 */
export function executeOn(
  file: KernelFile,
  request: ShimRequest,
  caller: KernelCaller,
  refusals: Refusals,
): KernelReply {
  let reply: KernelReply;
  try {
    reply = file.execute(request, caller);
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    reply = refusal(error.code, error.message);
  }
  const { refused } = reply;
  // EAGAIN refuses nothing: no event is pending.
  if (refused === undefined || refused.code === 'EAGAIN') return reply;
  const { pid, uid } = caller.credentials;
  const { program } = file.client;
  const { api, verb, step, device, objects } = file.describe(request);
  refusals.record({
    pid,
    uid,
    program,
    api,
    verb,
    ...(step === undefined ? {} : { step }),
    code: refused.code,
    sentence: inC(withoutStep(refused.sentence, step)),
    ...(device === undefined ? {} : { device }),
    ...(objects === undefined ? {} : { objects }),
  });
  return reply;
}

/** Removes a step at the start of a sentence that the errno's text repeats. */
function withoutStep(sentence: string, step: string | undefined): string {
  const said = step !== undefined && sentence.startsWith(`${step} `);
  return said ? sentence.slice(step.length + 1) : sentence;
}
