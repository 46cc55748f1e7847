/** The figures of all kept runs as a chart: ratios, where there are any, since machines differ. */
import { chartSvg, type Panel } from './chart.ts';
import type { HistoryEntry } from './history.ts';

/** One line: a ratio to the baseline of this title, or the value itself. */
interface Course {
  readonly name: string;
  readonly against?: string;
}

interface Topic {
  readonly title: string;
  readonly scale: Panel['scale'];
  readonly courses: readonly Course[];
}

const RAW_WRITES = 'raw TCP, one write each';
const RAW_ROUND_TRIP = 'raw TCP round trip';
const UCX_PUT = 'UCX tcp put_bw';
const UCX_TAG = 'UCX tcp tag_lat';

const TOPICS: readonly Topic[] = [
  {
    title: 'Bandwidth of two daemons over raw TCP',
    scale: 'linear',
    courses: [
      { name: 'write-64k', against: RAW_WRITES },
      { name: 'write-1m', against: RAW_WRITES },
      { name: 'run-write-bw', against: RAW_WRITES },
    ],
  },
  {
    title: 'Round trip of two daemons over raw TCP',
    scale: 'linear',
    courses: [
      { name: 'ping-pong', against: RAW_ROUND_TRIP },
      { name: 'run-send-lat', against: RAW_ROUND_TRIP },
    ],
  },
  {
    title: 'ib_write_bw on one daemon over UCX tcp',
    scale: 'linear',
    courses: [
      { name: 'one-write-bw', against: UCX_PUT },
      { name: 'roce-write-bw', against: UCX_PUT },
    ],
  },
  {
    title: 'ib_send_lat on one daemon over UCX tcp',
    scale: 'linear',
    courses: [
      { name: 'one-send-lat', against: UCX_TAG },
      { name: 'roce-send-lat', against: UCX_TAG },
    ],
  },
  {
    title: '64-byte messages a second',
    scale: 'linear',
    courses: [
      { name: 'messages' },
      { name: 'one-write-rate' },
      { name: 'one-send-rate' },
      { name: 'roce-write-rate' },
      { name: 'roce-send-rate' },
    ],
  },
  { title: 'Memory of an idle QP in KiB', scale: 'linear', courses: [{ name: 'idle-qp' }] },
];

/** The chart of a history, the oldest run at the left. */
export function historyChart(entries: readonly HistoryEntry[]): string {
  const columns = entries.map(({ date }) => date.slice(5, 10));
  const panels = TOPICS.map(({ title, scale, courses }): Panel => {
    const lines = courses.map(({ name, against }) => ({
      label: name,
      values: entries.map(({ figures }) => {
        const figure = figures[name];
        return against === undefined ? figure?.value : figure?.ratios?.[against];
      }),
    }));
    const known = lines.filter(({ values }) => values.some((value) => value !== undefined));
    return { title, scale, columns, lines: known };
  }).filter(({ lines }) => lines.length > 0);
  const first = entries[0]?.date.slice(0, 10) ?? 'no date';
  const last = entries.at(-1)?.date.slice(0, 10) ?? 'no date';
  const description = `Runs of the bench, ${entries.length} in all, from ${first} to ${last}; the figures are in history.jsonl.`;
  return chartSvg('The bench over time', description, panels);
}
