/** Giving native objects back. */
import { isVerbsError } from '../../verbs-api/contract/errors.ts';

/**
 * Calls a step of taking a native object down. What the device refuses then, most of all one that is
 * gone, is nothing that anybody could mend: the object is lost, and its owner goes on.
 */
export function giveBack(step: () => void): void {
  try {
    step();
  } catch (error) {
    if (!isVerbsError(error)) throw error;
  }
}
