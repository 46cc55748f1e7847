/**
 * Kills a process whose memory never responds. A copy from or to another process's memory blocks this
 * thread, uninterruptibly, until the page arrives. A page may be under a userfaultfd that no process
 * serves, so one such process would block the whole daemon.
 *
 * The copying thread records in shared memory which process it copies from or to. A second thread
 * checks at intervals, and kills the process if the same copy is in progress for too many checks.
 * That releases the userfaultfd, and the copy returns. Checks are counted instead of time, because
 * nothing is checked while all threads are stopped or the machine sleeps.
 *
 * Memory known in advance to be slow never gets here: see `slow-memory.ts`.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

/** The words that both threads share, by index of an Int32Array. */
export const GuardWord = {
  /** Incremented at every entry and exit: odd while a copy is in progress. */
  turn: 0,
  /** The pidfd of the process, and its pid for messages. */
  descriptor: 1,
  pid: 2,
  /** Never notified: the guard sleeps on it. */
  sleep: 3,
  /** Set to 1 once the second thread has loaded its library, or failed to. */
  settled: 4,
  /** The pid of the last process killed, set before the kill. */
  killed: 5,
  words: 6,
} as const;

export interface GuardData {
  readonly words: SharedArrayBuffer;
  readonly intervalMs: number;
  readonly looks: number;
}

/** Interval of checks; one costs a microsecond. */
const INTERVAL_MS = 250;
/** Checks that find the same copy: two seconds, longer than a page takes on a slow disk. */
const LOOKS = 8;

/** Longest time an exiting process waits for a second thread that is still starting. */
const SETTLE_LIMIT_MS = 5_000;

/** Time limit for a process's memory, in milliseconds. */
export const STALL_LIMIT_MS = INTERVAL_MS * LOOKS;

/** Paths of the compiled worker; run from the sources, it is in dist. */
const WORKERS = [
  '../../native-bridge/libc/copy-guard-worker.js',
  '../../dist/native-bridge/libc/copy-guard-worker.js',
];

/** The guard of this thread; starts the second thread when first needed. */
class CopyGuard {
  /** Called in a later turn with each process killed because its memory did not respond. */
  readonly onEnded = new Set<(pid: number) => void>();
  readonly #words = new Int32Array(
    new SharedArrayBuffer(GuardWord.words * Int32Array.BYTES_PER_ELEMENT),
  );
  #started = false;

  start(): void {
    if (this.#started) return;
    this.#started = true;
    const path = WORKERS.map((each) => fileURLToPath(new URL(each, import.meta.url))).find(
      existsSync,
    );
    if (path === undefined) return;
    const words = this.#words.buffer as SharedArrayBuffer;
    const workerData: GuardData = { words, intervalMs: INTERVAL_MS, looks: LOOKS };
    // It needs little memory; the default would reserve as much as for a whole program.
    const resourceLimits = {
      maxOldGenerationSizeMb: 16,
      maxYoungGenerationSizeMb: 2,
      stackSizeMb: 1,
    };
    const worker = new Worker(path, { workerData, resourceLimits, env: {}, execArgv: [] });
    worker.on('message', (pid: number) => {
      for (const hear of this.onEnded) hear(pid);
    });
    // Without the worker, everything except the guard works.
    worker.on('error', () => Atomics.store(this.#words, GuardWord.settled, 1));
    worker.unref();
    // If Node ends a thread while it loads koffi, the process aborts: koffi's initialisation cannot
    // throw the exception that ends the thread.
    process.once('exit', () => Atomics.wait(this.#words, GuardWord.settled, 0, SETTLE_LIMIT_MS));
  }

  /** A copy to or from the process of this pidfd starts; `leave` must follow in the same turn. */
  enter(descriptor: number, pid: number): void {
    const words = this.#words;
    words[GuardWord.descriptor] = descriptor;
    words[GuardWord.pid] = pid;
    words[GuardWord.turn] = (words[GuardWord.turn] ?? 0) + 1;
  }

  leave(): void {
    this.#words[GuardWord.turn] = (this.#words[GuardWord.turn] ?? 0) + 1;
  }

  /** This process was killed for another reason: its memory does not respond to others. */
  noteKilled(pid: number): void {
    Atomics.store(this.#words, GuardWord.killed, pid);
    for (const hear of this.onEnded) hear(pid);
  }

  /** True, once, if this process was the last one killed. */
  takeKilled(pid: number): boolean {
    return pid !== 0 && Atomics.compareExchange(this.#words, GuardWord.killed, pid, 0) === pid;
  }
}

/** The guard of this thread's copies. */
export const copyGuard = new CopyGuard();
