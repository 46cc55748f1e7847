/** The C files of the preload library: which uses which, and their form. */
import { describe, expect, it } from 'vitest';
import { files, importCircles, readSource } from './source-graph.ts';

const FOLDER = 'native-bridge/preload/';

const sources = new Map(
  files
    .filter((file) => file.startsWith(FOLDER) && /\.[ch]$/.test(file))
    .map((file) => [file.slice(FOLDER.length), readSource(file)]),
);

const moduleOf = (file: string): string => file.replace(/\.[ch]$/, '');
const withoutComments = (text: string): string => text.replace(/\/\*[\s\S]*?\*\//g, '');

/** Functions that a header declares, without static ones and those of libc. */
function declaredIn(header: string): string[] {
  const found = withoutComments(header).matchAll(
    /^(?!static|typedef|return|#)\w[\w *]*?\b([a-z]\w*)\([^;{}]*\);/gm,
  );
  return [...found].map(([, name = '']) => name);
}

/** Which module uses which: includes its header, or calls its functions. */
function graphOf(texts: ReadonlyMap<string, string>): Map<string, string[]> {
  const declared = [...texts]
    .filter(([file]) => file.endsWith('.h'))
    .map(([file, text]) => ({ module: moduleOf(file), names: declaredIn(text) }));
  const graph = new Map<string, string[]>();
  for (const [file, commented] of texts) {
    const text = withoutComments(commented);
    const included = [...text.matchAll(/^#include "(.*)\.h"/gm)].map(([, name = '']) => name);
    const called = new Set([...text.matchAll(/\b(\w+)\(/g)].map(([, name = '']) => name));
    const used = declared.filter(({ names }) => names.some((name) => called.has(name)));
    const targets = [...included, ...used.map(({ module }) => module)];
    const module = moduleOf(file);
    graph.set(module, [
      ...(graph.get(module) ?? []),
      ...targets.filter((target) => target !== module),
    ]);
  }
  return graph;
}

/** Declarations that the file of the header's name does not define, as `header: function`. */
function strays(texts: ReadonlyMap<string, string>): string[] {
  return [...texts].flatMap(([file, text]) => {
    if (!file.endsWith('.h')) return [];
    const code = texts.get(`${moduleOf(file)}.c`) ?? '';
    return declaredIn(text)
      .filter((name) => !new RegExp(`^\\w.*\\b${name}\\([^;]*\\) \\{`, 'm').test(code))
      .map((name) => `${file}: ${name}`);
  });
}

describe('the preload library', () => {
  it('has layers: no file uses, through others, a file that uses it', () => {
    expect(sources.size).toBeGreaterThan(50);
    expect(importCircles(graphOf(sources))).toEqual([]);
  });

  it('defines each function in the file that has the name of its header', () => {
    expect(strays(sources)).toEqual([]);
  });

  it('has no line of more than 100 characters', () => {
    const long = [...sources].flatMap(([file, text]) =>
      text.split('\n').flatMap((line, index) => (line.length > 100 ? `${file}:${index + 1}` : [])),
    );
    expect(long).toEqual([]);
  });

  it('is found to have circles, and functions defined elsewhere', () => {
    const example = new Map([
      ['low.h', 'int low_get(int one,\n            int two);\n'],
      ['low.c', '#include "low.h"\nint low_get(int one, int two) {\n  return high_get();\n}\n'],
      ['high.h', '/* int not_declared(void); */\nint high_get(void);\nvoid high_stray(void);\n'],
      ['high.c', '#include "high.h"\n#include "low.h"\nint high_get(void) { return 0; }\n'],
      ['top.c', '#include "high.h"\nvoid high_stray(void) {\n}\n'],
    ]);
    expect(importCircles(graphOf(example))).toEqual([['high', 'low']]);
    expect(strays(example)).toEqual(['high.h: high_stray']);
  });
});
