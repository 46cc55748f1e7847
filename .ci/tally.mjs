// A vitest reporter that leaves the tally of a run, what failed, what it skipped, and what passed on a
// second attempt only, in the file $IWARPD_TALLY, and every test's outcome in $IWARPD_RESULTS.
import { writeFileSync } from 'node:fs';
import { sourceFingerprint } from '../dist/test/spec/results.js';

/** The outermost suite of a test, by which skipped tests are named together. */
function outermostSuite(test) {
  let suite = test.parent;
  while (suite.type === 'suite' && suite.parent.type === 'suite') suite = suite.parent;
  return suite.type === 'suite' ? suite.name : test.name;
}

/** The cause in a line of the tally. */
const CAUSE_LENGTH = 400;

/** The first error in one line. */
function causeOf(errors) {
  const lines = errors[0]?.message.split('\n').filter((line) => line.trim() !== '');
  return lines?.join(' | ').slice(0, CAUSE_LENGTH) ?? 'not ended';
}

/** Counts tests. A hook or file that fails, and an error outside any test, each count as one. */
// biome-ignore lint/style/noDefaultExport: vitest loads a reporter by its default export.
export default class TallyReporter {
  // Taken at the start, so results of sources edited during the run are not trusted.
  fingerprint = sourceFingerprint('.');

  onTestRunEnd(testModules, unhandledErrors) {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    const skippedBySuite = new Map();
    const lines = [];
    const tests = [];
    for (const testModule of testModules) {
      if (testModule.errors().length > 0) {
        count.failed += 1;
        lines.push(
          `failed ${testModule.relativeModuleId}: the file: ${causeOf(testModule.errors())}`,
        );
      }
      for (const suite of testModule.children.allSuites()) {
        if (suite.errors().length === 0) continue;
        count.failed += 1;
        const cause = causeOf(suite.errors());
        lines.push(`failed ${testModule.relativeModuleId}: hooks of ${suite.fullName}: ${cause}`);
      }
      for (const test of testModule.children.allTests()) {
        const { state } = test.result();
        const outcome = state === 'pending' ? 'failed' : state;
        count[outcome] += 1;
        tests.push({ file: testModule.relativeModuleId, title: test.fullName, state: outcome });
        if (outcome === 'failed') {
          const cause = causeOf(test.result().errors ?? []);
          lines.push(`failed ${testModule.relativeModuleId}: ${test.fullName}: ${cause}`);
        }
        if (test.diagnostic()?.flaky) {
          const cause = causeOf(test.result().errors ?? []);
          lines.push(
            `passed on a second attempt ${testModule.relativeModuleId}: ${test.fullName}: ${cause}`,
          );
        }
        if (state !== 'skipped') continue;
        const name = `${testModule.relativeModuleId}: ${outermostSuite(test)}`;
        skippedBySuite.set(name, (skippedBySuite.get(name) ?? 0) + 1);
      }
    }
    for (const error of unhandledErrors) lines.push(`failed outside any test: ${error.message}`);
    for (const [name, tests] of skippedBySuite) lines.push(`skipped ${name}, tests: ${tests}`);
    lines.push(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
    writeFileSync(process.env.IWARPD_TALLY, `${lines.join('\n')}\n`);
    const partial = process.env.IWARPD_PARTIAL === '1';
    const results = { partial, fingerprint: this.fingerprint, tests };
    writeFileSync(process.env.IWARPD_RESULTS, JSON.stringify(results));
  }
}
