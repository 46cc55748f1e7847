/** Where the threads of a process are that does not end, for the report of a test. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { childrenOf } from './child-processes.ts';
import { patience } from './patience.ts';

/** Time limit of the debugger for one process, and the lines that it may print. */
const DEBUGGER_MS = 30_000;
const LINES_MAX = 400;

/** The stacks of a process and of its children, by gdb; without gdb, only what they are. */
export function processStacks(pid: number): string {
  return [pid, ...childrenOf(pid).map((child) => child.pid)].map(stacksOf).join('\n');
}

function stacksOf(pid: number): string {
  const words = ['-p', String(pid), '-batch', '-ex', 'thread apply all backtrace 16'];
  const { stdout } = spawnSync('gdb', words, { encoding: 'utf8', timeout: patience(DEBUGGER_MS) });
  const lines = (stdout ?? 'no gdb').split('\n').filter((line) => !line.startsWith('[New LWP'));
  return [`process ${pid}: ${fileOf(pid, 'cmdline').replaceAll('\0', ' ')}`, ...lines]
    .slice(0, LINES_MAX)
    .join('\n');
}

/** Empty if the process has ended. */
function fileOf(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1');
  } catch {
    return '';
  }
}
