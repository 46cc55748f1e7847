/**
 * Guests take turns. They share nothing (each has its own ports, folders and networks) except the
 * processors: an emulated machine keeps one busy, and beside it run a daemon
 * and programs of the host. With as many guests as processors the clocks in a guest run on while
 * its programs do not, and siw and librdmacm time out connections.
 */
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock } from '../../../native-bridge/libc/file-lock.ts';

const LOOK_INTERVAL_MS = 200;

/** The right to run a guest; it is given back when it is closed, or its process ends. */
export type GuestSlot = Pick<FileHandle, 'close'>;

/** Guests of this user that may run at once: one for two processors. */
export function guestsAtOnce(processors: number = availableParallelism()): number {
  return Math.max(1, Math.floor(processors / 2));
}

/**
 * Waits for the right to run a guest; `directory` has the locks of all participants. Rejects after
 * `limitMs`.
 */
export async function takeGuestSlot(
  directory: string,
  limitMs: number,
  slots: number = guestsAtOnce(),
): Promise<GuestSlot> {
  await mkdir(directory, { recursive: true });
  const deadline = performance.now() + limitMs;
  for (;;) {
    for (let slot = 0; slot < slots; slot++) {
      const file = await open(join(directory, `guest-${slot}.lock`), 'a');
      if (tryLock(file.fd)) return file;
      await file.close();
    }
    if (performance.now() > deadline) {
      const seconds = Math.round(limitMs / 1000);
      throw new Error(`other guests of this user have been running for ${seconds} s`);
    }
    await sleep(LOOK_INTERVAL_MS);
  }
}
