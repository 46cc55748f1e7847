/** Which folders may import which, as daemon/ARCHITECTURE.md draws them. */
import { describe, expect, it } from 'vitest';
import { importsOf, pureFolders, readSources } from './source-graph.ts';

interface Layer {
  /** Folders that the rule is for. */
  readonly of: readonly string[];
  /** All that they may import. */
  readonly may: readonly string[];
}

const LAYERS: readonly Layer[] = [
  { of: pureFolders, may: pureFolders },
  { of: ['daemon/base/'], may: ['daemon/base/'] },
  { of: ['daemon/contract/verbs/'], may: ['daemon/base/', 'daemon/contract/verbs/'] },
  { of: ['daemon/rnic/'], may: ['daemon/rnic/', 'daemon/base/', 'daemon/contract/'] },
  { of: ['native-bridge/'], may: ['native-bridge/', 'daemon/base/', 'daemon/contract/verbs/'] },
  { of: ['verbs-api/'], may: ['verbs-api/', 'native-bridge/', 'daemon/base/', 'daemon/contract/'] },
];

/** Folders that only these import: no product code lies above them. */
const TOP: Readonly<Record<string, readonly string[]>> = {
  'daemon/cli/': ['daemon/cli/'],
  'daemon/bench/': ['daemon/bench/', 'daemon/cli/'],
  'daemon/main/': ['daemon/main/', 'daemon/cli/'],
};

const sources = readSources();
const shipped = new Map([...sources].filter(([file]) => !file.startsWith('test/')));
const isIn = (file: string, folders: readonly string[]): boolean =>
  folders.some((folder) => file.startsWith(folder));

/** Imports of `texts` that break a rule, as `file: target`. */
function trespasses(texts: ReadonlyMap<string, string>): string[] {
  const edges = [...texts].flatMap(([file, text]) =>
    importsOf(file, text).map(({ target }) => ({ file, target })),
  );
  return edges
    .filter(({ file, target }) => {
      const climbs = Object.entries(TOP).some(
        ([top, users]) => target.startsWith(top) && !isIn(file, users),
      );
      return climbs || LAYERS.some(({ of, may }) => isIn(file, of) && !isIn(target, may));
    })
    .map(({ file, target }) => `${file}: ${target}`);
}

describe('layers', () => {
  it('name folders that exist', () => {
    const named = [...LAYERS.flatMap(({ of, may }) => [...of, ...may]), ...Object.keys(TOP)];
    const missing = named.filter(
      (folder) => ![...shipped.keys()].some((file) => isIn(file, [folder])),
    );
    expect(missing).toEqual([]);
  });

  it('import only the layers below them', () => {
    expect(trespasses(shipped)).toEqual([]);
  });

  it('of tests import shared code from support, and no other suite', () => {
    const across = [...sources]
      .filter(([file]) => /^test\/[^/]+\//.test(file) && !file.startsWith('test/tidy/'))
      .flatMap(([file, text]) => importsOf(file, text).map(({ target }) => ({ file, target })))
      .filter(({ file, target }) => {
        const [suite] = /^test\/[^/]+\//.exec(file) ?? [''];
        return target.startsWith('test/') && !isIn(target, [suite, 'test/support/']);
      });
    expect(across.map(({ file, target }) => `${file}: ${target}`)).toEqual([]);
  });

  it('of pure code import no module of Node', () => {
    const outside = [...shipped].filter(
      ([file, text]) => isIn(file, pureFolders) && /from 'node:/.test(text),
    );
    expect(outside.map(([file]) => file)).toEqual([]);
  });

  it('are seen to be broken upwards, sideways and through types', () => {
    const example = new Map([
      ['daemon/rnic/x.ts', "import type { Stream } from '../iwarp/engine/stream.ts';\n"],
      ['native-bridge/rdma/y.ts', "import { z } from '#verbs-api/client/z';\n"],
      ['daemon/console/a.ts', "import { b } from '../cli/b.ts';\n"],
      ['daemon/cli/c.ts', "import { d } from '../main/d.ts';\n"],
    ]);
    expect(trespasses(example)).toEqual([
      'daemon/rnic/x.ts: daemon/iwarp/engine/stream.ts',
      'native-bridge/rdma/y.ts: verbs-api/client/z.ts',
      'daemon/console/a.ts: daemon/cli/b.ts',
    ]);
  });
});
