/**
 * Every refusal has a unique sentence: a reader who searches the sources for one finds one cause.
 * Sentences are string literals at the place that refuses; computed parts are in `${…}`.
 */
import { describe, expect, it } from 'vitest';
import { readSources } from './source-graph.ts';

/** Where programs are refused. */
const REFUSING = [
  'daemon/clients/',
  'daemon/ipc/',
  'daemon/kernel/',
  'daemon/rnic/',
  'daemon/host/',
  'daemon/iwarp/cm/',
  'daemon/roce/',
];

/** Functions and classes that take a sentence; the first ones after an errno. */
const WITH_CODE = 'VerbsError|refusal';
const ALONE = 'refuse|invalid';

const LITERAL = String.raw`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\`(?:[^\`\\]|\\.)*\``;
const CALLS = new RegExp(
  String.raw`\b(?:new VerbsError\(|(?:${WITH_CODE.split('|')[1]})\()\s*'E[A-Z]+'\s*(?:,\s*(${LITERAL}))?(.)?`,
  'gs',
);
const WORDS = new RegExp(String.raw`\b(?:${ALONE})\(\s*(${LITERAL})`, 'gs');

interface Sentence {
  readonly place: string;
  /** As in the source, with computed parts as `…`. */
  readonly template: string;
}

function lineOf(text: string, index: number): number {
  return text.slice(0, index).split('\n').length;
}

/** A literal without its quotes, and with `…` for each computed part, nested ones included. */
function templateOf(literal: string): string {
  let depth = 0;
  let template = '';
  for (let at = 1; at < literal.length - 1; at += 1) {
    if (literal.startsWith('${', at)) {
      if (depth === 0) template += '…';
      depth += 1;
      at += 1;
    } else if (depth > 0) {
      if (literal[at] === '}') depth -= 1;
    } else template += literal[at];
  }
  return template;
}

function sentencesOf(file: string, text: string): Sentence[] {
  const found = [...text.matchAll(CALLS), ...text.matchAll(WORDS)];
  return found.flatMap((match) => {
    const [, literal] = match;
    if (literal === undefined) return [];
    return [{ place: `${file}:${lineOf(text, match.index)}`, template: templateOf(literal) }];
  });
}

/** Errors with a code and nothing else. */
function silentIn(file: string, text: string): string[] {
  return [...text.matchAll(CALLS)]
    .filter(([, literal, next]) => literal === undefined && next === ')')
    .map(({ index }) => `${file}:${lineOf(text, index)}`);
}

const sources = [...readSources()].filter(([file]) =>
  REFUSING.some((folder) => file.startsWith(folder)),
);
const sentences = sources.flatMap(([file, text]) => sentencesOf(file, text));

describe('refusals', () => {
  it('are found in the sources', () => {
    expect(sources.length).toBeGreaterThan(200);
    expect(sentences.length).toBeGreaterThan(150);
    expect(templateOf(`\`a \${b ? \`c\` : 1} d\``)).toBe('a … d');
  });

  it('all have a sentence', () => {
    expect(sources.flatMap(([file, text]) => silentIn(file, text))).toEqual([]);
  });

  it('say more than a value', () => {
    const empty = sentences.filter(({ template }) => !/[a-z]{3,}/.test(template));
    expect(empty).toEqual([]);
  });

  it('each have a sentence that no other has', () => {
    const places = new Map<string, string[]>();
    for (const { place, template } of sentences) {
      places.set(template, [...(places.get(template) ?? []), place]);
    }
    expect([...places].filter(([, of]) => of.length > 1)).toEqual([]);
  });
});
