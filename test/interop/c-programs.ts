/** Compiles the C programs of `programs`. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { repositoryRoot } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Compiles `programs/NAME.c`, by default into a new folder, and returns the program's path. */
export function compileProgram(
  name: string,
  options: readonly string[] = [],
  path = join(temporaryFolder(), name),
): string {
  const source = join(repositoryRoot(), 'test/interop/programs', `${name}.c`);
  const flags = ['-std=gnu11', '-Wall', '-Werror', '-O1', '-pthread', source, '-o', path];
  const words = [...flags, ...options, '-libverbs'];
  const { status, stderr } = spawnSync('gcc', words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return path;
}
