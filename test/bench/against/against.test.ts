import { describe, expect, it } from 'vitest';
import type { Measurement } from '#daemon/bench/measurement';
import { againstLines } from '#test/bench/against/against-report';
import { type AgainstOptions, runAgainst } from '#test/bench/against/against-run';
import { type Build, otherBuild } from '#test/bench/against/other-build';
import { temporaryFolder } from '#test/support/temporary-folder';

const NO_OUTPUT = { line: () => undefined, note: () => undefined };
const OPTIONS: AgainstOptions = { only: [], rounds: 3, starts: 2 };

/** A build whose rounds give these values in turn, or fail while another one is in use. */
class FakeBuild implements Build {
  static inUse = 0;
  static readonly order: string[] = [];
  readonly measurements: readonly Measurement[];
  closed = 0;
  opened = 0;

  constructor(
    label: string,
    values: Readonly<Record<string, readonly number[]>>,
    options: Partial<Measurement> & { readonly alone?: true } = {},
  ) {
    this.measurements = Object.entries(values).map(([name, series]) => {
      let next = 0;
      return {
        name,
        title: name,
        unit: 'MB/s',
        better: 'higher' as const,
        baselines: [],
        run: async () => {
          if (options.alone === true && FakeBuild.inUse > 1) throw new Error('the port is in use');
          FakeBuild.order.push(label);
          next += 1;
          return series[(next - 1) % series.length] ?? Number.NaN;
        },
        ...options,
      };
    });
  }

  newRig(): { close(): Promise<void> } {
    this.opened += 1;
    FakeBuild.inUse += 1;
    return {
      close: async () => {
        this.closed += 1;
        FakeBuild.inUse -= 1;
      },
    };
  }
}

const run = (before: Build, after: Build, options = OPTIONS, signal?: AbortSignal) =>
  runAgainst({ before, after }, options, NO_OUTPUT, signal ?? new AbortController().signal);

describe('two builds', () => {
  it('take turns, each in new processes for every start', async () => {
    FakeBuild.order.length = 0;
    const before = new FakeBuild('b', { rate: [100] });
    const after = new FakeBuild('a', { rate: [110] });
    const { compared, failed } = await run(before, after);
    expect(failed).toEqual([]);
    expect(compared).toEqual([
      {
        name: 'rate',
        unit: 'MB/s',
        apart: undefined,
        before: 100,
        after: 110,
        gains: [expect.closeTo(0.1), expect.closeTo(0.1)],
      },
    ]);
    // A round to warm up, and three that count; both go first in turn, and start first in turn.
    expect(FakeBuild.order.join('')).toBe('baabbaababbaabba');
    expect([before.opened, before.closed, after.opened, after.closed]).toEqual([2, 2, 2, 2]);
  });

  it('run one after the other if they cannot run at the same time', async () => {
    FakeBuild.order.length = 0;
    const before = new FakeBuild('b', { rate: [100] }, { alone: true });
    const after = new FakeBuild('a', { rate: [90] }, { alone: true });
    const { compared } = await run(before, after);
    expect(compared).toMatchObject([{ apart: 'the port is in use', before: 100, after: 90 }]);
    expect(FakeBuild.order.join('')).toBe('bbbbaaaa'.repeat(2));
    expect(FakeBuild.inUse).toBe(0);
  });

  it('gain if a time becomes shorter', async () => {
    const before = new FakeBuild('b', { time: [20] }, { better: 'lower' });
    const after = new FakeBuild('a', { time: [10] }, { better: 'lower' });
    const { compared } = await run(before, after);
    expect(compared).toMatchObject([{ gains: [0.5, 0.5] }]);
  });

  it('are compared only in what both have', async () => {
    const before = new FakeBuild('b', { rate: [1], old: [1] });
    const after = new FakeBuild('a', { rate: [1], fresh: [1] });
    const { compared } = await run(before, after);
    expect(compared.map(({ name }) => name)).toEqual(['rate']);
    const only = ['fresh'];
    await expect(run(before, after, { ...OPTIONS, only })).rejects.toThrow(
      "no measurement 'fresh' in both builds; choose from rate",
    );
  });

  it('may fail in one measurement without losing the others', async () => {
    const failing = { run: () => Promise.reject(new Error('no such device')) };
    const before = new FakeBuild('b', { rate: [1], other: [1] });
    const after = new FakeBuild('a', { rate: [1], other: [1] });
    const [first, second] = after.measurements as [Measurement, Measurement];
    const broken: Build = {
      measurements: [{ ...first, ...failing }, second],
      newRig: () => after.newRig(),
    };
    const { compared, failed } = await run(before, broken);
    expect(compared.map(({ name }) => name)).toEqual(['other']);
    expect(failed).toEqual([{ name: 'rate', reason: 'no such device' }]);
    expect(FakeBuild.inUse).toBe(0);
  });

  it('end when interrupted', async () => {
    const interruption = new AbortController();
    const before = new FakeBuild('b', { rate: [1] });
    const stuck = (): Promise<number> => {
      interruption.abort(new Error('interrupted'));
      return new Promise(() => undefined);
    };
    const after = new FakeBuild('a', { rate: [1] }, { run: stuck });
    await expect(run(before, after, OPTIONS, interruption.signal)).rejects.toThrow('interrupted');
    expect(FakeBuild.inUse).toBe(0);
  });
});

describe('the table', () => {
  it('names what is worse by more than 3 %, and what was not compared', async () => {
    const before = new FakeBuild('b', { up: [100], down: [100], noise: [1000] });
    const after = new FakeBuild('a', { up: [150], down: [90], noise: [975] });
    const report = await run(before, after);
    const unmeasured = [{ name: 'gone', missing: 'no such program' }];
    const failed = [{ name: 'stuck', reason: 'no such device' }];
    const [head, , ...lines] = againstLines({ ...report, unmeasured, failed });
    expect(head).toMatch(/; rounds in turns, 3 in each of 2 starts; load before [0-9.]+$/);
    expect(lines.map((line) => line.trimEnd().split(/ {2,}/))).toEqual([
      ['measurement', 'before', 'after', 'unit', 'gain', 'of the starts'],
      ['up', '100', '150', 'MB/s', '+50.0 %', '+50.0 % to +50.0 %'],
      ['down', '100', '90.0', 'MB/s', '-10.0 %', '-10.0 % to -10.0 %'],
      ['noise', '1,000', '975', 'MB/s', '-2.5 %', '-2.5 % to -2.5 %'],
      [''],
      ['1 of 3 worse by more than 3 %: down'],
      ['1 line skipped:'],
      ['gone was not measured: no such program'],
      ['stuck FAILED: no such device'],
    ]);
    const { compared } = report;
    const better = againstLines({ ...report, compared: compared.slice(0, 1) });
    expect(better.at(-1)).toBe('none of 1 is worse by more than 3 %');
  });
});

it('names a checkout that is not built', async () => {
  const folder = temporaryFolder();
  await expect(otherBuild(folder)).rejects.toThrow(
    `cannot compare with ${folder}: it has no dist/daemon/bench/rig.js; run 'npm run setup' there`,
  );
});
