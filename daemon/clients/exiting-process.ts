/** Whether a process is exiting: it loses its memory before its descriptors. */
import { readFileSync } from 'node:fs';

/** True if the process has no memory. False if that cannot be determined. */
export function isExiting(pid: number): boolean {
  if (pid === 0) return false;
  try {
    return readFileSync(`/proc/${pid}/statm`, 'latin1').startsWith('0 ');
  } catch {
    return false;
  }
}
