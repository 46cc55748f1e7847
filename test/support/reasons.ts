/** Checks that every refusal in a test or a fuzzer has a reason that says more than its errno. */
import { ERRNO, type ErrnoCode } from '#contract/verbs/errors';
import type { KernelReply } from '#daemon/kernel/kernel-file';

/** Minimum of words in a sentence: what was refused, and why. */
const WORDS_MIN = 3;

/** Throws if the sentence of a refusal adds nothing to its code. */
export function assertReason(code: ErrnoCode, sentence: string): void {
  const words = sentence.match(/[\p{L}\d_]+/gu)?.length ?? 0;
  if (words < WORDS_MIN || sentence === ERRNO[code].text) {
    throw new Error(`refused with ${code} without a reason of its own: "${sentence}"`);
  }
}

/** Throws for a reply that refuses without a reason. EAGAIN refuses nothing. */
export function assertReplyReason({ status, refused }: KernelReply): void {
  if (status >= 0 || status === -ERRNO.EAGAIN.number) return;
  if (refused === undefined) throw new Error(`refused with status ${status} and no reason`);
  assertReason(refused.code, refused.sentence);
}
