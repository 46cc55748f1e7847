/** Writes the page to the file that the first argument names; `.ci/setup` calls it. */
import { renameSync, writeFileSync } from 'node:fs';
import { bundlePage } from './bundle.ts';

const [, , target] = process.argv;
if (target === undefined) throw new Error('name the file to write');
const page = await bundlePage();
writeFileSync(`${target}.new`, page);
// A daemon that reads it right now gets the old one or the new one, never a half.
renameSync(`${target}.new`, target);
