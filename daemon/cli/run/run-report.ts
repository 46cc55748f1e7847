/** The report of `run` after a failure: how the program ended, and its daemon's records of it. */
import { listed } from '#base/listed';
import type { ResetReport } from '#contract/protocol/control';
import type { FaultStatus } from '#contract/protocol/faults';
import type { RefusalList } from '#contract/protocol/refusals';
import type { Output } from '#daemon/console/output';
import type { Findings } from '#daemon/lint/findings';
import { explainLine } from '../control/explain.ts';
import { faultLines, specText } from '../control/fault.ts';
import { leakLines } from '../control/reset.ts';
import { lintLines, lintTitle } from './lint-lines.ts';
import type { ProgramEnd } from './program-process.ts';

/** A script on the command line may be long; the reader knows it. */
const PROGRAM_MAX_CHARACTERS = 80;
/** A report shows this many of the latest refusals. */
export const REPORTED_REFUSALS_MAX = 20;
/** The rest is in the log of the job. */
const ANNOTATION_MAX_CHARACTERS = 2_000;

/** Facts about a program on a private daemon, after it has ended. */
export interface RunFacts {
  /** The program and its arguments. */
  readonly words: readonly string[];
  readonly end: ProgramEnd;
  /** Objects that were open after the end. */
  readonly open: ResetReport;
  /** Open objects are a failure. */
  readonly expectClean: boolean;
  /** Advice that is a failure. */
  readonly findings?: Findings | undefined;
  readonly faults: readonly FaultStatus[];
  /** Number of faults present from the start: those with the lowest numbers. */
  readonly givenFaults: number;
  /** The last refusals of the daemon, which only the program used. */
  readonly refusals: Pick<RefusalList, 'refusals' | 'last'>;
  /** Why files of `--capture` and `--trace` are truncated. */
  readonly unrecorded: readonly string[];
  /** The last lines of the daemon's log. */
  readonly log: readonly string[];
}

interface ReportSection {
  readonly title: string;
  /** Number of items, if it differs from the number of lines. */
  readonly count?: number;
  readonly lines: readonly string[];
}

export interface RunReport {
  /** The failure, in one line. */
  readonly failure: string;
  readonly sections: readonly ReportSection[];
}

/** The report on a failed run; undefined for a successful one. */
export function runReport(facts: RunFacts): RunReport | undefined {
  const failure = failureOf(facts);
  if (failure === undefined) return undefined;
  const { open, faults, refusals, unrecorded, log, findings } = facts;
  const given = faults.filter(({ id }) => id <= facts.givenFaults);
  const fired = faults.filter((fault) => fault.fired > 0);
  const sections = [
    { title: 'recordings that are cut short', lines: unrecorded },
    { title: 'lint', lines: findings === undefined ? [] : lintLines(findings) },
    { title: 'objects left open', lines: leakLines(open) },
    { title: 'faults that triggered', lines: fired.length === 0 ? [] : faultLines(fired) },
    { title: 'faults that never triggered', lines: idleFaultLines(given) },
    { title: 'refusals', count: refusals.last, lines: refusalLines(refusals) },
    { title: 'last lines of the daemon’s log', lines: log },
  ];
  return { failure, sections: sections.filter(({ lines }) => lines.length > 0) };
}

/**
 * The report as a workflow command of GitHub Actions, which shows it beside the job and at the top of
 * its page: the failure, and the titles of the sections.
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

/** A line for each refusal, and one for the number of earlier ones; repeats count. */
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

/** The report on a program on a shared daemon, of which only its end is known. */
export function shortReport(
  words: readonly string[],
  end: ProgramEnd,
  unrecorded: readonly string[],
): RunReport | undefined {
  const cut = unrecorded.length === 0 ? undefined : unrecorded.join(', ');
  const failure = endText(words, end) ?? (cut && `${programText(words)}: succeeded, but ${cut}`);
  if (failure === undefined) return undefined;
  const sections = [{ title: 'recordings that are cut short', lines: unrecorded }];
  return { failure, sections: cut === undefined ? [] : sections };
}

/** How a program failed, in one line; undefined if it succeeded. */
function endText(words: readonly string[], end: ProgramEnd): string | undefined {
  const program = programText(words);
  if ('signal' in end) return `${program}: ended by ${end.signal}`;
  if ('status' in end && end.status !== 0) return `${program}: ended with status ${end.status}`;
  return undefined;
}

/** A line for each fault that never triggered. */
export function idleFaultLines(faults: readonly FaultStatus[]): string[] {
  return faults
    .filter(({ fired }) => fired === 0)
    .map(({ id, spec, matched }) => {
      const occasions = matched === 0 ? '' : `, on ${matched} occasion${matched === 1 ? '' : 's'}`;
      return `fault ${id} (${specText(spec)}) never triggered${occasions}`;
    });
}

/** A fault that should have triggered and did not. With a probability, that is chance from the first event on. */
function isMissed({ spec, matched, fired }: FaultStatus): boolean {
  return fired === 0 && (spec.probability === undefined || matched === 0);
}

/** Why a program that exited with status 0 still failed, in one line; undefined if it did not. */
function faultOfSuccess(facts: RunFacts): string | undefined {
  const { open, expectClean, findings, faults, givenFaults, unrecorded } = facts;
  if (unrecorded.length > 0) return unrecorded.join(', ');
  if (expectClean && open.leaks.length + open.endedHolding.length > 0) return 'left objects open';
  const missed = faults
    .filter((each) => each.id <= givenFaults && isMissed(each))
    .map(({ id }) => String(id));
  if (expectClean && missed.length > 0) {
    return `fault${missed.length === 1 ? '' : 's'} ${listed(missed, 'and')} never triggered`;
  }
  return findings !== undefined && findings.list().length > 0 ? lintTitle(findings) : undefined;
}

function failureOf(facts: RunFacts): string | undefined {
  const { words, end } = facts;
  const failed = endText(words, end);
  if (failed !== undefined) return failed;
  const fault = faultOfSuccess(facts);
  return fault === undefined ? undefined : `${programText(words)}: succeeded, but ${fault}`;
}
