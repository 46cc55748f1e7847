import { describe, expect, it } from 'vitest';
import { didYouMean } from '#daemon/console/closest';

const KINDS = ['drop', 'duplicate', 'delay', 'reset', 'rnr', 'corrupt-icrc'];

describe('a misspelt word', () => {
  it.each([
    ['droop', 'drop'],
    ['DROP', 'drop'],
    ['dorp', 'drop'],
    ['duplciate', 'duplicate'],
    ['corupt-icrc', 'corrupt-icrc'],
    ['corupt', 'corrupt-icrc'],
  ])('%s names the closest word, %s', (word, meant) => {
    expect(didYouMean(word, KINDS)).toBe(` (Did you mean ${meant}?)`);
  });

  it.each([['flood'], [''], ['x'], ['d'.repeat(100_000)]])(
    'that resembles no word gets no suggestion',
    (word) => {
      expect(didYouMean(word, KINDS)).toBe('');
    },
  );
});
