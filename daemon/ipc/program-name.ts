/** Names of processes. */
import { readFileSync } from 'node:fs';

/** The name of a process (/proc/<pid>/comm); '' if it is gone or not visible from here. */
export function programName(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}
