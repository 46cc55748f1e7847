// Joins the results of the parts of a run: join-results.mjs RESULT PART…, see `.ci/tally.mjs`.
import { readFileSync, writeFileSync } from 'node:fs';

const [result, ...files] = process.argv.slice(2);
const parts = files.map((file) => JSON.parse(readFileSync(file, 'utf8')));
const tests = parts.flatMap((part) => part.tests);
writeFileSync(result, JSON.stringify({ ...parts[0], tests }));
