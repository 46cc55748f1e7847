/** Words that mark comments, strings and documents as translated, and what to write instead. */
import { describe, expect, it } from 'vitest';
import { files, readSource } from './source-graph.ts';

/** Recordings and pictures. */
const DATA = /\.(?:pcap|png|svg|jsonl)$/;
/** This file quotes the words. */
const SELF = 'test/tidy/language.test.ts';

/** "Behind" is right for leftovers, for a lag, and for a proxy or wall. */
const AFTER =
  /(?<!['"]|\b(?:leav|left|fall|fell|lag|far|furthest|queued)[^.;]{0,60} )\bbehind\b(?!['"-])(?! (?:(?:a|an|the|\w+[’']s) )*(?:NAT|QEMU|proxy|firewall|veth|userfaultfd|back)\b)/gi;

const RULES: readonly (readonly [RegExp, string])[] = [
  [AFTER, 'after, following'],
  [
    /\b(?:[Ss]ome|[Aa]ny|[Ee]very)body\b|\b[Ww]hoever\b|(?<!user |["'-])\b[Nn]obody\b/g,
    'the actor',
  ],
  [/\b(?:goes|go|went|going) on\b(?! the wire)/gi, 'continues, retries, is next'],
  [/\b(?:is|are|was|were) of\b/gi, 'belongs to, has, or a genitive'],
  [/\bby (?:itself|themselves)\b/gi, 'alone, on its own, automatically'],
  [/\b(?:tells?|told|telling) of\b/gi, 'reports, is notified of'],
  [/\banew\b/gi, 'again, from the start'],
  [/\/\*\*?\s+What\b/g, 'a noun: the bytes that, facts about'],
  [/\b(?:has|have|had|having) [^.;:]{1,40}(?<!\bto )\bhappen\b/gi, 'causes, injects'],
];

/** The text with the marks of comments blanked out, so that a phrase is found across two lines. */
function proseOf(text: string): string {
  return text.replace(/^[ \t]*(?:\*|\/\/|#)(?!\/)/gm, (mark) => ' '.repeat(mark.length));
}

/** Where a rule is broken, as `file:line: words (instead)`. */
function brokenIn(file: string, text: string): string[] {
  const prose = proseOf(text);
  const broken: string[] = [];
  for (const [rule, instead] of RULES) {
    const wrapped = new RegExp(rule.source.replaceAll(' ', String.raw`\s+`), rule.flags);
    for (const { 0: words, index } of prose.matchAll(wrapped)) {
      const line = prose.slice(0, index).split('\n').length;
      broken.push(`${file}:${line}: ${words.replaceAll(/\s+/g, ' ')} (${instead})`);
    }
  }
  return broken;
}

describe('sources and documents', () => {
  const held = files.filter((file) => file !== SELF && !DATA.test(file));

  it('avoid words that read as translated', () => {
    expect(held.length).toBeGreaterThan(1000);
    expect(held.flatMap((file) => brokenIn(file, readSource(file)))).toEqual([]);
  });

  it.each([
    ['// the packets behind it', 'behind'],
    ['/**\n * The stream goes\n * on. */', 'goes on'],
    ['for somebody else', 'somebody'],
    ['a host behind a NAT', undefined],
    ['a worker that falls far behind', undefined],
    ['files left behind', undefined],
    ['runs as user nobody', undefined],
    ['the bits go on the wire', undefined],
    ['# nobody waits', 'nobody'],
    ['read anew', 'anew'],
    ['/** What a port needs. */', '/** What'],
    ['// What a port needs.', undefined],
    ['has a loss happen', 'has a loss happen'],
    ['has yet to happen', undefined],
  ])('%j', (text, words) => {
    const [broken] = brokenIn('a', text);
    expect(broken?.replace(/^a:\d+: | \(.*$/g, '')).toBe(words);
  });
});
