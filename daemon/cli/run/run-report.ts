/** What `run` prints after a failure: how the program ended, and what its daemon knows about it. */
import type { ResetReport } from '../../../verbs-api/contract/protocol/control.ts';
import type { FaultStatus } from '../../../verbs-api/contract/protocol/faults.ts';
import type { Output } from '../../console/output.ts';
import { faultLines } from '../control/fault.ts';
import { leakLines } from '../control/reset.ts';
import type { ProgramEnd } from './program-process.ts';

/** What is known after a program on a private daemon has ended. */
export interface RunFacts {
  /** The program and its arguments. */
  readonly words: readonly string[];
  readonly end: ProgramEnd;
  /** What was open after the end. */
  readonly open: ResetReport;
  /** Open objects are a failure. */
  readonly expectClean: boolean;
  readonly faults: readonly FaultStatus[];
  /** The last lines of the daemon's log. */
  readonly log: readonly string[];
}

/** One subject of a report. */
interface ReportSection {
  readonly title: string;
  readonly lines: readonly string[];
}

/** A failed run. */
export interface RunReport {
  /** What failed, in one line. */
  readonly failure: string;
  readonly sections: readonly ReportSection[];
}

/** The report about a failed run; undefined for one that succeeded. */
export function runReport(facts: RunFacts): RunReport | undefined {
  const failure = failureOf(facts);
  if (failure === undefined) return undefined;
  const { open, faults, log } = facts;
  const fired = faults.filter((fault) => fault.fired > 0);
  const sections = [
    { title: 'objects left open', lines: leakLines(open) },
    { title: 'faults that triggered', lines: fired.length === 0 ? [] : faultLines(fired) },
    { title: 'last lines of the daemon’s log', lines: log },
  ];
  return { failure, sections: sections.filter(({ lines }) => lines.length > 0) };
}

/** Prints a report to standard error: the failure, then each section, indented. */
export function printReport({ failure, sections }: RunReport, output: Output): void {
  output.note(`iwarpd: ${failure}`);
  for (const { title, lines } of sections) {
    output.note(`  ${title}:`);
    for (const line of lines) output.note(`    ${line}`);
  }
}

function failureOf({ words, end, open, expectClean }: RunFacts): string | undefined {
  const program = words.join(' ');
  if ('signal' in end) return `${program}: ended by ${end.signal}`;
  if ('status' in end && end.status !== 0) return `${program}: ended with status ${end.status}`;
  const leaked = open.leaks.length + open.endedHolding.length;
  if (expectClean && leaked > 0) return `${program}: succeeded, but left objects open`;
  return undefined;
}
