/** Folders of tests, which the setup of each test file removes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const made: string[] = [];

/** A new folder in `parent`, removed after the last test of the file. */
export function temporaryFolder(parent = tmpdir()): string {
  const path = mkdtempSync(join(parent, 'iwarpd-test-'));
  made.push(path);
  return path;
}

/** Removes those made so far. */
export function removeTemporaryFolders(): void {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
}
