import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { entryPoints } from '../support/public-names.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { entryPage, indexPage, undocumented } from './reference.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

mkdirSync(join(ROOT, '.cache'), { recursive: true });
const folder = temporaryFolder(join(ROOT, '.cache'));

/** The entry points of a package with `source` as its only source file. */
function entriesOf(source: string) {
  const manifest = { name: 'small', exports: { '.': { types: './dist/main.d.ts' } } };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  const options = { module: 'NodeNext', strict: true, allowImportingTsExtensions: true };
  const project = { compilerOptions: { ...options, noEmit: true }, files: ['main.ts'] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(project));
  writeFileSync(join(folder, 'main.ts'), source);
  return entryPoints(folder);
}

describe('the API reference', () => {
  it('describes every name and every member that programs can import', () => {
    const entries = entryPoints(ROOT);
    expect(entries.map(({ specifier }) => specifier)).toContain('iwarpd/testing');
    const names = entries.flatMap((entry) => entry.names.map(({ name }) => name));
    expect(names).toEqual(expect.arrayContaining(['connect', 'QP', 'createNative', 'listenRpc']));
    expect(undocumented(entries)).toEqual([]);
  });

  it('shows and checks the members of a base that is not exported', () => {
    const [entry] = entriesOf(`
interface Named {
  /** Its name. */
  readonly title: string;
  readonly bare: number;
}
/** A shape. */
export interface Shape extends Named {
  /** Number of sides. */
  readonly sides: number;
}`);
    expect(entry?.names.map(({ name }) => name)).toEqual(['Shape']);
    const [shape] = entry?.names ?? [];
    expect(shape?.doc).toBe('A shape.');
    expect(shape?.code).toContain('Its name.');
    expect(shape?.undocumented).toEqual(['Shape.bare']);
  });

  it('documents types that signatures name though programs cannot import them', () => {
    const [entry] = entriesOf(`
/** Metres. */
interface Length<T> {
  readonly metres: T;
}
type Corner = {
  /** Degrees. */
  readonly angle: number;
};
/** Options. */
interface HiddenOptions {
  /** Corners. */
  readonly corners?: readonly Corner[];
}
interface Unseen {
  readonly secret: number;
}
/** A shape. */
export class Shape {
  #unseen: Unseen = { secret: 1 };
  /** Its sides. */
  sides(_options: HiddenOptions = {}): Map<string, Length<number>> {
    const inner: Unseen = this.#unseen;
    return new Map([['a', { metres: inner.secret }]]);
  }
}`);
    if (entry === undefined) throw new Error('there is no entry point');
    const names = entry.names.map(({ name, exported }) => [name, exported]);
    expect(names).toEqual([
      ['Corner', false],
      ['HiddenOptions', false],
      ['Length', false],
      ['Shape', true],
    ]);
    expect(undocumented([entry])).toEqual(['main.ts:3: Length.metres', 'main.ts:6: Corner']);
    expect(entryPage(entry)).toContain('Programs cannot import the name. Declared at');
  });

  it('lists names without a docstring', () => {
    const entries = entriesOf(`
/** A shape. */
export interface Shape {
  readonly sides: number;
  /** In metres. */
  readonly length: number;
}
export const bare = 1;
/** Options. */
export type Options = { readonly deep: { inner(): void } };
/** Fails. */
export class ShapeError extends Error {
  override readonly name = 'ShapeError';
  #secret = 1;
  private hidden = 2;
  code = this.#secret + this.hidden;
  /** Documented. */
  twice(): number { return 2 * this.code; }
}
`);
    expect(undocumented(entries)).toEqual([
      'main.ts:10: Options.deep',
      'main.ts:12: ShapeError.code',
      'main.ts:3: Shape.sides',
      'main.ts:8: bare',
    ]);
  });

  it('shows declarations without bodies and private members, where they are, and links between them', () => {
    const [entry] = entriesOf(`/** The head. */
/** A square. */
export class Square {
  #side = 1;
  /** Metres. */
  get side(): number { return this.#side; }
}
/** Makes one. */
export function makeSquare(): Square { return new Square(); }
`);
    if (entry === undefined) throw new Error('there is no entry point');
    const page = entryPage(entry);
    expect(page).toContain('# small\n\nThe head.');
    expect(page).toContain('export class Square {\n  /** Metres. */\n  get side(): number;\n}');
    expect(page).toContain('export function makeSquare(): Square\n');
    expect(page).toContain('See [Square](#square). Declared at `main.ts:9`.');
    expect(page).not.toContain('return');
    expect(indexPage([entry])).toContain('## [small](small.md)');
  });
});
