/**
 * Programs built from source, before the tests: the folder IWARPD_TREES has one for each, named as
 * in README.md. The suite of a program that is not there is skipped and counted; its title says why.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';

const TREES = process.env['IWARPD_TREES'] ?? '';

/** A path in a tree. */
export function treePath(tree: string, ...path: readonly string[]): string {
  return join(TREES, tree, ...path);
}

/** Declares a suite that runs only if the tree has all of these files. */
export function describeWithTree(
  tree: string,
  files: readonly string[],
  title: string,
  body: () => void,
): void {
  const missing = files.map((file) => treePath(tree, file)).filter((path) => !existsSync(path));
  const reason =
    TREES === ''
      ? ' (IWARPD_TREES does not name built programs)'
      : ` (not built: ${missing.join(' ')})`;
  const skipped = TREES === '' || missing.length > 0;
  describe.skipIf(skipped)(skipped ? title + reason : title, body);
}
