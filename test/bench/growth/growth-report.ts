/** The results of a growth run, as tables and as a chart. */
import { type MachineFacts, readable } from '#daemon/bench/report';
import { tableLines } from '#daemon/console/output';
import { chartSvg, type Panel, shortNumber } from '../chart.ts';
import { markdownTable } from '../readme-block.ts';
import type { Figures, Metric } from './growth-series.ts';

/** A step that was not made, and why. */
export interface SkippedStep {
  readonly size: number;
  readonly why: string;
}

/** The results of one series. */
export interface SeriesResult {
  readonly name: string;
  readonly title: string;
  readonly axis: string;
  readonly metrics: readonly Metric[];
  readonly rows: readonly { readonly size: number; readonly figures: Figures }[];
  readonly skipped: readonly SkippedStep[];
}

/** A whole run, as `--json` writes it. */
export interface GrowthReport extends MachineFacts {
  readonly format: 1;
  readonly emulated: true;
  /** Start time, in ISO 8601 format. */
  readonly date: string;
  readonly loadBefore: number;
  readonly minutes: number;
  readonly series: readonly SeriesResult[];
}

interface GrowthPanel {
  readonly title: string;
  readonly series: string;
  readonly scale: Panel['scale'];
  /** Labels of the lines, by metric. */
  readonly lines: Readonly<Record<string, string>>;
}

const MEMORY = { memory: 'idle', memoryActive: 'after traffic' };
const PANELS: readonly GrowthPanel[] = [
  {
    title: 'MB/s by message size in bytes',
    series: 'sizes',
    scale: 'log',
    lines: { rate: 'RDMA Write', raw: 'raw TCP' },
  },
  { title: 'MiB of a daemon by QPs', series: 'qps', scale: 'linear', lines: MEMORY },
  {
    title: '64-byte Writes a second by active QPs',
    series: 'qps',
    scale: 'linear',
    lines: { messages: 'all QPs together' },
  },
  {
    title: '64-byte Writes a second by active clients',
    series: 'clients',
    scale: 'linear',
    lines: { messages: 'all clients together' },
  },
  { title: 'MiB of a daemon by clients', series: 'clients', scale: 'linear', lines: MEMORY },
  {
    title: 'MiB of a daemon by devices',
    series: 'devices',
    scale: 'linear',
    lines: { iwarpMemory: 'iWARP', roceMemory: 'RoCE' },
  },
];

/** The report for people. */
export function growthLines(report: GrowthReport): string[] {
  return [
    machineLine(report),
    ...report.series.flatMap((series) => [
      '',
      `${series.name}: ${series.title}`,
      ...tableLines(seriesRows(series)),
      ...skippedLines(series),
    ]),
  ];
}

/** The report as part of a document. */
export function growthBlock(report: GrowthReport): string[] {
  return [
    `${report.date.slice(0, 10)}; ${machineLine(report)}.`,
    ...report.series.flatMap((series) => [
      '',
      `**${series.name}**: ${series.title}.`,
      '',
      ...markdownTable(seriesRows(series)),
      ...(series.skipped.length === 0 ? [] : ['', ...skippedLines(series)]),
    ]),
  ];
}

/** The report as a chart; series without figures are left out. */
export function growthChart(report: GrowthReport): string {
  const panels = PANELS.flatMap(({ title, series: name, scale, lines }): Panel[] => {
    const series = report.series.find((each) => each.name === name);
    if (series === undefined || series.rows.length === 0) return [];
    return [
      {
        title,
        scale,
        columns: series.rows.map(({ size }) =>
          name === 'sizes' ? sizeText(size) : shortNumber(size),
        ),
        lines: Object.entries(lines).map(([key, label]) => ({
          label,
          values: series.rows.map(({ figures }) => figures[key]),
        })),
      },
    ];
  });
  const description = `Measured on ${report.date.slice(0, 10)}; the tables in README.md have all figures.`;
  return chartSvg('How cost grows', description, panels);
}

function machineLine({ cores, cpu, node, kernel, loadBefore }: GrowthReport): string {
  return `emulated RNIC over loopback; ${cores} cores (${cpu}), Linux ${kernel}, Node ${node}; load before ${loadBefore.toFixed(1)}`;
}

function seriesRows({ axis, metrics, rows }: SeriesResult): string[][] {
  const text = (value: number | undefined) => (value === undefined ? '' : readable(value));
  return [
    [axis, ...metrics.map(({ title }) => title)],
    ...rows.map(({ size, figures }) => [
      axis === 'bytes' ? sizeText(size) : size.toLocaleString('en'),
      ...metrics.map(({ key }) => text(figures[key])),
    ]),
  ];
}

function skippedLines({ axis, skipped }: SeriesResult): string[] {
  const [first] = skipped;
  if (first === undefined) return [];
  const sizes = skipped.map(({ size }) => size.toLocaleString('en')).join(', ');
  return [`Not measured: ${sizes} ${axis}. ${first.why}`];
}

/** 4096 as 4 KiB. */
function sizeText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB'];
  const power = Math.min(2, Math.floor(Math.log2(bytes) / 10));
  return `${bytes / 1024 ** power} ${units[power]}`;
}
