/** The end of the parent process, as a signal. */
import { constants } from 'node:os';
import { libc, type NumberCall } from './libc.ts';

const prctl = libc.func('int prctl(int option, unsigned long argument)') as NumberCall;

const PR_SET_PDEATHSIG = 1;

/**
 * Sends this process SIGTERM when its parent, the process `parent`, ends; at once if it has ended.
 * Call it on the main thread.
 */
export function terminateWithParent(parent: number): void {
  if (prctl(PR_SET_PDEATHSIG, constants.signals.SIGTERM) !== 0) return;
  if (process.ppid !== parent) process.kill(process.pid, 'SIGTERM');
}
