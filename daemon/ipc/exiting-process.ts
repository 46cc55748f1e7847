/** Whether a process is on its way out: its memory ends before its descriptors do. */
import { readFileSync } from 'node:fs';

/** True if the process has no memory any more. False where that cannot be seen. */
export function isExiting(pid: number): boolean {
  if (pid === 0) return false;
  try {
    return readFileSync(`/proc/${pid}/statm`, 'latin1').startsWith('0 ');
  } catch {
    return false;
  }
}
