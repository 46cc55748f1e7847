/** The figures of all kept runs as a chart: ratios if available, since machines differ. */
import { chartSvg, type Panel } from './chart.ts';
import type { HistoryEntry } from './history.ts';

interface Topic {
  readonly title: string;
  /** The results that are drawn: ratios to the baseline with this title, or the values. */
  readonly names: readonly string[];
  readonly against?: string;
}

const TOPICS: readonly Topic[] = [
  {
    title: 'Bandwidth of two daemons over raw TCP',
    names: ['write-64k', 'write-1m', 'run-write-bw'],
    against: 'raw TCP, one write each',
  },
  {
    title: 'Round trip of two daemons over raw TCP',
    names: ['ping-pong', 'run-send-lat'],
    against: 'raw TCP round trip',
  },
  {
    title: 'ib_write_bw on one daemon over UCX tcp',
    names: ['one-write-bw', 'roce-write-bw'],
    against: 'UCX tcp put_bw',
  },
  {
    title: 'ib_send_lat on one daemon over UCX tcp',
    names: ['one-send-lat', 'roce-send-lat'],
    against: 'UCX tcp tag_lat',
  },
  {
    title: '64-byte messages a second',
    names: ['messages', 'one-write-rate', 'one-send-rate', 'roce-write-rate', 'roce-send-rate'],
  },
  { title: 'Memory of an idle QP in KiB', names: ['idle-qp'] },
];

/** The chart of a history, the oldest run at the left. */
export function historyChart(entries: readonly HistoryEntry[]): string {
  const columns = entries.map(({ date }) => date.slice(5, 10));
  const panels = TOPICS.map(({ title, names, against }): Panel => {
    const lines = names.map((name) => ({
      label: name,
      values: entries.map(({ figures }) => {
        const figure = figures[name];
        return against === undefined ? figure?.value : figure?.ratios?.[against];
      }),
    }));
    const known = lines.filter(({ values }) => values.some((value) => value !== undefined));
    return { title, scale: 'linear', columns, lines: known };
  }).filter(({ lines }) => lines.length > 0);
  const first = entries[0]?.date.slice(0, 10) ?? 'no date';
  const last = entries.at(-1)?.date.slice(0, 10) ?? 'no date';
  const description = `Runs of the bench, ${entries.length} in all, from ${first} to ${last}; the figures are in history.jsonl.`;
  return chartSvg('The bench over time', description, panels);
}
