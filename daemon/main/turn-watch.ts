/**
 * Measures each turn of the event loop, for tests: no input may make a turn so long that other clients
 * wait. It measures processor time of the thread, so a busy machine does not matter. It costs some
 * microseconds for each callback, so a daemon watches only if the environment asks for it.
 */
import { createHook, executionAsyncResource } from 'node:async_hooks';
import { appendFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { threadTimeMs } from '../../native-bridge/libc/scheduling.ts';
import { noteWork, turnNote } from '../host/turn-note.ts';

/**
 * A turn that takes more processor time is a fault. One user, one peer address and one queue pair may each
 * take some milliseconds of a turn; the rest is for garbage collection and for code that runs for the
 * first time.
 */
export const TURN_MAX_MS = 150;
/** Names the file to which a daemon appends a line for each turn that took longer. */
export const TURN_WATCH_VARIABLE = 'IWARPD_TURN_WATCH';

/** Calls `onLong` with each turn that took too long, and what took longest in it. */
export class TurnWatch {
  readonly #onLong: (text: string) => void;
  #loop = -1;
  #begunMs = 0;
  /** The callback that runs: its start and kind. */
  #pieceMs = 0;
  #kind = '';
  #longestMs = 0;
  #longest = '';

  constructor(onLong: (text: string) => void) {
    this.#onLong = onLong;
  }

  /** A callback of this kind starts, in this turn of the loop, at this processor time. */
  begin(loop: number, kind: string, nowMs: number): void {
    const tookMs = nowMs - this.#pieceMs;
    if (tookMs > this.#longestMs) {
      this.#longestMs = tookMs;
      const { what, number } = turnNote;
      this.#longest = what === '' ? this.#kind : `${this.#kind}, ${what} ${number}`;
    }
    if (loop !== this.#loop) this.#judge(loop, nowMs);
    this.#pieceMs = nowMs;
    this.#kind = kind;
    noteWork('');
  }

  #judge(loop: number, nowMs: number): void {
    const turnMs = nowMs - this.#begunMs;
    if (this.#loop >= 0 && turnMs > TURN_MAX_MS) {
      const [turn, longest] = [turnMs, this.#longestMs].map((ms) => ms.toFixed(1));
      this.#onLong(`a turn of ${turn} ms, of which ${longest} ms: ${this.#longest}`);
    }
    this.#loop = loop;
    this.#begunMs = nowMs;
    this.#longestMs = 0;
  }
}

/** Watches this process from now on, if the environment asks for it. */
export function watchTurns(): void {
  const path = process.env[TURN_WATCH_VARIABLE];
  if (path === undefined) return;
  const watch = new TurnWatch((text) => appendFileSync(path, `${process.pid}: ${text}\n`));
  createHook({
    before: () => {
      const { loopCount } = performance.nodeTiming.uvMetricsInfo;
      watch.begin(loopCount, executionAsyncResource().constructor.name, threadTimeMs());
    },
  }).enable();
}
