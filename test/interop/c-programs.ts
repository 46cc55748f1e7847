/** Compiles the C and C++ programs of `programs`. */
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
  return compile(['gcc', '-std=gnu11'], `${name}.c`, options, path);
}

/** Compiles `programs/NAME.cc` into a new folder, and returns the program's path. */
export function compileCppProgram(name: string, options: readonly string[]): string {
  return compile(['g++', '-std=gnu++17'], `${name}.cc`, options, join(temporaryFolder(), name));
}

function compile(
  [compiler, standard]: readonly [string, string],
  file: string,
  options: readonly string[],
  path: string,
): string {
  const source = join(repositoryRoot(), 'test/interop/programs', file);
  const flags = [standard, '-Wall', '-Werror', '-O1', '-pthread', source, '-o', path];
  const words = [...flags, ...options, '-libverbs'];
  const { status, stderr } = spawnSync(compiler, words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return path;
}
