import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  type GrowthReport,
  growthBlock,
  growthChart,
  growthLines,
  type SeriesResult,
} from '#test/bench/growth/growth-report';
import { runSeries, selectSeries } from '#test/bench/growth/growth-run';
import type { Figures, GrowthSeries } from '#test/bench/growth/growth-series';
import { GROWTH_SERIES } from '#test/bench/growth/series';
import { keepGrowth } from '#test/bench/keep';
import { temporaryFolder } from '#test/support/temporary-folder';

const SOURCE = new URL('../', import.meta.url).pathname;

/** A series of three steps, each with the figure that `step` returns; counts calls of `close`. */
class ExampleSeries implements GrowthSeries {
  readonly name = 'sizes';
  readonly title = 'things that grow';
  readonly axis = 'things';
  readonly metrics = [{ key: 'rate', title: 'MB/s' }];
  readonly steps = [1, 1000, 1_000_000];
  readonly notes: string[] = [];
  readonly #step: (size: number) => Promise<Figures>;
  closed = 0;

  constructor(step: (size: number) => Promise<Figures>) {
    this.#step = step;
  }

  readonly open = async () => ({
    step: this.#step,
    watched: [{ name: 'this', pid: process.pid }],
    close: async () => {
      this.closed += 1;
    },
  });

  /** Runs it; each reading of the clock advances it by one. */
  async run(deadline = 1000, signal = new AbortController().signal): Promise<SeriesResult> {
    let time = 0;
    const output = { line: () => {}, note: (text: string) => this.notes.push(text) };
    return await runSeries(this, { deadline, output, signal, now: () => time++ });
  }
}

const doubled = async (size: number) => ({ rate: size * 2 });

describe('a series', () => {
  it('measures each step, reports progress, and ends what it started', async () => {
    const series = new ExampleSeries(doubled);
    const { rows, skipped } = await series.run();
    expect(rows).toEqual([
      { size: 1, figures: { rate: 2 } },
      { size: 1000, figures: { rate: 2000 } },
      { size: 1_000_000, figures: { rate: 2_000_000 } },
    ]);
    expect(skipped).toEqual([]);
    expect(series.notes).toEqual(['  1 things', '  1000 things', '  1000000 things']);
    expect(series.closed).toBe(1);
  });

  it('keeps its results when a step fails, and explains why others are missing', async () => {
    const series = new ExampleSeries(async (size) => {
      if (size === 1000) throw new Error('too many open files (EMFILE)');
      return { rate: size };
    });
    const { rows, skipped } = await series.run();
    expect(rows.map(({ size }) => size)).toEqual([1]);
    const why = 'The first of them failed: too many open files (EMFILE)';
    expect(skipped).toEqual([
      { size: 1000, why },
      { size: 1_000_000, why },
    ]);
    expect(series.closed).toBe(1);
  });

  it('starts no step after the time limit', async () => {
    const series = new ExampleSeries(doubled);
    const { rows, skipped } = await series.run(2);
    expect(rows.map(({ size }) => size)).toEqual([1, 1000]);
    expect(skipped[0]).toMatchObject({ size: 1_000_000, why: /time is over.*--minutes/ });
    const late = new ExampleSeries(doubled);
    expect((await late.run(-1)).skipped).toHaveLength(3);
    expect(late.closed).toBe(0);
  });

  it('ends what it started when it is interrupted in a step', async () => {
    const interruption = new AbortController();
    const series = new ExampleSeries(() => {
      interruption.abort(new Error('interrupted'));
      return new Promise(() => {});
    });
    await expect(series.run(1000, interruption.signal)).rejects.toThrow('interrupted');
    expect(series.closed).toBe(1);
  });

  it('is reported if it cannot start', async () => {
    const series = new ExampleSeries(doubled);
    const broken = { ...series, open: () => Promise.reject(new Error('no daemon')) };
    const output = { line: () => {}, note: () => {} };
    const { signal } = new AbortController();
    const { rows, skipped } = await runSeries(broken, {
      deadline: 9,
      output,
      signal,
      now: () => 0,
    });
    expect(rows).toEqual([]);
    expect(skipped[0]?.why).toBe('The series could not begin: no daemon');
    expect(skipped).toHaveLength(3);
  });
});

