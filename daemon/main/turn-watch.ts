/**
 * Measures each turn of the event loop, for tests: no input may make a turn so long that other clients
 * wait. Measures the thread's processor time, so a busy machine does not matter. It costs some
 * microseconds per callback, so a daemon watches only if the environment asks for it.
 */
import { createHook, executionAsyncResource } from 'node:async_hooks';
import { appendFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { threadTimeMs } from '#native-bridge/libc/scheduling';
import { workListeners } from '../host/turn-note.ts';

/**
 * Longest permitted processor time of a turn. One user, one peer address and one queue pair may each
 * take some milliseconds of a turn; the rest is for garbage collection and for code that runs for the
 * first time.
 */
export const TURN_MAX_MS = 150;
/** Names the file to which a daemon appends a line for each turn that took longer. */
export const TURN_WATCH_VARIABLE = 'IWARPD_TURN_WATCH';

/** Finds the piece of work that took longest. */
export class LongestWork {
  #sinceMs: number;
  #name = '';
  #longestMs = 0;
  #longest = '';

  /** Nothing is running at this time. */
  constructor(nowMs: number) {
    this.#sinceMs = nowMs;
  }

  /** A piece of this name starts; the previous one ends. */
  begin(name: string, nowMs: number): void {
    this.end(nowMs);
    this.#name = name;
  }

  /** Ends the running piece. Returns name and time of the longest one. */
  end(nowMs: number): { readonly longest: string; readonly longestMs: number } {
    const tookMs = nowMs - this.#sinceMs;
    if (tookMs > this.#longestMs) {
      this.#longestMs = tookMs;
      this.#longest = this.#name;
    }
    this.#sinceMs = nowMs;
    return { longest: this.#longest, longestMs: this.#longestMs };
  }
}

/** Calls `onLong` with each turn that took too long, and its longest piece of work. */
export class TurnWatch {
  readonly #onLong: (text: string) => void;
  #loop = -1;
  #begunMs = 0;
  /** Kind of the running callback. */
  #kind = '';
  #work = new LongestWork(0);

  constructor(onLong: (text: string) => void) {
    this.#onLong = onLong;
  }

  /** A callback of this kind starts in turn `loop`, at this processor time. */
  begin(loop: number, kind: string, nowMs: number): void {
    if (loop !== this.#loop) this.#judge(loop, nowMs);
    this.#kind = kind;
    this.#work.begin(kind, nowMs);
  }

  /** A piece of work starts within the callback. */
  beginWork(what: string, number: number, nowMs: number): void {
    this.#work.begin(`${this.#kind}, ${what} ${number}`, nowMs);
  }

  #judge(loop: number, nowMs: number): void {
    const turnMs = nowMs - this.#begunMs;
    const { longest, longestMs } = this.#work.end(nowMs);
    if (this.#loop >= 0 && turnMs > TURN_MAX_MS) {
      const [turn, most] = [turnMs, longestMs].map((ms) => ms.toFixed(1));
      this.#onLong(`a turn of ${turn} ms, of which ${most} ms: ${longest}`);
    }
    this.#loop = loop;
    this.#begunMs = nowMs;
    this.#work = new LongestWork(nowMs);
  }
}

/** Fields in which resources of `node:timers` and `process.nextTick` store their callback. */
const CALLED = ['_onImmediate', '_onTimeout', 'callback'] as const;

/** The kind of callback of `resource`, with the name of the function if it has one. */
export function callbackName(resource: object): string {
  // Only the objects of process.nextTick() have no class.
  const kind = resource.constructor === Object ? 'nextTick' : resource.constructor.name;
  const called = CALLED.map((key) => Reflect.get(resource, key)).find(
    (each) => each instanceof Function,
  );
  return called === undefined || called.name === '' ? kind : `${kind} ${called.name}`;
}

/** Starts watching this process, if the environment asks for it. */
export function watchTurns(): void {
  const path = process.env[TURN_WATCH_VARIABLE];
  if (path === undefined) return;
  const watch = new TurnWatch((text) => appendFileSync(path, `${process.pid}: ${text}\n`));
  workListeners.onWork = (what, number) => watch.beginWork(what, number, threadTimeMs());
  createHook({
    before: () => {
      const { loopCount } = performance.nodeTiming.uvMetricsInfo;
      watch.begin(loopCount, callbackName(executionAsyncResource()), threadTimeMs());
    },
  }).enable();
}
