/**
 * Turns for the rest of the program. Completions that are there already are handed out by promises
 * alone; a consumer that never has to wait would keep the event loop from timers and sockets.
 */
import { performance } from 'node:perf_hooks';

/** What completions may take of one turn of the event loop, in milliseconds. */
const SHARE_MS = 1;

let begun: number | undefined;
let turn: Promise<void> | undefined;

/** Starts the clock of this turn with its first call; true once completions had their share. */
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
