import { describe, expect, it } from 'vitest';
import { selectMeasurements } from '#daemon/bench/bench-run';
import { MEASUREMENTS } from '#daemon/bench/measurements';
import {
  iperfRate,
  perftestFigures,
  pingPongFigures,
  ucxFigures,
} from '#daemon/bench/program-figures';
import { median, readable, reportLines, summarise, verdictLine } from '#daemon/bench/report';

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
  seconds: 89,
  date: '2026-01-02T03:04:05.000Z',
  version: '0.1.0',
  unmeasured: [
    { name: 'run-x', missing: 'there is no x' },
    { name: 'm', against: 'y', missing: 'there is no y' },
  ],
  failed: [{ name: 'run-z', reason: 'it broke' }],
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
    target: { kind: 'ratio', limit: 0.7 },
    baselines: [{ title: 'raw', run, aim: 0.9 }],
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

  it('judges an absolute value without baselines; lower is better if the row says so', () => {
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
    expect(reportLines(report, true)[3]).toMatch(/<= 2\.00 more +yes +<= 0\.90 x +no$/);
  });

  it('is a row of the table; skipped and failed ones are listed below', () => {
    const lines = reportLines({ ...REPORT, results: [summarise(faster, [71], [[100]])] }, true);
    expect(lines[0]).toContain('emulated RNIC');
    expect(lines[0]).toContain('2 cores');
    expect(lines[0]).toMatch(/load before 0\.3; took 89 s$/);
    const row = /^m +71\.0 +MB\/s +raw +100 +0\.71 +>= 0\.70 x +yes +>= 0\.90 x +no$/;
    expect(lines[3]).toMatch(row);
    expect(lines.slice(4)).toEqual([
      '',
      'targets: 1 of 1 met; aims: 0 of 1 reached',
      '2 lines skipped:',
      'run-x was not measured: there is no x',
      'm was not compared with y: there is no y',
      'run-z FAILED: it broke',
    ]);
  });

  it('omits the project’s targets for users', () => {
    const lines = reportLines({ ...REPORT, results: [summarise(faster, [71], [[100]])] }, false);
    expect(lines[2]).toMatch(/ratio$/);
    expect(lines[3]).toMatch(/^m +71\.0 +MB\/s +raw +100 +0\.71$/);
    expect(lines.join('\n')).not.toMatch(/target|aim/);
  });

  it('judges each further baseline by its own aim', () => {
    const baselines = [...faster.baselines, { title: 'peer', run, aim: 2 }];
    const result = summarise({ ...faster, baselines }, [95], [[100], [40]]);
    expect(result.baselines.map(({ aim }) => aim?.met)).toEqual([true, true]);
    const [, , , first, second] = reportLines({ ...REPORT, results: [result] }, true);
    expect(first).toMatch(/yes +>= 0\.90 x +yes$/);
    expect(second).toMatch(/^ +peer +40\.0 +2\.38 +>= 2\.00 x +yes$/);
    expect(verdictLine([result])).toBe('targets: 1 of 1 met; aims: 2 of 2 reached');
  });

  it('has no verdict against a baseline that was skipped', () => {
    const baselines = [...faster.baselines, { title: 'peer', run, aim: 2 }];
    const result = summarise({ ...faster, baselines }, [95], [undefined, [40]]);
    expect(result).toMatchObject({ target: undefined, met: undefined, aim: 2 });
    expect(result.baselines.map(({ title }) => title)).toEqual(['peer']);
    expect(verdictLine([result])).toBe('targets: 0 of 0 met; aims: 1 of 1 reached');
  });

  it('may have an aim for its value without a target; a peer has neither', () => {
    const { target: _, ...peer } = { ...faster, baselines: [] };
    expect(summarise(peer, [5], [])).toMatchObject({ target: undefined, met: undefined });
    const aimed = summarise({ ...peer, aim: 1_000_000 }, [999_999], []);
    expect(aimed).toMatchObject({ aim: 1_000_000, valueAim: { kind: 'value', met: false } });
    expect(reportLines({ ...REPORT, results: [aimed] }, true)[3]).toMatch(/>= 1,000,000 +no$/);
  });

  it('is chosen by name', () => {
    expect(selectMeasurements([])).toBe(MEASUREMENTS);
    expect(selectMeasurements(['messages']).map((each) => each.name)).toEqual(['messages']);
    expect(() => selectMeasurements(['nothing'])).toThrow("unknown measurement 'nothing'");
  });
});

describe('the table of measurements', () => {
  it('gives every line a unique name', () => {
    const names = MEASUREMENTS.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });

  it('has the same programs on both devices of one daemon', () => {
    const lines = (prefix: string) =>
      MEASUREMENTS.flatMap(({ name }) =>
        name.startsWith(`${prefix}-`) ? [name.slice(prefix.length + 1)] : [],
      );
    const names = 'write-bw read-bw send-bw write-lat send-lat write-rate send-rate';
    expect(lines('one')).toEqual(names.split(' '));
    expect(lines('roce').filter((name) => name !== 'ucx-put')).toEqual(lines('one'));
  });

  it('derives the limit of one core from the baselines before it', async () => {
    const writes = MEASUREMENTS.find(({ name }) => name === 'write-64k');
    const limit = writes?.baselines[3];
    expect(limit?.title).toMatch(/one core/);
    expect(limit?.aim).toBe(0.9);
    // 1 / (1/6000 + 1/12000 + 1/12000)
    expect(await limit?.run(undefined as never, 1, [6000, 12_000, 12_000])).toBeCloseTo(3000);
  });
});

describe('figures of perftest', () => {
  it('are the numbers after the size: iterations first', () => {
    const table = [
      ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]',
      ' 65536      5000             652.32             49.42  \t\t   0.000791',
      '-------------------------------',
    ];
    expect(perftestFigures(table.join('\n'), 65536)).toEqual([5000, 652.32, 49.42, 0.000791]);
  });

  it('are missing when the program printed none', () => {
    expect(() => perftestFigures('Connection refused', 64)).toThrow(/64 bytes: Connection refused/);
  });
});

describe('figures of peers', () => {
  it('are the last line of ucx_perftest, in decimal MB/s', () => {
    const output = [
      '|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |',
      '                       20000      3.696    91.563   153.915        0.67       100       10921        6497',
    ];
    expect(ucxFigures(output.join('\n'))).toMatchObject({ medianMicros: 3.696 });
    expect(ucxFigures(output.join('\n')).rateMBps).toBeCloseTo(104.8576);
    const final =
      'Final:                 20000      4.206    91.130   356.551      685.83     175.29       10973        2805';
    expect(ucxFigures(final).medianMicros).toBe(4.206);
    expect(() => ucxFigures('connection refused')).toThrow(/no figures: connection refused/);
  });

  it('are the line of fi_pingpong', () => {
    const output = [
      'bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec',
      '64k     5k      =5k      625m       11.76s     55.71    1176.39       0.00',
    ];
    const figures = { rateMBps: 55.71, averageMicros: 1176.39 };
    expect(pingPongFigures(output.join('\n'))).toEqual(figures);
    expect(() => pingPongFigures(output[0] ?? '')).toThrow(/no figures/);
  });

  it('are what iperf3 received', () => {
    expect(iperfRate('{ "end": { "sum_received": { "bits_per_second": 8e9 } } }')).toBe(1000);
    expect(() => iperfRate('iperf3: error')).toThrow(/no JSON: iperf3: error/);
    expect(() => iperfRate('{ "error": "busy" }')).toThrow(/no rate/);
  });
});
