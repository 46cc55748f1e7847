/** The results of the last full run, and whether it tested these sources. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** One test of a run. */
export interface TestResult {
  /** From the top of the checkout. */
  readonly file: string;
  /** Titles of its suites and its own, joined by ` > `. */
  readonly title: string;
  readonly state: 'passed' | 'failed' | 'skipped';
}

/** A run, as `.ci/tally.mjs` writes it. */
interface Results {
  /** True when only some suites were run. */
  readonly partial: boolean;
  /** `sourceFingerprint` when the run began. */
  readonly fingerprint: string;
  readonly tests: readonly TestResult[];
}

/** Where `.ci/test` writes the results. */
const RESULTS_FILE = '.cache/results';

const SOURCE_FOLDERS = ['daemon', 'native-bridge', 'test', 'verbs-api'];
const SOURCE = /\.(?:ts|c|h|sh|json|py)$/;
/** This folder judges tests; no test runs it. */
const JUDGES = 'test/spec/';

/** A hash of every source that tests run, so that results of other sources are recognised. */
export function sourceFingerprint(root: string): string {
  const files = SOURCE_FOLDERS.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && SOURCE.test(entry.name))
      .map((entry) => relative(root, join(entry.parentPath, entry.name))),
  ).filter((file) => !file.startsWith(JUDGES));
  const hash = createHash('sha256');
  for (const file of files.sort()) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest('hex');
}

/** The results of the last run, or why there are none to trust, and what to do. */
export function readResults(root: string): Results | string {
  let text: string;
  try {
    text = readFileSync(join(root, RESULTS_FILE), 'utf8');
  } catch {
    return `there are no test results in ${RESULTS_FILE}; run npm test first`;
  }
  return JSON.parse(text) as Results;
}

/** Why results prove nothing about these sources; undefined when they do. */
export function distrust(root: string, results: Results): string | undefined {
  if (results.partial) {
    return 'the last test run covered some suites only; run npm test without arguments first';
  }
  if (results.fingerprint !== sourceFingerprint(root)) {
    return 'the last test run tested other sources than these; run npm test again';
  }
  return undefined;
}
