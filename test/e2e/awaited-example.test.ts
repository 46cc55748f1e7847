import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { example } from './awaited-example.ts';

const [readme = '', source = ''] = ['../../verbs-api/README.md', './awaited-example.ts'].map(
  (file) => readFileSync(new URL(file, import.meta.url), 'utf8'),
);
const [, shown = '', output = ''] = /```ts\n(.*?)```\n\n```text\n(.*?)```/s.exec(readme) ?? [];

function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !/^(import|export|\/\*\*|\/\/)/.test(line));
}

it('prints what the README of verbs-api says', async () => {
  const lines: string[] = [];
  await example({ log: (text) => void lines.push(text) });
  expect(lines).toEqual(output.trimEnd().split('\n'));
});

it('is the example that the README of verbs-api shows', () => {
  // The file wraps it in a function, whose brace is the last line.
  expect(linesOf(source).slice(0, -1)).toEqual(linesOf(shown));
  expect(linesOf(shown).length).toBeLessThanOrEqual(20);
});
