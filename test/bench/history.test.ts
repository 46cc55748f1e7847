import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { type BenchReport, summarise } from '#daemon/bench/report';
import { historyEntry, parseHistory } from '#test/bench/history';
import { historyChart } from '#test/bench/history-chart';
import { HISTORY_CHART_FILE, HISTORY_FILE, keepRun, readHistory } from '#test/bench/keep';
import { markdownTable, replaceBlock } from '#test/bench/readme-block';
import { temporaryFolder } from '../support/temporary-folder.ts';

const SOURCE = new URL('.//', import.meta.url).pathname;

const run = async () => 0;

const REPORT: BenchReport = {
  format: 1,
  emulated: true,
  date: '2030-01-02T03:04:05.000Z',
  version: '0.1.0',
  node: 'v20.0.0',
  kernel: '6.1',
  cpu: 'cpu | one',
  cores: 2,
  crcEngine: 'native',
  loadBefore: 0.256789,
  rounds: 3,
  seconds: 600,
  results: [
    summarise(
      {
        name: 'write-64k',
        title: 'W',
        unit: 'MB/s',
        better: 'higher',
        target: { kind: 'ratio', limit: 0.7 },
        baselines: [{ title: 'raw TCP, one write each', run, aim: 0.9 }],
        run,
      },
      [3333.333],
      [[4000]],
    ),
  ],
  unmeasured: [{ name: 'iperf3', missing: 'iperf3 is not installed' }],
  failed: [],
};

describe('the history', () => {
  it('keeps medians, ratios and verdicts of a run with four digits', () => {
    const { figures, load, date } = historyEntry(REPORT);
    expect(figures).toEqual({
      'write-64k': {
        value: 3333,
        unit: 'MB/s',
        ratios: { 'raw TCP, one write each': 0.8333 },
        met: true,
      },
    });
    expect({ load, date }).toEqual({ load: 0.2568, date: '2030-01-02T03:04:05.000Z' });
  });

  it('is read as it was written, in the order of time', () => {
    const entry = historyEntry(REPORT);
    const older = { ...entry, date: '2029-12-31T00:00:00Z' };
    const text = `${JSON.stringify(entry)}\n\n${JSON.stringify(older)}\n`;
    expect(parseHistory(text, 'h')).toEqual([older, entry]);
  });

  it('rejects an invalid line with its number', () => {
    const line = JSON.stringify(historyEntry(REPORT));
    expect(() => parseHistory(`${line}\n{`, 'h')).toThrow(/^h:2 is not JSON: .*; remove the line$/);
    expect(() => parseHistory('{"date":"today"}', 'h')).toThrow(/^h:1 is not a run .*date: /);
    expect(() => parseHistory(line.replace('3333', '"many"'), 'h')).toThrow(
      /figures\.write-64k\.value/,
    );
    expect(() => parseHistory('{}\n'.repeat(10_001), 'h')).toThrow(/more than 10000 lines/);
  });

  it('in the repository matches the chart beside it', () => {
    const entries = readHistory(SOURCE);
    expect(entries.length).toBeGreaterThanOrEqual(3);
    expect(readFileSync(join(SOURCE, HISTORY_CHART_FILE), 'utf8')).toBe(historyChart(entries));
  });
});

describe('the chart of a history', () => {
  it('shows measurements of at least one run, and no others', () => {
    const entry = historyEntry(REPORT);
    const chart = historyChart([entry]);
    expect(chart).toContain('>write-64k<');
    expect(chart).not.toMatch(/>write-1m<|Memory/);
    expect(chart).toContain('1 in all, from 2030-01-02 to 2030-01-02');
    expect(historyChart([])).toContain('0 in all');
  });
});

describe('a run that is kept', () => {
  let folder: string;

  beforeEach(() => {
    folder = temporaryFolder();
    copyFileSync(join(SOURCE, 'README.md'), join(folder, 'README.md'));
  });

  it('is added to the history, and redraws chart and table', () => {
    keepRun(REPORT, folder);
    keepRun({ ...REPORT, date: '2030-01-03T00:00:00.000Z' }, folder);
    const entries = readHistory(folder);
    expect(entries.map(({ date }) => date.slice(0, 10))).toEqual(['2030-01-02', '2030-01-03']);
    const chart = readFileSync(join(folder, HISTORY_CHART_FILE), 'utf8');
    expect(chart).toBe(historyChart(entries));
    expect(chart).toContain('>01-03<');
    const readme = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(readme).toContain('2030-01-03, iwarpd 0.1.0; 2 cores');
    expect(readme).toContain('it took 10 min.');
    expect(readme).not.toContain('2030-01-02');
    expect(readme).toMatch(/^\| `write-64k` +\| 3,333 .*\| >= 0.90 x \| no +\|$/m);
    expect(readme).toContain('targets: 1 of 1 met; aims: 0 of 1 reached.');
    expect(readme).toContain('- iperf3 was not measured: iperf3 is not installed');
  });

  it('changes nothing when the history is damaged or the README has no place for it', () => {
    writeFileSync(join(folder, HISTORY_FILE), 'broken\n');
    const before = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(() => keepRun(REPORT, folder)).toThrow(/history\.jsonl:1 is not JSON/);
    expect(readFileSync(join(folder, 'README.md'), 'utf8')).toBe(before);
    writeFileSync(join(folder, HISTORY_FILE), '');
    writeFileSync(join(folder, 'README.md'), '# bench\n');
    expect(() => keepRun(REPORT, folder)).toThrow(/no block figures/);
    expect(readFileSync(join(folder, HISTORY_FILE), 'utf8')).toBe('');
  });
});

describe('a generated part of a document', () => {
  it('replaces the text between its comments', () => {
    const text = 'a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n';
    const replaced = replaceBlock(text, 'x', ['new']);
    expect(replaced).toBe('a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n');
    expect(replaceBlock(replaced, 'x', ['new'])).toBe(replaced);
    expect(() => replaceBlock(text, 'y', [])).toThrow(/no block y/);
  });

  it('has tables with aligned columns and no bar inside a cell', () => {
    expect(markdownTable([['name', 'x'], ['a|b', '12345'], ['c']])).toEqual([
      '| name | x     |',
      '| ---- | ----- |',
      '| a\\|b | 12345 |',
      '| c    |       |',
    ]);
  });
});
