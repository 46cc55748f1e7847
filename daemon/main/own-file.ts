/**
 * Files of the daemon next to its socket. Other users may also write to the directory, such as
 * /tmp: their files are never followed, written or read.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { placeFailure } from '../clients/own-place.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;

/**
 * Writes a file atomically, replacing an earlier one of this user. Throws `VerbsError` EACCES if
 * another user's file has its name, ENOSPC if the file system is full.
 */
export function writeOwnFile(path: string, text: string, mode: number): void {
  const fresh = `${path}.new`;
  try {
    rmSync(fresh, { force: true });
    const fd = openSync(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    try {
      // Regardless of the umask.
      fchmodSync(fd, mode);
      writeFileSync(fd, text);
    } finally {
      closeSync(fd);
    }
    // Replaces a symbolic link instead of following it.
    renameSync(fresh, path);
  } catch (error) {
    removeOwnFile(fresh);
    throw placeFailure('write', path, error);
  }
}

/** Removes a file, unless it is missing or belongs to another user. */
export function removeOwnFile(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // Not ours, so we did not write it.
  }
}
