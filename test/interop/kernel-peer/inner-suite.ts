/** Suites that run inside a guest, and their results on the host. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { patience } from '#test/support/patience';
import { repositoryRoot } from '#test/support/prerequisites';
import { type Guest, shellWord } from './kernel-peer.ts';

interface InnerTest {
  readonly name: string;
  readonly status: string;
  readonly messages: readonly string[];
}

/** The part of vitest's JSON report that is read here. */
interface JsonReport {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[] | null;
    }[];
  }[];
}

/** A run that hangs fails with a message before the test that waits for it times out. */
const RUN_MS = 400_000;

/** A compiled program of the tests, by its path below `test`, for the guest to run. */
export function compiledTest(path: string): string {
  const program = join(repositoryRoot(), 'dist/test', path);
  if (!existsSync(program)) throw new Error('dist/ lacks the tests: run npm run build');
  return program;
}

/**
 * Runs files of suites in `guest`, whose shared folder takes the report, with these variables set.
 * A file that fails outside its tests counts as a failed test. Throws with the output if there is no report.
 */
export async function runInGuest(
  guest: Guest,
  share: string,
  files: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<readonly InnerTest[]> {
  const report = join(share, 'inner.json');
  const settings = Object.entries(variables).map(([name, value]) => `${name}=${shellWord(value)}`);
  const words = [compiledTest('interop/kernel-peer/inner-run.js'), report, ...files];
  const { output } = await guest.runToEnd(
    [
      ...settings,
      `timeout -k 1 ${Math.ceil(patience(RUN_MS) / 1000)} node`,
      ...words.map(shellWord),
    ].join(' '),
  );
  if (!existsSync(report)) throw new Error(`the suites left no report in the guest:\n${output}`);
  const { testResults } = JSON.parse(await readFile(report, 'utf8')) as JsonReport;
  return testResults.flatMap(({ name, status, message, assertionResults }) => {
    const tests = assertionResults.map(({ fullName, status: outcome, failureMessages }) => ({
      name: fullName,
      status: outcome,
      messages: failureMessages ?? [],
    }));
    const failed = tests.some((test) => test.status === 'failed');
    return status === 'failed' && !failed
      ? [...tests, { name, status, messages: [message] }]
      : tests;
  });
}
