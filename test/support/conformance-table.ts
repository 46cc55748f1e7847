/** The table of daemon/CONFORMANCE.md: what each implementation does in each row of `iwarpd conform`. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from './prerequisites.ts';

/** A column of the table. */
type Implementation = 'iwarpd' | 'Linux';

/** Verdict by row id: `pass`, `FAIL` or `skip`. */
type Verdicts = Readonly<Record<string, string>>;

/** A line: id, what is tested, iwarpd's verdict, Linux's verdict. */
const LINE = /^\| `([A-Z][A-Z0-9.-]+)` +\| (.*?) *\| (\w+) *\| (\w+)(?: \[\w+\])? *\|$/gm;

/** The verdicts of the document for the rows of one protocol. */
export function documentedVerdicts(wire: 'RoCEv2' | 'iWARP', column: Implementation): Verdicts {
  const text = readFileSync(join(repositoryRoot(), 'daemon/CONFORMANCE.md'), 'utf8');
  const [, roce = '', iwarp = ''] = /## RoCEv2\n(.*)## iWARP\n(.*)/s.exec(text) ?? [];
  const rows = [...(wire === 'RoCEv2' ? roce : iwarp).matchAll(LINE)];
  return Object.fromEntries(
    rows.map(([, id, , iwarpd, linux]) => [id, column === 'iwarpd' ? iwarpd : linux]),
  );
}

/** The verdicts in the JSON that `iwarpd conform --json` printed for one protocol, and their details. */
export function printedVerdicts(json: string): { verdicts: Verdicts; details: readonly string[] } {
  const { reports } = JSON.parse(json) as {
    reports: { results: { id: string; verdict: string; detail?: string }[] }[];
  };
  const results = reports.flatMap((report) => report.results);
  return {
    verdicts: Object.fromEntries(
      results.map(({ id, verdict }) => [id, verdict === 'fail' ? 'FAIL' : verdict]),
    ),
    details: results.flatMap(({ id, detail }) =>
      detail === undefined ? [] : [`${id}: ${detail}`],
    ),
  };
}
