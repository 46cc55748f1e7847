/**
 * Chooses which test files run beside each other and in which order, to keep both processors busy.
 * `.ci/test` runs the suites with a guest beside all others. In both groups the longest run first,
 * since a long file at the end would run alone.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Parts of a full run, which `.ci/test` starts side by side; each has its own runner. */
type Part = 'guests' | 'others';

const NEEDS_GUEST = /from '[./]*\/kernel-peer\/kernel-peer\.ts'/;

/** Suites that boot a kernel as peer, as paths from the top of the checkout. */
function guestFiles(): string[] {
  const folder = 'test/interop';
  return readdirSync(folder, { encoding: 'utf8', recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join(folder, name))
    .filter((path) => NEEDS_GUEST.test(readFileSync(path, 'utf8')));
}

/** The suites of a runner: the part in the environment, or all. */
export function partOfRun(): {
  readonly include: readonly string[];
  readonly exclude: readonly string[];
  readonly workers: number;
} {
  switch (process.env['IWARPD_PART'] as Part | undefined) {
    case 'guests':
      return { include: guestFiles(), exclude: [], workers: 2 };
    case 'others':
      // One more than processors, since suites that wait for a program's timeouts leave one idle.
      return { include: [], exclude: guestFiles(), workers: 3 };
    case undefined:
      return { include: [], exclude: [], workers: 2 };
  }
}

/** Files that take half a minute or more, those with a guest two minutes, in any order. */
const LONG: readonly string[] = [
  'e2e/cli-control',
  'e2e/cli-daemon',
  'e2e/cli-instances',
  'e2e/conform',
  'e2e/daemon-hostile',
  'e2e/daemon-kill',
  'e2e/npm-test',
  'e2e/rping',
  'e2e/testing-helpers',
  'interop/arm64-programs',
  'interop/bench-peers',
  'interop/ceph',
  'interop/containers',
  'interop/containers-examples',
  'interop/doc-examples',
  'interop/faults',
  'interop/kernel-sctp',
  'interop/libfabric',
  'interop/many-jobs',
  'interop/native-siw',
  'interop/nfs-kernel',
  'interop/package',
  'interop/page',
  'interop/perftest',
  'interop/preload-sanitizers',
  'interop/pyverbs',
  'interop/rdma-core',
  'interop/roce-perftest',
  'interop/roce-pyverbs',
  'interop/roce-rdmacm',
  'interop/run-stress',
  'interop/rxe-peer',
  'interop/sctp-devices',
  'interop/siw-rping',
  'interop/two-users',
  'interop/user-shares',
  'kill/kill',
  'sim/canaries',
  'sim/explore',
];

/** See the module's comment; among the long files and among the others, the larger run first. */
export class FileOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const ranked = files.map((file) => {
      const path = relative(this.ctx.config.root, file.moduleId);
      const isLong = LONG.includes(path.replace(/^test\/|\.test\.ts$/g, ''));
      return { file, rank: isLong ? 0 : 1, size: readFileSync(file.moduleId).length };
    });
    ranked.sort((a, b) => a.rank - b.rank || b.size - a.size);
    return ranked.map(({ file }) => file);
  }
}
