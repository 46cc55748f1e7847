/** Keeps a run: a line in the history, the chart of all runs, and the table in the README. */
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type BenchReport,
  durationText,
  reportRows,
  skippedLines,
  verdictLine,
} from '#daemon/bench/report';
import { type GrowthReport, growthBlock, growthChart } from './growth/growth-report.ts';
import { type HistoryEntry, historyEntry, parseHistory } from './history.ts';
import { historyChart } from './history-chart.ts';
import { markdownTable, replaceBlock } from './readme-block.ts';

/** Files of test/bench. */
export const HISTORY_FILE = 'history.jsonl';
export const HISTORY_CHART_FILE = 'history.svg';
const GROWTH_CHART_FILE = 'growth.svg';
const README_FILE = 'README.md';

/** The runs kept in `folder`, oldest first. Throws CommandFailure if the file is not a history. */
export function readHistory(folder: string): HistoryEntry[] {
  const path = join(folder, HISTORY_FILE);
  return existsSync(path) ? parseHistory(readFileSync(path, 'utf8'), path) : [];
}

/** Adds a run to the files in `folder`. Throws CommandFailure for a malformed history or README. */
export function keepRun(report: BenchReport, folder: string): void {
  const entries = readHistory(folder);
  const entry = historyEntry(report);
  replaceReadmeBlock(folder, 'figures', figuresBlock(report));
  appendFileSync(join(folder, HISTORY_FILE), `${JSON.stringify(entry)}\n`);
  writeFileSync(join(folder, HISTORY_CHART_FILE), historyChart([...entries, entry]));
}

/** Keeps a run of all series in `folder`: its report, its chart, and its tables in the README. */
export function keepGrowth(report: GrowthReport, folder: string): void {
  replaceReadmeBlock(folder, 'growth', [
    `![Charts of how cost grows](${GROWTH_CHART_FILE})`,
    '',
    ...growthBlock(report),
  ]);
  writeFileSync(join(folder, GROWTH_CHART_FILE), growthChart(report));
}

/** Replaces a generated part of the README in `folder`. */
function replaceReadmeBlock(folder: string, name: string, lines: readonly string[]): void {
  const path = join(folder, README_FILE);
  writeFileSync(path, replaceBlock(readFileSync(path, 'utf8'), name, lines));
}

/** The run as part of a document. */
function figuresBlock(report: BenchReport): string[] {
  const { date, version, cores, cpu, kernel, node, crcEngine, loadBefore, rounds, seconds } =
    report;
  const rows = reportRows(report.results, true).map(([name = '', ...others], index) =>
    index === 0 || name === '' ? [name, ...others] : [`\`${name}\``, ...others],
  );
  const skipped = skippedLines(report.unmeasured);
  return [
    `${date.slice(0, 10)}, iwarpd ${version}; ${cores} cores (${cpu}), Linux ${kernel}, Node ${node}, CRC32C by ${crcEngine};`,
    `medians of ${rounds} interleaved rounds; load before the run ${loadBefore.toFixed(1)}; it took ${durationText(seconds)}.`,
    '',
    ...markdownTable(rows),
    '',
    `${verdictLine(report.results)}.`,
    ...(skipped.length === 0 ? [] : ['', ...listOf(skipped)]),
    ...(report.failed.length === 0
      ? []
      : ['', ...report.failed.map(({ name, reason }) => `- ${name} failed: ${reason}`)]),
  ];
}

function listOf([head = '', ...lines]: readonly string[]): string[] {
  return [head, '', ...lines.map((line) => `- ${line}`)];
}
