/**
 * Which file imports what from which, read from the text of the sources.
 *
 * The formatter gives every import and export one shape, so regular expressions see them all.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { importPaths } from '../support/import-paths.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Files that installing, building and running leave behind (`.gitignore`). */
const GENERATED = new Set(['node_modules', 'dist', '.git', '.cache']);

function listFiles(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    if (GENERATED.has(entry.name)) return [];
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    return entry.isDirectory() ? listFiles(path) : [path];
  });
}

/** Every file of the repository, by its path from the top. */
export const files: readonly string[] = listFiles('');
export const sources: readonly string[] = files.filter((file) => file.endsWith('.ts'));

export function readSource(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

/** The text of every source, for rules that look at all of them. */
export function readSources(): Map<string, string> {
  return new Map(sources.map((file) => [file, readSource(file)]));
}

interface Import {
  readonly target: string;
  /** `*` stands for every name: a namespace, a dynamic import or `export * from`. */
  readonly names: readonly string[];
}

const CLAUSE_FROM = /^(?:import|export)\s+(?:type\s+)?([^'";]*?)\s*from\s+'([.#][^']+)'/gm;
const BARE_OR_DYNAMIC = /(?:^import\s+|\bimport\()'([.#][^']+)'/gm;

interface LinterOverride {
  readonly includes: readonly string[];
  readonly linter: { readonly rules: { readonly style?: object } };
}

/** Folders without their own I/O, clock or randomness, in which the linter forbids `Date`. */
export const pureFolders: readonly string[] = (
  JSON.parse(readSource('biome.json')) as { readonly overrides: readonly LinterOverride[] }
).overrides
  .filter(({ linter }) => 'noRestrictedGlobals' in (linter.rules.style ?? {}))
  .flatMap(({ includes }) => includes.map((pattern) => pattern.replace(/\*\*$/, '')));

/** The source that a file means by a specifier, by its path from the top. */
const resolved = importPaths(ROOT);

/** Imports and re-exports of `file` from other files, types included. */
export function importsOf(file: string, text: string): Import[] {
  const code = withoutComments(text);
  const resolve = (specifier: string) => resolved(file, specifier);
  return [
    ...[...code.matchAll(CLAUSE_FROM)].map(([, clause = '', specifier = '']) => ({
      target: resolve(specifier),
      names: clause.startsWith('{') ? namesIn(clause).map(([name]) => name) : ['*'],
    })),
    ...[...code.matchAll(BARE_OR_DYNAMIC)].map(([, specifier = '']) => ({
      target: resolve(specifier),
      names: ['*'],
    })),
  ];
}

const LOADED_FROM = /^(?:import|export)\s+(?!type\b)[^'";]*?(?:\s*from\s+)?'([.#][^']+)'/gm;

/** The sources that load when `file` does: no types, and nothing that is imported when needed. */
export function loadedWith(file: string, texts: ReadonlyMap<string, string>): Set<string> {
  const loaded = new Set([file]);
  for (const each of loaded) {
    for (const [, specifier = ''] of withoutComments(texts.get(each) ?? '').matchAll(LOADED_FROM)) {
      loaded.add(resolved(each, specifier));
    }
  }
  return loaded;
}

const DECLARATION =
  /^export (?:declare )?(?:abstract )?(?:async )?(?:const|let|function\*?|class|interface|type|enum) (\w+)/gm;
const EXPORT_LIST = /^export (?:type )?(\{[^}]*\})/gm;

/** The names that `text` exports, re-exports included. */
export function exportsOf(text: string): string[] {
  const code = withoutComments(text);
  return [
    ...[...code.matchAll(DECLARATION)].map(([, name = '']) => name),
    ...[...code.matchAll(EXPORT_LIST)].flatMap(([, list = '']) =>
      namesIn(list).map(([, exported]) => exported),
    ),
  ];
}

/** `{ a, type b, c as d }` as pairs of the name inside the target and the name here. */
function namesIn(list: string): [name: string, here: string][] {
  return list
    .replace(/[{}]/g, '')
    .split(',')
    .map((item) => item.trim().replace(/^type /, ''))
    .filter((item) => item !== '')
    .map((item) => {
      const [name = '', here = name] = item.split(/ as /);
      return [name, here];
    });
}

/** Comments only: a string that holds `//` or `/*` stays, because no comment starts inside a word. */
function withoutComments(text: string): string {
  return text.replace(/^\s*\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm, '');
}

/** Groups of files that import each other, directly or through others (Tarjan's algorithm). */
export function importCircles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const circles: string[][] = [];
  const low = (file: string) => lowest.get(file) ?? Number.POSITIVE_INFINITY;
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.size - 1);
    open.push(file);
    for (const target of graph.get(file) ?? []) {
      if (!order.has(target)) visit(target);
      if (open.includes(target)) lowest.set(file, Math.min(low(file), low(target)));
    }
    if (low(file) !== order.get(file)) return;
    const circle = open.splice(open.indexOf(file));
    const importsItself = graph.get(file)?.includes(file) === true;
    if (circle.length > 1 || importsItself) circles.push(circle.sort());
  };
  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return circles;
}
