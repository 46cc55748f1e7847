/**
 * Guests take turns. They share nothing but the processors (each has its own ports, folders and
 * networks), and an emulated machine keeps one busy. With priority over the suites beside them,
 * there may be as many guests as processors. Without it, a guest's clock advances while its
 * programs wait, so siw and librdmacm time out connections.
 */
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { tryLock } from '#native-bridge/libc/file-lock';
import { quiet, until } from '#test/support/patience';

const LOOK_INTERVAL_MS = 200;

/** Permission to run a guest; ends when it is closed, or with its process. */
export type GuestSlot = Pick<FileHandle, 'close'>;

/** True if a guest may have priority over other processes: see `firstOnItsProcessor`. */
export function guestsComeFirst(): boolean {
  return process.geteuid?.() === 0;
}

/** Maximum concurrent guests of this user: one for each processor, or for two without priority. */
export function guestsAtOnce(
  processors = availableParallelism(),
  first = guestsComeFirst(),
): number {
  return first ? processors : Math.max(1, Math.floor(processors / 2));
}

/**
 * Waits for permission to run a guest; `directory` has the locks of all participants. Rejects after
 * `patience(idleMs)`.
 */
export async function takeGuestSlot(
  directory: string,
  idleMs: number,
  slots: number = guestsAtOnce(),
): Promise<GuestSlot> {
  await mkdir(directory, { recursive: true });
  const turn = async (): Promise<GuestSlot | undefined> => {
    for (let slot = 0; slot < slots; slot++) {
      const file = await open(join(directory, `guest-${slot}.lock`), 'a');
      if (tryLock(file.fd)) return file;
      await file.close();
    }
    await quiet(LOOK_INTERVAL_MS);
    return undefined;
  };
  return await until('the end of the other guests of this user', turn, idleMs);
}
