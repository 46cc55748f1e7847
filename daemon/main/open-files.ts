/**
 * The limit of open files. Node raises the soft limit to the hard limit at startup, so only the
 * hard limit counts. Imports almost nothing, since it runs before the daemon is loaded, which alone
 * opens more than a hundred files at once.
 */
import { readFileSync } from 'node:fs';

/** Enough for the daemon itself, a reserve for its operators, and some clients. */
export const DESCRIPTORS_MIN = 256;

export function openFilesLimit(): number {
  let limits = '';
  try {
    limits = readFileSync('/proc/self/limits', 'latin1');
  } catch {
    // Unknown without /proc; the daemon will find out.
  }
  const value = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return value === undefined ? Number.POSITIVE_INFINITY : Number(value);
}

/** The error message when the limit is too low to start. */
export function openFilesRefusal(limit: number): string {
  return `cannot start: the limit of open files is ${limit}, and the daemon needs ${DESCRIPTORS_MIN}; raise it with ulimit -n 65536`;
}
