/**
 * `npm run coverage:spec`: which requirements the last full run of the tests proved, and how well.
 * `--help` describes the options.
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { GROUPS, groupOf, type Requirement, readCoverage, SEEN_BY } from './catalogue.ts';
import { PROOF_LEVELS, ProofLevels } from './proof-levels.ts';
import { idleReasons, type Judged, judge, openRows, suffices } from './proofs.ts';
import { distrust, readResults } from './results.ts';

const USAGE = `usage: npm run coverage:spec -- [options] [ID ...]

Lists the requirements that the last full run of npm test did not prove as they should be, then
counts all. With IDs: what each demands, and which tests prove it.

  --all      list every requirement
  --json     print everything as JSON
  --anyway   use results of a partial run, or of other sources

Exits non-zero if a MUST or MUST NOT is neither proven nor has a reason in test/spec/reasons.tsv.

example: npm run coverage:spec -- DDP-6.2.1-02`;

const REQUIREMENT_LEVELS = ['MUST', 'MUST NOT', 'SHOULD', 'SHOULD NOT', 'MAY', 'FACT'];

/** The status of a row, in one word. */
function standing(row: Judged): string {
  if (row.proven !== undefined) return row.proven;
  if (row.tests.some(({ state }) => state === 'failed')) return 'failed';
  return row.tests.length > 0 ? 'skipped' : 'none';
}

function head(requirement: Requirement): string {
  const { id, source, section, level, seen } = requirement;
  const place =
    groupOf(requirement) === 'RFCs' ? `RFC ${source} §${section}` : `${source} ${section}`;
  return `${id.padEnd(18)} ${level.padEnd(10)} ${seen.padEnd(8)} ${place}`;
}

function describeRow(row: Judged): string {
  const lines = [`${head(row.requirement)}: ${standing(row)}`, `  ${row.requirement.text}`];
  if (row.reason !== undefined) lines.push(`  reason: ${row.reason}`);
  for (const { level, state, file, title } of row.tests) {
    lines.push(`  ${level.padEnd(7)} ${state.padEnd(7)} ${file}: ${title}`);
  }
  return lines.join('\n');
}

/** Counts by level of requirement, who sees it, and how it is proven. */
function table(name: string, judged: readonly Judged[]): string {
  const columns = [...PROOF_LEVELS, 'skipped', 'failed', 'none', 'reason'];
  const cell = (text: string | number): string => String(text).padStart(8);
  const lines = [`${name.padEnd(20)}${cell('rows')}${columns.map(cell).join('')}`];
  for (const level of REQUIREMENT_LEVELS) {
    for (const seen of SEEN_BY) {
      const rows = judged.filter(
        ({ requirement }) => requirement.level === level && requirement.seen === seen,
      );
      const counts = columns.map((column) => {
        if (column === 'reason') return rows.filter(({ reason }) => reason !== undefined).length;
        return rows.filter((row) => standing(row) === column).length;
      });
      lines.push(
        `${`${level} ${seen}`.padEnd(20)}${cell(rows.length)}${counts.map(cell).join('')}`,
      );
    }
  }
  return lines.join('\n');
}

function fail(message: string): never {
  console.error(`coverage:spec: ${message}`);
  process.exit(1);
}

const { values, positionals } = parseArgs({
  options: {
    json: { type: 'boolean' },
    all: { type: 'boolean' },
    anyway: { type: 'boolean' },
    gate: { type: 'boolean' },
    help: { type: 'boolean' },
  },
  allowPositionals: true,
});
if (values.help === true) {
  console.log(USAGE);
  process.exit(0);
}
const root = fileURLToPath(new URL('../../../', import.meta.url));
const results = readResults(root);
if (typeof results === 'string') fail(results);
// `npm test` passes --gate right after the run: trust the results even if files were edited
// meanwhile.
const trusted = values.anyway === true || values.gate === true;
const doubt = trusted ? undefined : distrust(root, results);
if (doubt !== undefined) fail(doubt);

const coverage = readCoverage(root);
const judged = judge(coverage, results.tests, new ProofLevels(root));
const open = openRows(judged);
const idle = idleReasons(judged);

if (values.json === true) {
  console.log(JSON.stringify(judged, null, 2));
} else if (positionals.length > 0) {
  for (const id of positionals) {
    const row = judged.find(({ requirement }) => requirement.id === id);
    if (row === undefined) fail(`there is no requirement ${id}`);
    console.log(describeRow(row));
  }
} else {
  const listed = values.all === true ? judged : judged.filter((row) => !suffices(row));
  for (const row of values.gate === true ? open : listed) {
    console.log(`${standing(row).padEnd(8)} ${head(row.requirement)}`);
  }
  for (const { requirement } of idle) {
    console.log(`${requirement.id} is proven, but has a reason in test/spec/reasons.tsv`);
  }
}
if (positionals.length === 0 && values.json !== true) {
  for (const group of GROUPS) {
    const inGroup = ({ requirement }: Judged): boolean => groupOf(requirement) === group;
    if (values.gate !== true) console.log(table(group, judged.filter(inGroup)));
    const { length } = open.filter(inGroup);
    console.log(`${group}: ${length} MUST and MUST NOT without a sufficient proof or a reason`);
  }
}
process.exitCode = open.length + idle.length === 0 ? 0 : 1;
