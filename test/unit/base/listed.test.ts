import { describe, expect, it } from 'vitest';
import { listed } from '#base/listed';

describe('listed', () => {
  it.each([
    [[], ''],
    [['a'], 'a'],
    [['a', 'b'], 'a or b'],
    [['a', 'b', 'c'], 'a, b or c'],
  ])('lists %j', (words, text) => {
    expect(listed(words, 'or')).toBe(text);
  });

  it('lists as Intl.ListFormat does', () => {
    const words = ['one', 'two', 'three', 'four'];
    const format = new Intl.ListFormat('en-GB', { type: 'conjunction' });
    expect(listed(words, 'and')).toBe(format.format(words));
  });
});
