/** Everything that daemon/ARCHITECTURE.md, GLOSSARY.md and CONTRIBUTING.md name exists. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SOURCES = ['daemon', 'verbs-api', 'native-bridge', 'test/sim', 'test/tidy'];
const ARCHITECTURE = readFileSync(join(ROOT, 'daemon/ARCHITECTURE.md'), 'utf8');
const PAGES = ['daemon/ARCHITECTURE.md', 'daemon/GLOSSARY.md', 'test/CONTRIBUTING.md'];

function sourceText(folder: string): string {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(?:ts|c|h)$/.test(name))
    .map((name) => readFileSync(join(ROOT, folder, name), 'utf8'))
    .join('\n');
}

/** Text in backticks, outside fenced blocks. */
function named(text: string): string[] {
  const prose = text.replaceAll(/^```[\s\S]*?^```$/gm, '');
  return [...prose.matchAll(/`([^`\n]+)`/g)].map(([, name = '']) => name);
}

function hasWord(text: string, word: string): boolean {
  return new RegExp(`(?<![\\w#])${word}(?!\\w)`).test(text);
}

/** Rows of the walks: a file, and functions in it. */
function steps(): { readonly file: string; readonly names: readonly string[] }[] {
  return [...ARCHITECTURE.matchAll(/^\| `([\w./-]+\.[tc]s?)` +\|([^|]+)\|/gm)].map(
    ([, file = '', cell = '']) => ({ file, names: named(cell) }),
  );
}

describe('daemon/ARCHITECTURE.md', () => {
  it('has six walks; their files have the named functions', () => {
    expect(ARCHITECTURE.match(/^## Walk/gm)).toHaveLength(6);
    expect(steps().length).toBeGreaterThan(30);
    const wrong = steps().flatMap(({ file, names }) => {
      if (!existsSync(join(ROOT, file))) return [file];
      const text = readFileSync(join(ROOT, file), 'utf8');
      return names.filter((name) => !hasWord(text, name)).map((name) => `${file}: ${name}`);
    });
    expect(wrong).toEqual([]);
  });
});

/** All sources, read once. */
const SOURCE_TEXT = SOURCES.map(sourceText).join('\n');

describe.each(PAGES)('%s', (page) => {
  const names = named(readFileSync(join(ROOT, page), 'utf8'));

  it('names files and folders that exist', () => {
    const paths = names.filter((name) =>
      /^(?:daemon|verbs-api|native-bridge|test)\/[\w./-]*$/.test(name),
    );
    expect(paths.length).toBeGreaterThan(5);
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('names types and constants that exist', () => {
    const types = names.filter((name) => /^[A-Z]\w*[a-z_]\w*$|^[A-Z]+_[A-Z_]+$/.test(name));
    expect(types.filter((name) => !hasWord(SOURCE_TEXT, name))).toEqual([]);
  });
});
