/** The result of a run as JUnit XML, which CI systems show alongside those of other tests. */
import { xmlAttribute, xmlText } from '../xml-text.ts';
import type { RunReport } from './run-report.ts';

/** The content of the file: one test case. */
export interface JunitRun {
  /** The program and its arguments. */
  readonly words: readonly string[];
  readonly startedAt: Date;
  readonly seconds: number;
  /** Undefined for a run that succeeded. */
  readonly report?: RunReport;
  /** Why the program did not run, or did not end. */
  readonly error?: string;
  readonly properties: Readonly<Record<string, string>>;
  /** The end of the program's output. */
  readonly stdout: string;
  readonly stderr: string;
}

/** Longer names of test cases do not fit a table. */
const NAME_MAX_CHARACTERS = 300;

/** The document: well-formed, whatever the names and output of programs contain. */
export function junitXml(run: JunitRun): string {
  const { words, startedAt, seconds, report, error, properties, stdout, stderr } = run;
  const command = words.join(' ');
  const name =
    command.length > NAME_MAX_CHARACTERS ? `${command.slice(0, NAME_MAX_CHARACTERS)}…` : command;
  const failures = report === undefined ? 0 : 1;
  const errors = error === undefined ? 0 : 1;
  const time = seconds.toFixed(3);
  const counts = `tests="1" failures="${failures}" errors="${errors}" time="${time}"`;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites ${counts}>`,
    `  <testsuite name="iwarpd run" timestamp="${startedAt.toISOString().slice(0, 19)}" ${counts} skipped="0">`,
    '    <properties>',
    ...Object.entries(properties).map(([key, value]) => {
      return `      <property name="${xmlAttribute(key)}" value="${xmlAttribute(value)}"/>`;
    }),
    '    </properties>',
    `    <testcase classname="iwarpd.run" name="${xmlAttribute(name)}" time="${time}">`,
    ...(report === undefined ? [] : [failure(report)]),
    ...(error === undefined ? [] : [`      <error message="${xmlAttribute(error)}"/>`]),
    `      <system-out>${xmlText(stdout)}</system-out>`,
    `      <system-err>${xmlText(stderr)}</system-err>`,
    '    </testcase>',
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n');
}

function failure({ failure: message, sections }: RunReport): string {
  const body = sections.flatMap(({ title, lines }) => [`${title}:`, ...lines]).join('\n');
  return `      <failure message="${xmlAttribute(message)}" type="run">${xmlText(body)}</failure>`;
}
