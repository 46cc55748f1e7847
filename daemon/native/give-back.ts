/** Releases native objects. */
import { isVerbsError } from '#contract/verbs/errors';

/**
 * Calls a step of closing a native object. Ignores an error of the device, above all of one that is
 * gone: it could not be acted on. The object is lost, and its owner continues.
 */
export function giveBack(step: () => void): void {
  try {
    step();
  } catch (error) {
    if (!isVerbsError(error)) throw error;
  }
}
