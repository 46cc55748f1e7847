/** Names of processes. */
import { readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';

/** Node 24's name for its first thread, hence for the process of every program that it runs. */
const NODES_THREAD = 'MainThread';
/** Maximum length of a name in the kernel. */
const NAME_MAX = 15;

/**
 * The name of a process (/proc/<pid>/comm), or of its executable if Node has set the former; '' if the
 * process is gone or not visible. Its command line would be more informative, but reading it touches
 * the process's memory, which may not respond.
 */
export function programName(pid: number): string {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
    return name === NODES_THREAD ? executableName(pid, name) : name;
  } catch {
    return '';
  }
}

function executableName(pid: number, otherwise: string): string {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`)).slice(0, NAME_MAX);
  } catch {
    return otherwise;
  }
}