describe('the series of npm run bench -- growth', () => {
  it('are chosen by name', () => {
    expect(selectSeries([])).toEqual(GROWTH_SERIES);
    expect(selectSeries(['qps']).map(({ name }) => name)).toEqual(['qps']);
    expect(() => selectSeries(['nothing'])).toThrow(
      "unknown series 'nothing'; choose from sizes, qps, clients, devices",
    );
  });

  it('go from 1 byte to 64 MiB, to 10,000 QPs, and to 64 clients and devices', () => {
    const ends = GROWTH_SERIES.map(({ name, steps }) => [name, steps[0], steps.at(-1)]);
    expect(ends).toEqual([
      ['sizes', 1, 67_108_864],
      ['qps', 1, 10_000],
      ['clients', 1, 64],
      ['devices', 1, 64],
    ]);
    for (const { steps } of GROWTH_SERIES) {
      expect(steps).toEqual([...new Set(steps)].sort((left, right) => left - right));
    }
  });
});

const REPORT: GrowthReport = {
  format: 1,
  emulated: true,
  date: '2030-01-02T03:04:05.000Z',
  node: 'v20.0.0',
  kernel: '6.1',
  cpu: 'cpu',
  cores: 2,
  loadBefore: 0.25,
  minutes: 15,
  series: [
    {
      name: 'sizes',
      title: 'messages',
      axis: 'bytes',
      metrics: [
        { key: 'rate', title: 'MB/s' },
        { key: 'raw', title: 'raw' },
      ],
      rows: [
        { size: 1, figures: { rate: 0.5, raw: 0.25 } },
        { size: 65_536, figures: { rate: 4000 } },
      ],
      skipped: [
        { size: 1_048_576, why: 'The time is over' },
        { size: 67_108_864, why: 'The time is over' },
      ],
    },
    { name: 'qps', title: 'queue pairs', axis: 'QPs', metrics: [], rows: [], skipped: [] },
  ],
};

describe('the report of a growth run', () => {
  it('has a table for each series, and explains missing steps', () => {
    const lines = growthLines(REPORT);
    expect(lines[0]).toContain('2 cores (cpu), Linux 6.1, Node v20.0.0; load before 0.3');
    expect(lines.slice(1, 7)).toEqual([
      '',
      'sizes: messages',
      'bytes   MB/s   raw',
      '1 B     0.50   0.25',
      '64 KiB  4,000',
      'Not measured: 1,048,576, 67,108,864 bytes. The time is over',
    ]);
  });

  it('is a chart of the measurements', () => {
    const chart = growthChart(REPORT);
    expect(chart).toContain('>MB/s by message size in bytes<');
    expect(chart).toContain('>64 KiB<');
    expect(chart).not.toContain('by QPs');
    expect(chart.match(/<circle/g)).toHaveLength(3);
    // The title of each panel fits.
    const row = (name: string) => ({ ...REPORT.series[0], name }) as SeriesResult;
    const all = ['sizes', 'qps', 'clients', 'devices'].map(row);
    expect(growthChart({ ...REPORT, series: all }).match(/class="title"/g)).toHaveLength(6);
  });

  it('replaces tables and chart of the README when it is kept', () => {
    const folder = temporaryFolder();
    copyFileSync(join(SOURCE, 'README.md'), join(folder, 'README.md'));
    keepGrowth(REPORT, folder);
    const readme = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(readme).toContain(growthBlock(REPORT).join('\n'));
    expect(readme).toContain('](growth.svg)');
    expect(readFileSync(join(folder, 'growth.svg'), 'utf8')).toBe(growthChart(REPORT));
  });
});
