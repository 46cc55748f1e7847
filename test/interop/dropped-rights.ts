/** The program that drops privileges (programs/dropped-rights.c). */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { repositoryRoot } from '../support/prerequisites.ts';

/** Ways to drop privileges; the first drops none. */
export const HOWS = ['nothing', 'chroot', 'setuid', 'seteuid'] as const;

/** Compiles the program to `path`. */
export function compileDroppedRights(path: string): void {
  const source = join(repositoryRoot(), 'test/interop/programs/dropped-rights.c');
  const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', source, '-o', path];
  const { status, stderr } = spawnSync('gcc', [...words, '-lrdmacm', '-libverbs'], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
}
