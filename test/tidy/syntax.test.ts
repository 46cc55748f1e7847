/** House rules about the shape of code, checked on the syntax trees of all sources. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'rolldown/utils';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const FOLDERS = ['daemon', 'verbs-api', 'native-bridge', 'test'];
const PARAMETERS_MAX = 6;

/** A node of the tree: ESTree, and TS-ESTree for types. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

function* nodes(value: unknown): Generator<Node> {
  if (Array.isArray(value)) {
    for (const one of value) yield* nodes(one);
  } else if (isNode(value)) {
    yield value;
    for (const child of Object.values(value)) yield* nodes(child);
  }
}

/** Places in `source` that break a rule, as `line: what`. */
function findings(path: string, source: string): { long: string[]; keywords: string[] } {
  const { program, errors } = parseSync(path, source);
  expect(errors, path).toEqual([]);
  const long: string[] = [];
  const keywords: string[] = [];
  for (const node of nodes(program)) {
    const line = (): string => `${path}:${source.slice(0, node.start).split('\n').length}`;
    const parameters = node['params'];
    if (Array.isArray(parameters) && parameters.length > PARAMETERS_MAX) {
      long.push(`${line()}: ${parameters.length} parameters`);
    }
    if (node['accessibility'] === 'private' && node['kind'] !== 'constructor') {
      keywords.push(`${line()}: private`);
    }
    const { key } = node;
    const member = node.type === 'PropertyDefinition' || node.type === 'MethodDefinition';
    // An override has the name that its base class in Node gave it.
    if (member && node['override'] !== true && isNode(key) && String(key['name']).startsWith('_')) {
      keywords.push(`${line()}: ${String(key['name'])}`);
    }
  }
  return { long, keywords };
}

const sources = FOLDERS.flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => `${folder}/${path}`),
);

const seen = sources.map((path) => findings(path, readFileSync(join(root, path), 'utf8')));

describe('the shape of code', () => {
  it('has sources to look at', () => {
    expect(seen.length).toBeGreaterThan(500);
  });

  it('takes at most six parameters, since a call with more cannot be read', () => {
    expect(seen.flatMap(({ long }) => long)).toEqual([]);
  });

  it('writes private members as #name; only a constructor needs the keyword', () => {
    expect(seen.flatMap(({ keywords }) => keywords)).toEqual([]);
  });

  it('finds what breaks these rules', () => {
    const bad = `class A { private x = 1; _y = 2; private constructor() {} #z(): void {} }
      interface B { f(a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7): void }
      const six = (a: 1, b: 2, c: 3, d: 4, e: 5, f: 6): void => {};`;
    expect(findings('bad.ts', bad)).toEqual({
      long: ['bad.ts:2: 7 parameters'],
      keywords: ['bad.ts:1: private', 'bad.ts:1: _y'],
    });
  });
});
