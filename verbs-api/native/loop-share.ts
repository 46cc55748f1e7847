/**
 * Keeps the event loop available to the rest of the program. Promises alone deliver completions
 * that are already in the queue; a consumer that never has to wait would starve timers and sockets.
 */
import { performance } from 'node:perf_hooks';

/** Maximum time for completions per turn of the event loop, in milliseconds. */
const SHARE_MS = 1;

let begun: number | undefined;
let turn: Promise<void> | undefined;

/** The first call of a turn starts its clock; true once completions have used their share. */
export function shareIsSpent(): boolean {
  const now = performance.now();
  if (begun === undefined) {
    begun = now;
    setImmediate(() => {
      begun = undefined;
    });
  }
  return now - begun > SHARE_MS;
}

/** Resolves in the next turn of the event loop. */
export function nextTurn(): Promise<void> {
  turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  });
  return turn;
}
