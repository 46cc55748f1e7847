/** Groups refusals by program. */
import type { Refusal } from '#contract/protocol/refusals';

/** One program's refusals. */
export interface RefusalGroup {
  readonly pid: number;
  readonly program: string;
  /** The last one first. */
  readonly refusals: readonly Refusal[];
  /** Number of refusals; repeats count. */
  readonly times: number;
}

/** Identifies a group: a program may execute another one in the same process. */
export function groupKey({ pid, program }: Pick<RefusalGroup, 'pid' | 'program'>): string {
  return `${pid} ${program}`;
}

/** The groups; the one with the latest refusal is first. `refusals` are oldest first. */
export function refusalGroups(refusals: readonly Refusal[]): RefusalGroup[] {
  const groups = new Map<string, Refusal[]>();
  for (const refusal of refusals.toReversed()) {
    const key = groupKey(refusal);
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [refusal]);
    else known.push(refusal);
  }
  return [...groups.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    const times = all.reduce((sum, { times: often }) => sum + often, 0);
    return { pid: first.pid, program: first.program, refusals: all, times };
  });
}
