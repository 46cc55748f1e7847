/** The results of two builds, as a table. */
import {
  type Failed,
  type MachineFacts,
  median,
  readable,
  skippedLines,
  type Unmeasured,
} from '#daemon/bench/report';
import { tableLines } from '#daemon/console/output';

/** One measurement of both builds. */
export interface Compared {
  readonly name: string;
  readonly unit: string;
  /**
   * Why the builds could not run at the same time, so the machine's speed may have changed in between; undefined if
   * they took turns.
   */
  readonly apart: string | undefined;
  /** Medians of all rounds. */
  readonly before: number;
  readonly after: number;
  /** Gain of the later build in each start: 0.1 if it does a tenth more, or takes a tenth less time or memory. */
  readonly gains: readonly number[];
}

/** A whole run, as `--json` writes it. */
export interface AgainstReport extends MachineFacts {
  readonly format: 1;
  readonly emulated: true;
  /** Start time, in ISO 8601 format. */
  readonly date: string;
  readonly loadBefore: number;
  readonly rounds: number;
  readonly starts: number;
  readonly compared: readonly Compared[];
  /** Measurements that this machine cannot make. */
  readonly unmeasured: readonly Unmeasured[];
  readonly failed: readonly Failed[];
}

/** Losses up to this share are within what runs of the same build differ. */
const LOSS_MAX = 0.03;

/** The report for people. */
export function againstLines(report: AgainstReport): string[] {
  const { cores, cpu, node, rounds, starts, loadBefore, compared, unmeasured, failed } = report;
  const worse = compared.filter(({ gains }) => median(gains) < -LOSS_MAX);
  const names = worse.map(({ name }) => name).join(', ');
  return [
    `${cores} cores (${cpu}), Node ${node}; rounds in turns, ${rounds} in each of ${starts} starts; load before ${loadBefore.toFixed(1)}`,
    '',
    ...tableLines(rowsOf(compared)),
    '',
    worse.length === 0
      ? `none of ${compared.length} is worse by more than ${percent(LOSS_MAX)}`
      : `${worse.length} of ${compared.length} worse by more than ${percent(LOSS_MAX)}: ${names}`,
    ...compared.flatMap(({ name, apart }) =>
      apart === undefined ? [] : [`${name} was not measured in turns: ${apart}`],
    ),
    ...skippedLines(unmeasured),
    ...failed.map(({ name, reason }) => `${name} FAILED: ${reason}`),
  ];
}

function rowsOf(compared: readonly Compared[]): string[][] {
  const head = ['measurement', 'before', 'after', 'unit', 'gain', 'of the starts', ''];
  const rows = compared.map(({ name, unit, apart, before, after, gains }) => [
    name,
    readable(before),
    readable(after),
    unit,
    signed(median(gains)),
    `${signed(Math.min(...gains))} to ${signed(Math.max(...gains))}`,
    apart === undefined ? '' : 'not in turns',
  ]);
  return [head, ...rows];
}

function signed(share: number): string {
  return `${share > 0 ? '+' : ''}${percent(share)}`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share === LOSS_MAX ? 0 : 1)} %`;
}
