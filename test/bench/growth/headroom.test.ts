import { describe, expect, it } from 'vitest';
import {
  availableBytes,
  availableBytesOf,
  fileLimitOf,
  residentBytesOf,
  type Sample,
  sampleOf,
  shortage,
} from '#test/bench/growth/headroom';

const MIB = 1 << 20;

/** A sample of one daemon, which has a descriptor and `each` bytes per unit of `size`. */
function sample(size: number, each = 1024): Sample {
  const usage = { name: 'd', files: 20 + size, filesMax: 1000, residentBytes: MIB + size * each };
  return { size, usage: [usage] };
}

describe('the headroom of a series', () => {
  it('is enough until two steps have shown the cost of a unit', () => {
    expect(shortage(1e9, [], 1)).toBeUndefined();
    expect(shortage(1e9, [sample(0)], 1)).toBeUndefined();
  });

  it('ends at the descriptor limit of a process, and names process and number', () => {
    const samples = [sample(0), sample(10), sample(100)];
    expect(shortage(916, samples, Number.MAX_SAFE_INTEGER)).toBeUndefined();
    expect(shortage(917, samples, Number.MAX_SAFE_INTEGER)).toBe(
      'In the first of them, d would need about 1,001 descriptors, and may have 1,000; raise the limit (ulimit -n)',
    );
  });

  it('ends at half of the available memory', () => {
    const samples = [sample(10, MIB), sample(20, MIB)];
    expect(shortage(120, samples, 200 * MIB)).toBeUndefined();
    expect(shortage(121, samples, 200 * MIB)).toMatch(/about 101 MiB more, .* is 100 MiB$/);
  });

  it('does not shrink if a process returned memory', () => {
    const less = sample(20, MIB);
    const [now] = sample(10, MIB).usage;
    if (now === undefined) throw new Error('no usage');
    const samples = [{ size: 10, usage: [{ ...now, residentBytes: 900 * MIB }] }, less];
    expect(shortage(500, samples, 1)).toBeUndefined();
  });

  it('is read from the kernel', () => {
    expect(fileLimitOf('Max open files            20000      30000      files\n')).toBe(20_000);
    expect(fileLimitOf('Max open files            unlimited  unlimited  files\n')).toBe(
      Number.POSITIVE_INFINITY,
    );
    expect(residentBytesOf('VmHWM:\t 9 kB\nVmRSS:\t   2048 kB\n')).toBe(2 * MIB);
    expect(availableBytesOf('MemFree: 1 kB\nMemAvailable:    4 kB\n')).toBe(4096);
    expect(availableBytesOf('')).toBe(0);
    expect(availableBytes()).toBeGreaterThan(MIB);
    const { usage } = sampleOf(3, [{ name: 'this', pid: process.pid }]);
    expect(usage[0]?.files).toBeGreaterThan(2);
    expect(usage[0]?.filesMax).toBeGreaterThan(usage[0]?.files ?? 0);
    expect(usage[0]?.residentBytes).toBeGreaterThan(MIB);
  });
});
