/** What `run` prints after a failure: how the program ended, and what its daemon knows about it. */
import type { ResetReport } from '../../../verbs-api/contract/protocol/control.ts';
import type { FaultStatus } from '../../../verbs-api/contract/protocol/faults.ts';
import type { RefusalList } from '../../../verbs-api/contract/protocol/refusals.ts';
import type { Output } from '../../console/output.ts';
import type { Findings } from '../../lint/findings.ts';
import { explainLine } from '../control/explain.ts';
import { faultLines } from '../control/fault.ts';
import { leakLines } from '../control/reset.ts';
import { lintLines, lintTitle } from './lint-lines.ts';
import type { ProgramEnd } from './program-process.ts';

/** A script on the command line may be long; its reader knows it. */
const PROGRAM_MAX_CHARACTERS = 80;
/** Refusals that a report shows, the last ones. */
export const REPORTED_REFUSALS_MAX = 20;
/** More is in the log of the job. */
const ANNOTATION_MAX_CHARACTERS = 2_000;

/** What is known after a program on a private daemon has ended. */
export interface RunFacts {
  /** The program and its arguments. */
  readonly words: readonly string[];
  readonly end: ProgramEnd;
  /** What was open after the end. */
  readonly open: ResetReport;
  /** Open objects are a failure. */
  readonly expectClean: boolean;
  /** Advice that is a failure. */
  readonly findings?: Findings | undefined;
  readonly faults: readonly FaultStatus[];
  /** The last refusals of the daemon, which only the program used. */
  readonly refusals: Pick<RefusalList, 'refusals' | 'last'>;
  /** The last lines of the daemon's log. */
  readonly log: readonly string[];
}

/** One subject of a report. */
interface ReportSection {
  readonly title: string;
  /** How many the section is about, where lines are not what counts. */
  readonly count?: number;
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
  const { open, faults, refusals, log, findings } = facts;
  const fired = faults.filter((fault) => fault.fired > 0);
  const sections = [
    { title: 'lint', lines: findings === undefined ? [] : lintLines(findings) },
    { title: 'objects left open', lines: leakLines(open) },
    { title: 'faults that triggered', lines: fired.length === 0 ? [] : faultLines(fired) },
    { title: 'refusals', count: refusals.last, lines: refusalLines(refusals) },
    { title: 'last lines of the daemon’s log', lines: log },
  ];
  return { failure, sections: sections.filter(({ lines }) => lines.length > 0) };
}

/**
 * The report as a command of GitHub Actions, which shows it beside the job and at the top of its page:
 * the failure, and what the report has more about.
 */
export function githubAnnotation({ failure, sections }: RunReport): string {
  const more = sections.map(({ title, lines, count }) => {
    return `${title}: ${count ?? `${lines.length} lines`}`;
  });
  const text = [failure, ...more].join('\n').slice(0, ANNOTATION_MAX_CHARACTERS);
  const escaped = text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
  return `::error title=iwarpd run::${escaped}`;
}

/** Prints a report to standard error: the failure, then each section, indented. */
export function printReport({ failure, sections }: RunReport, output: Output): void {
  output.note(`iwarpd: ${failure}`);
  for (const { title, lines } of sections) {
    output.note(`  ${title}:`);
    for (const line of lines) output.note(`    ${line}`);
  }
}

/** A line for each refusal, and one for how many there were before; repeats count. */
function refusalLines({ refusals, last }: RunFacts['refusals']): string[] {
  const shown = refusals.reduce((sum, { times }) => sum + times, 0);
  const earlier = last > shown ? [`${last - shown} earlier ones are not shown`] : [];
  return refusals.length === 0 ? [] : [...earlier, ...refusals.map(explainLine)];
}

function programText(words: readonly string[]): string {
  const text = words.join(' ');
  if (text.length <= PROGRAM_MAX_CHARACTERS) return text;
  return `${text.slice(0, PROGRAM_MAX_CHARACTERS)}…`;
}

/** How a program failed, in one line; undefined if it succeeded. */
export function endText(words: readonly string[], end: ProgramEnd): string | undefined {
  const program = programText(words);
  if ('signal' in end) return `${program}: ended by ${end.signal}`;
  if ('status' in end && end.status !== 0) return `${program}: ended with status ${end.status}`;
  return undefined;
}

function failureOf({ words, end, open, expectClean, findings }: RunFacts): string | undefined {
  const leaked = open.leaks.length + open.endedHolding.length;
  const unclean = expectClean && leaked > 0;
  const left = unclean ? `${programText(words)}: succeeded, but left objects open` : undefined;
  const advised = findings !== undefined && findings.list().length > 0;
  const linted = advised
    ? `${programText(words)}: succeeded, but ${lintTitle(findings)}`
    : undefined;
  return endText(words, end) ?? left ?? linted;
}
