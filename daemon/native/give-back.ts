/** Releases native objects. */
import { isVerbsError } from '#contract/verbs/errors';

/**
 * Calls a step of closing a native object. Ignores errors of the device, mainly of a device that is
 * gone: nothing could be done about them. The object is lost, and its owner continues.
 */
export function giveBack(step: () => void): void {
  try {
    step();
  } catch (error) {
    if (!isVerbsError(error)) throw error;
  }
}
