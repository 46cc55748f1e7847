import { describe, expect, it } from 'vitest';
import { reportLines, selectMeasurements, summarise } from '../../../daemon/bench/bench-run.ts';
import { MEASUREMENTS } from '../../../daemon/bench/measurements.ts';
import { figuresOf } from '../../../daemon/bench/program-pair.ts';
import { median, readable } from '../../../daemon/bench/statistics.ts';

const REPORT = {
  format: 1,
  emulated: true,
  node: 'v20.0.0',
  kernel: '6.1',
  cpu: 'cpu',
  cores: 2,
  crcEngine: 'native',
  loadBefore: 0.25,
  rounds: 3,
  unmeasured: [{ name: 'run-x', missing: 'there is no x' }],
} as const;

describe('numbers', () => {
  it('finds the median of odd and even counts', () => {
    expect(median([5])).toBe(5);
    expect(median([9, 1, 5])).toBe(5);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(() => median([])).toThrow(RangeError);
  });

  it('prints three digits, and thousands apart', () => {
    expect(readable(1234567.8)).toBe('1,234,568');
    expect(readable(12.345)).toBe('12.3');
    expect(readable(1.2345)).toBe('1.23');
    expect(readable(999.6)).toBe('1,000');
  });
});

describe('a measurement', () => {
  const run = async () => 0;
  const faster = {
    name: 'm',
    title: 'M',
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit: 0.7, aim: 0.9 },
    baselines: [{ title: 'raw', run }],
    run,
  } as const;

  it('compares with the first baseline, round by round', () => {
    const result = summarise(faster, [70, 71, 200], [[100, 90, 110]]);
    expect(result.measured.median).toBe(71);
    expect(result.baselines[0]?.median).toBe(100);
    expect(result.baselines[0]?.ratio).toBeCloseTo(71 / 90);
    expect(result.met).toBe(true);
    expect(summarise(faster, [69], [[100]]).met).toBe(false);
  });

  it('judges an absolute value by itself, lower being better where the row is marked so', () => {
    const idle = { ...faster, better: 'lower', target: { kind: 'value', limit: 64 } } as const;
    expect(summarise(idle, [64], [[1]]).met).toBe(true);
    expect(summarise(idle, [64.1], [[1]]).met).toBe(false);
  });

  it('judges the excess over the baseline, round by round', () => {
    const dearer = {
      ...faster,
      better: 'lower',
      target: { kind: 'difference', limit: 2 },
    } as const;
    const result = summarise(dearer, [5, 90, 6.5], [[4, 88.5, 4]]);
    expect(result.baselines[0]?.difference).toBeCloseTo(1.5);
    expect(result.met).toBe(true);
    expect(summarise(dearer, [6.5], [[4]]).met).toBe(false);
    const report = { ...REPORT, results: [result] };
    expect(reportLines(report, true)[3]).toMatch(/<= 2\.00 more +yes$/);
  });

  it('shows as a row of the table', () => {
    const report = { ...REPORT, results: [summarise(faster, [71], [[100]])] };
    const lines = reportLines(report, true);
    expect(lines[0]).toContain('emulated RNIC');
    expect(lines[0]).toContain('2 cores');
    expect(lines[4]).toBe('run-x was not measured: there is no x');
    expect(lines[3]).toMatch(/^m +71\.0 +MB\/s +raw +100 +0\.71 +>= 0\.70 x +yes$/);
  });

  it('leaves the project’s targets out for users', () => {
    const report = { ...REPORT, results: [summarise(faster, [71], [[100]])] };
    const lines = reportLines(report, false);
    expect(lines[2]).toMatch(/ratio$/);
    expect(lines[3]).toMatch(/^m +71\.0 +MB\/s +raw +100 +0\.71$/);
  });

  it('is chosen by name', () => {
    expect(selectMeasurements([])).toBe(MEASUREMENTS);
    expect(selectMeasurements(['messages']).map((each) => each.name)).toEqual(['messages']);
    expect(() => selectMeasurements(['nothing'])).toThrow("unknown measurement 'nothing'");
  });
});

describe('figures of perftest', () => {
  it('are those behind the size, the number of iterations first', () => {
    const table = [
      ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]',
      ' 65536      5000             652.32             49.42  \t\t   0.000791',
      '-------------------------------',
    ];
    expect(figuresOf(table.join('\n'), 65536)).toEqual([5000, 652.32, 49.42, 0.000791]);
  });

  it('are missing when the program printed none', () => {
    expect(() => figuresOf('Connection refused', 64)).toThrow(/64 bytes: Connection refused/);
  });
});
