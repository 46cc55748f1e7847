/** The processes that a process has started, from /proc. */
import { readdirSync, readFileSync } from 'node:fs';

export interface Process {
  readonly pid: number;
  readonly name: string;
  readonly parent: number;
  /** When it started, in ticks: distinguishes it from a later process with its pid. */
  readonly started: string;
}

/** Child processes of `pid` that still run; a zombie does not. */
export function childrenOf(pid: number): Process[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .flatMap((name) => running(Number(name)) ?? [])
    .filter(({ parent }) => parent === pid);
}

export function isRunning({ pid, started }: Process): boolean {
  return running(pid)?.started === started;
}

/** Undefined if the process has ended. */
function running(pid: number): Process | undefined {
  try {
    const [, name = '', rest = ''] =
      /^[0-9]+ \((.*)\) (.*)$/s.exec(readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? [];
    // Fields 3, 4 and 22 of proc(5).
    const fields = rest.split(' ');
    const [state, parent, started = ''] = [fields[0], Number(fields[1]), fields[19]];
    return state === 'Z' ? undefined : { pid, name, parent, started };
  } catch {
    return undefined;
  }
}
