/** Summarises CPU profiles that Node wrote for the daemons. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tableLines } from '#daemon/console/output';

const LINES_MAX = 25;

interface ProfileNode {
  readonly id: number;
  readonly callFrame: {
    readonly functionName: string;
    readonly url: string;
    readonly lineNumber: number;
  };
}

/** The fields used of a V8 CPU profile. */
interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  /** For each sample: the node that ran, and microseconds since the previous sample. */
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Tables of the functions with the most self time, one for each profile in `folder`. */
export function profileLines(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.cpuprofile'))
    .sort()
    .flatMap((name) => {
      const profile: CpuProfile = JSON.parse(readFileSync(join(folder, name), 'utf8'));
      return ['', `${join(folder, name)}:`, ...tableLines(profileRows(profile))];
    });
}

/** Share of the busy time, function and place, the largest first. */
export function profileRows(profile: CpuProfile): string[][] {
  const places = new Map(profile.nodes.map((node) => [node.id, placeOf(node)]));
  const times = new Map<string, number>();
  let busy = 0;
  profile.samples.forEach((id, index) => {
    const place = places.get(id) ?? 'unknown';
    if (place.startsWith('(idle)')) return;
    const time = profile.timeDeltas[index] ?? 0;
    busy += time;
    times.set(place, (times.get(place) ?? 0) + time);
  });
  return [...times]
    .sort(([, left], [, right]) => right - left)
    .slice(0, LINES_MAX)
    .map(([place, time]) => [`${((100 * time) / busy).toFixed(1).padStart(5)} %`, place]);
}

function placeOf({ callFrame }: ProfileNode): string {
  const { functionName, url, lineNumber } = callFrame;
  const file = url.replace(/^.*\/(?=[^/]*\/[^/]*$)/, '');
  return `${functionName === '' ? '(anonymous)' : functionName}${file === '' ? '' : `  ${file}:${lineNumber + 1}`}`;
}
