/**
 * In which order files of tests run, so that neither processor is ever without work.
 *
 * One guest runs at a time, and a file that waits for its turn costs nothing. So files with a guest come
 * first: of three workers one has the guest, the next one waits with its own, and the third runs
 * everything else beside it. The longest of these come early, since a long file at the end runs alone.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Workers for two processors, see above. */
export const WORKERS = 3;

const NEEDS_GUEST = /from '[./]*\/kernel-peer\/kernel-peer\.ts'/;

/** Files that take half a minute or more without a guest, in any order. */
const LONG: readonly string[] = [
  'e2e/cli-control',
  'e2e/cli-daemon',
  'e2e/daemon-hostile',
  'e2e/npm-test',
  'e2e/testing-helpers',
  'interop/arm64-programs',
  'interop/bench-peers',
  'interop/containers',
  'interop/containers-examples',
  'interop/doc-examples',
  'interop/libfabric',
  'interop/package',
  'interop/page',
  'interop/preload-sanitizers',
  'interop/pyverbs',
  'interop/roce-perftest',
  'interop/roce-pyverbs',
  'interop/roce-rdmacm',
  'interop/run-stress',
  'interop/two-users',
  'kill/kill',
  'sim/canaries',
  'sim/explore',
  'sim/roce/canaries',
];

function rank(path: string, text: string): number {
  if (NEEDS_GUEST.test(text)) return 0;
  return LONG.includes(path.replace(/^test\/|\.test\.ts$/g, '')) ? 1 : 2;
}

/** See the module's comment; files of one rank run by their size, the larger ones first. */
export class FileOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const ranked = files.map((file) => {
      const text = readFileSync(file.moduleId, 'utf8');
      const path = relative(this.ctx.config.root, file.moduleId);
      return { file, rank: rank(path, text), size: text.length };
    });
    ranked.sort((a, b) => a.rank - b.rank || b.size - a.size);
    return ranked.map(({ file }) => file);
  }
}
