/**
 * `npm run coverage:spec`: lists requirement rows by whether a test proves them.
 * With `--json` the same as JSON; with `--all` every row, not only those without a test.
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { binding, readCoverage } from './catalogue.ts';

const { values } = parseArgs({
  options: { json: { type: 'boolean' }, all: { type: 'boolean' } },
});
const root = fileURLToPath(new URL('../../../', import.meta.url));
const coverage = readCoverage(root);

const report = [...coverage.requirements.values()].map((requirement) => {
  const tests = coverage.tests.get(requirement.id) ?? [];
  const code = coverage.code.get(requirement.id) ?? [];
  const reason = coverage.reasons.get(requirement.id);
  const state = tests.length > 0 ? 'covered' : reason !== undefined ? 'reason' : 'uncovered';
  return { ...requirement, state, reason, tests, code };
});

if (values.json) {
  console.log(JSON.stringify(report, null, 2));
} else {
  for (const row of report) {
    if (row.state === 'covered' && !values.all) continue;
    const where = row.tests.map((test) => `${test.file}:${test.line}`).join(' ');
    console.log(
      `${row.state.padEnd(9)} ${row.id.padEnd(16)} ${row.level.padEnd(10)} ` +
        `RFC ${row.rfc} §${row.section} ${row.reason ?? where}`,
    );
  }
  for (const level of ['MUST', 'MUST NOT', 'SHOULD', 'SHOULD NOT', 'MAY', 'FACT']) {
    const of = report.filter((row) => row.level === level);
    const count = (state: string): number => of.filter((row) => row.state === state).length;
    console.log(
      `${level.padEnd(10)} ${of.length} rows: ${count('covered')} covered by a test, ` +
        `${count('reason')} with a reason, ${count('uncovered')} uncovered`,
    );
  }
}
const missing = report.filter((row) => binding(row) && row.state === 'uncovered').length;
process.exitCode = missing === 0 ? 0 : 1;
