/** Links between the repository's Markdown files lead somewhere. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Files that installing, building and running leave behind (`.gitignore`). */
const GENERATED = new Set(['node_modules', 'dist', '.git', '.cache']);

function markdownFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return GENERATED.has(entry.name) ? [] : markdownFiles(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

/** The text without fenced blocks, in which `#` starts a comment and brackets are code. */
function proseOf(path: string): string {
  return readFileSync(path, 'utf8').replaceAll(/^ *```[\s\S]*?^ *```$/gm, '');
}

/** The anchors of a file's headings, as GitHub makes them. */
function anchorsOf(text: string): string[] {
  return [...text.matchAll(/^#+ +(.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\- _]/gu, '')
      .replaceAll(' ', '-'),
  );
}

/** Links of a file that lead to no file, or to no heading of it. */
function brokenLinks(path: string): string[] {
  const prose = proseOf(path);
  return [...prose.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)].flatMap(
    ([link, target = '', anchor]) => {
      const file = target === '' ? path : resolve(dirname(path), target);
      if (!existsSync(file)) return [`${relative(ROOT, path)}: ${link}`];
      if (anchor === undefined || anchorsOf(proseOf(file)).includes(anchor)) return [];
      return [`${relative(ROOT, path)}: ${link}`];
    },
  );
}

describe('Markdown files', () => {
  const files = markdownFiles(ROOT);

  it('link to files and headings that exist', () => {
    expect(files.length).toBeGreaterThan(20);
    expect(files.flatMap(brokenLinks)).toEqual([]);
  });

  it('can each be found from README.md', () => {
    const found = new Set([join(ROOT, 'README.md')]);
    for (const path of found) {
      for (const [, target = ''] of proseOf(path).matchAll(/\]\((?!https?:)([^)#\s]+\.md)/g)) {
        found.add(resolve(dirname(path), target));
      }
    }
    expect(files.filter((path) => !found.has(path)).map((path) => relative(ROOT, path))).toEqual(
      [],
    );
  });
});
