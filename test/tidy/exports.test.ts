/**
 * An export is a promise to other files. One without an importer only hides what may change; one
 * with the name of another misleads a reader who searches for it.
 */
import { describe, expect, it } from 'vitest';
import { exportsOf, importsOf, readSource, readSources } from './source-graph.ts';

/** The files in package.json's "exports": their exports are for programs outside. */
function publicEntries(): string[] {
  const manifest: unknown = JSON.parse(readSource('package.json'));
  const { exports } = manifest as { exports: Record<string, { default: string } | string> };
  // A string is a file that is not a module: package.json.
  return Object.values(exports).flatMap((entry) =>
    typeof entry === 'string' ? [] : entry.default.replace('./dist/', '').replace(/\.js$/, '.ts'),
  );
}

/**
 * Types that the compiler must be able to name in another file's declarations (TS4023): the
 * arguments and results in the type of `NFS3`.
 */
const NAMED_BY_THE_COMPILER = ['verbs-api/nfs/nfs3/name-procedures.ts: MakeNodeArgs'];

/** Exports of `texts` that no other file imports, as `file: name`. */
function deadExports(texts: ReadonlyMap<string, string>, entries: readonly string[]): string[] {
  const used = new Set<string>();
  for (const [file, text] of texts) {
    for (const { target, names } of importsOf(file, text)) {
      for (const name of names) used.add(`${target}: ${name}`);
    }
  }
  return (
    [...texts]
      .filter(([file]) => !entries.includes(file) && !used.has(`${file}: *`))
      // A suite exports nothing; it may quote sources that do.
      .filter(([file]) => !file.endsWith('.test.ts'))
      .flatMap(([file, text]) => exportsOf(text).map((name) => `${file}: ${name}`))
      .filter((name) => !used.has(name))
  );
}

/** Exports that only tests import and that their own file does not use: nothing that ships runs them. */
function testedOnly(texts: ReadonlyMap<string, string>, entries: readonly string[]): string[] {
  const shipped = new Map([...texts].filter(([file]) => !file.startsWith('test/')));
  return deadExports(shipped, entries).filter((entry) => {
    const [file = '', name = ''] = entry.split(': ');
    const mentions = texts.get(file)?.match(new RegExp(`\\b${name}\\b`, 'g')) ?? [];
    return mentions.length === 1;
  });
}

/** Names with one meaning in two places. */
const SAME_MEANING: readonly (readonly [string, string])[] = [
  // The public interface, and the emulated object or argument that stands for it; see GLOSSARY.md.
  ['daemon/contract/verbs/', 'daemon/rnic/'],
  // One role over a command channel and over rdma-core.
  ['verbs-api/client/', 'verbs-api/native/'],
  // The words of the InfiniBand specification, and of RFC 8166.
  ['daemon/roce/transport/requester.ts', 'verbs-api/rpcrdma/core/requester.ts'],
  ['daemon/roce/transport/responder.ts', 'verbs-api/rpcrdma/core/responder.ts'],
];

const TYPE_DECLARATION = /^export (?:declare )?(?:abstract )?(?:class|interface|type) (\w+)/gm;

/** Exported types of product code named like a type of an earlier file, as `name: file, file`. */
function ambiguous(texts: ReadonlyMap<string, string>): string[] {
  const found = new Map<string, string[]>();
  for (const [file, text] of texts) {
    if (file.startsWith('test/')) continue;
    for (const [, name = ''] of text.matchAll(TYPE_DECLARATION)) {
      found.set(name, [...(found.get(name) ?? []), file]);
    }
  }
  return [...found]
    .filter(([, places]) => places.length > 1)
    .map(([name, places]) => [name, places.sort()] as const)
    .filter(([, [one = '', other = '', ...rest]]) => {
      const same = SAME_MEANING.some(([a, b]) => one.startsWith(a) && other.startsWith(b));
      return rest.length > 0 || !same;
    })
    .map(([name, places]) => `${name}: ${places.join(', ')}`);
}

describe('exports', () => {
  const texts = readSources();
  const entries = publicEntries();

  it('finds the public entry points', () => {
    expect(entries.length).toBeGreaterThan(3);
    expect(entries.filter((file) => !texts.has(file))).toEqual([]);
  });

  it('are each imported by another file', () => {
    expect(deadExports(texts, entries).sort()).toEqual(NAMED_BY_THE_COMPILER);
  });

  it('do not exist only for their own tests', () => {
    expect(testedOnly(texts, entries)).toEqual([]);
  });

  it('name one thing each', () => {
    expect(ambiguous(texts)).toEqual([]);
  });

  it('are found ambiguous when two files that ship declare a type', () => {
    const example = new Map([
      ['a.ts', 'export class Link {}\nexport type Once = 1;\n'],
      ['b.ts', 'export interface Link {}\ninterface Once {}\n'],
      ['daemon/contract/verbs/provider.ts', 'export interface QP {}\n'],
      ['daemon/rnic/queue-pair.ts', 'export class QP {}\n'],
      ['test/rig.ts', 'export class Once {}\n'],
    ]);
    expect(ambiguous(example)).toEqual(['Link: a.ts, b.ts']);
  });

  it('are found dead when no file imports them, and alive through a re-export or a namespace', () => {
    const example = new Map([
      ['a.ts', 'export const used = 1;\nexport function dead(): void {}\nexport { x as y };\n'],
      ['b.ts', "import {\n  type used,\n} from './a.ts';\n"],
      ['c.ts', 'export interface Whole {}\n'],
      ['d.ts', "const c = await import('./c.ts');\n"],
      ['e.ts', '/* export const gone = 1; */\nexport class Passed {}\n'],
      ['entry.ts', "export { Passed } from './e.ts';\n"],
    ]);
    expect(deadExports(example, ['entry.ts'])).toEqual(['a.ts: dead', 'a.ts: y']);
  });

  it('are found to serve only tests when their own file does not use them', () => {
    const example = new Map([
      ['a.ts', 'export const LIMIT = 1;\nexport const idle = 2;\nexport const run = LIMIT;\n'],
      ['b.ts', "import { run } from './a.ts';\n"],
      ['test/a.test.ts', "import { idle, LIMIT } from '../a.ts';\n"],
    ]);
    expect(testedOnly(example, [])).toEqual(['a.ts: idle']);
  });
});
