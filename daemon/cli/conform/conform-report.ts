/** The results of a conformance test as text, JSON and JUnit XML. */
import { VERSION } from '#daemon/main/version';
import { xmlAttribute } from '../xml-text.ts';
import type { RowResult, Verdict } from './row.ts';

/** The results of one wire. */
export interface WireReport {
  readonly wire: 'RoCEv2' | 'iWARP';
  readonly address: string;
  readonly port: number;
  /** True if the peer offers memory, which many rows need. */
  readonly memory: boolean;
  readonly startedAt: Date;
  readonly results: readonly RowResult[];
}

const VERDICTS: readonly Verdict[] = ['pass', 'fail', 'skip', 'error'];
const NAMES: Readonly<Record<Verdict, string>> = {
  pass: 'pass',
  fail: 'FAIL',
  skip: 'skip',
  error: 'ERROR',
};

/** The line of one row; below it, the reason for a verdict other than `pass`. */
export function resultLines({ verdict, id, title, level, source, detail }: RowResult): string[] {
  const sort = level === 'must' ? '' : ` (${level})`;
  const line = `${NAMES[verdict].padEnd(5)} ${id.padEnd(20)} ${title}${sort}  [${source}]`;
  return detail === undefined ? [line] : [line, `${' '.repeat(6)}${detail}`];
}

/** `RoCEv2 at 10.1.0.1: 50 passed, 1 failed, 3 skipped`. */
export function totalLine({ wire, address, results }: WireReport): string {
  const count = (verdict: Verdict) => results.filter((each) => each.verdict === verdict).length;
  const [passed, failed, skipped, errors] = VERDICTS.map(count);
  const broken = errors === 0 ? '' : `, ${errors} in error`;
  return `${wire} at ${address}: ${passed} passed, ${failed} failed, ${skipped} skipped${broken}`;
}

/** True if the row shows that the peer does not conform. */
export function isViolation({ level, verdict }: RowResult): boolean {
  return level === 'must' && (verdict === 'fail' || verdict === 'error');
}

/** The JSON document that `--json` prints. */
export function conformJson(reports: readonly WireReport[]): string {
  return JSON.stringify({ format: 1, version: VERSION, reports }, undefined, 2);
}

/** The XML document for `--junit`: a suite for each wire, a test case for each row. */
export function conformJunit(reports: readonly WireReport[]): string {
  const suites = reports.flatMap((report) => suiteLines(report));
  const head = '<?xml version="1.0" encoding="UTF-8"?>';
  return [head, '<testsuites>', ...suites, '</testsuites>', ''].join('\n');
}

function suiteLines({ wire, address, startedAt, results }: WireReport): string[] {
  const count = (verdict: Verdict) => results.filter((each) => each.verdict === verdict).length;
  const seconds = results.reduce((sum, each) => sum + each.seconds, 0);
  const counts = `tests="${results.length}" failures="${count('fail')}" errors="${count('error')}" skipped="${count('skip')}"`;
  const name = xmlAttribute(`iwarpd conform, ${wire} at ${address}`);
  const timestamp = startedAt.toISOString().slice(0, 19);
  return [
    `  <testsuite name="${name}" timestamp="${timestamp}" ${counts} time="${seconds.toFixed(3)}">`,
    ...results.flatMap((result) => caseLines(wire, result)),
    '  </testsuite>',
  ];
}

const ELEMENTS = { fail: 'failure', error: 'error', skip: 'skipped' } as const;

function caseLines(wire: string, { id, title, verdict, detail, seconds }: RowResult): string[] {
  const name = xmlAttribute(`${title} [${id}]`);
  const start = `    <testcase classname="conform.${wire}" name="${name}" time="${seconds.toFixed(3)}"`;
  if (verdict === 'pass') return [`${start}/>`];
  return [
    `${start}>`,
    `      <${ELEMENTS[verdict]} message="${xmlAttribute(detail ?? '')}"/>`,
    '    </testcase>',
  ];
}
