/** Writes the page to the file named by the first argument; called by `.ci/setup`. */
import { renameSync, writeFileSync } from 'node:fs';
import { bundlePage } from './bundle.ts';

const [, , target] = process.argv;
if (target === undefined) throw new Error('name the file to write');
const page = await bundlePage();
writeFileSync(`${target}.new`, page);
// Atomic: a daemon reading it gets the old page or the new one.
renameSync(`${target}.new`, target);
