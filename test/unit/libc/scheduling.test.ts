import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { requestShortSlices } from '#native-bridge/libc/scheduling';

/** Nice value, as the kernel reports it. */
function niceOf(stat: string): number {
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]);
}

describe('a thread that requests short slices', () => {
  it('keeps its nice value, and so do its children', () => {
    const before = niceOf(readFileSync('/proc/thread-self/stat', 'utf8'));
    expect(requestShortSlices()).toBe(true);
    expect(niceOf(readFileSync('/proc/thread-self/stat', 'utf8'))).toBe(before);
    const { stdout } = spawnSync('cat', ['/proc/self/stat'], { encoding: 'utf8' });
    expect(niceOf(stdout)).toBe(before);
  });

  it('may request again', () => {
    expect(requestShortSlices()).toBe(true);
    expect(requestShortSlices()).toBe(true);
  });
});
