/** `npm run docs`: writes the API reference from the docstrings of the package's exports. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { entryPoints } from '../support/public-names.ts';
import { entryPage, indexPage, pageName, undocumented } from './reference.ts';

const USAGE = `usage: npm run docs -- [--out FOLDER]

Writes the API reference as Markdown: README.md, and a page for each entry point of the package.

  --out FOLDER   where to write (default: .cache/docs in the checkout)

Exits non-zero if a public name has no docstring, and lists each one.

example: npm run docs -- --out ../api-reference
`;

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const { values } = parseArgs({
  options: { out: { type: 'string' }, help: { type: 'boolean', short: 'h' } },
});
if (values.help === true) {
  process.stdout.write(USAGE);
} else {
  const out = values.out ?? join(ROOT, '.cache/docs');
  const entries = entryPoints(ROOT);
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, 'README.md'), indexPage(entries));
  for (const entry of entries) {
    writeFileSync(join(out, pageName(entry.specifier)), entryPage(entry));
  }
  const names = entries.reduce((sum, entry) => sum + entry.names.length, 0);
  const place = join(relative(process.cwd(), out) || '.', 'README.md');
  process.stdout.write(`${names} names in ${entries.length} entry points: ${place}\n`);
  const missing = undocumented(entries);
  for (const line of missing) process.stderr.write(`${line} has no docstring\n`);
  process.exitCode = missing.length === 0 ? 0 : 1;
}
