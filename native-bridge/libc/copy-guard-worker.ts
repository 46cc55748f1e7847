/** The second thread of `copy-guard.ts`: checks, and kills. It does nothing that could block. */
import { parentPort, workerData } from 'node:worker_threads';
import { type GuardData, GuardWord } from './copy-guard.ts';
import { libc, type NumberCall } from './libc.ts';

const syscall = libc.func(
  'int64_t syscall(int64_t number, int64_t a, int64_t b, int64_t c, int64_t d)',
) as NumberCall;

const SYS_PIDFD_SEND_SIGNAL = 424;
const SIGKILL = 9;

const { words: buffer, intervalMs, looks } = workerData as GuardData;
const words = new Int32Array(buffer);
Atomics.store(words, GuardWord.settled, 1);
Atomics.notify(words, GuardWord.settled);
let lastTurn = 0;
let seen = 0;
for (;;) {
  Atomics.wait(words, GuardWord.sleep, 0, intervalMs);
  const turn = Atomics.load(words, GuardWord.turn);
  const copying = (turn & 1) !== 0;
  seen = copying && turn === lastTurn ? seen + 1 : 0;
  lastTurn = turn;
  if (seen < looks) continue;
  seen = 0;
  const descriptor = Atomics.load(words, GuardWord.descriptor);
  const pid = Atomics.load(words, GuardWord.pid);
  // Ignore a later copy.
  if (Atomics.load(words, GuardWord.turn) !== turn) continue;
  // Before the kill, since the copy returns when the process ends.
  Atomics.store(words, GuardWord.killed, pid);
  if (syscall(SYS_PIDFD_SEND_SIGNAL, descriptor, SIGKILL, 0, 0) === 0) parentPort?.postMessage(pid);
}
