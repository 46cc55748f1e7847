import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { example } from './readme-example.ts';

describe('the example of the README', () => {
  it('moves bytes from a client to a server', async () => {
    expect(await example()).toBe('hello, iWARP');
  });

  it('fits a screen', () => {
    const source = readFileSync(new URL('./readme-example.ts', import.meta.url), 'utf8');
    expect(source.trimEnd().split('\n').length).toBeLessThanOrEqual(40);
  });
});
