import { expect, it } from 'vitest';
import { CompletionRecord } from '#daemon/rnic/rings/completion-writer';

it('a completion takes over every field of another', () => {
  const from = new CompletionRecord();
  for (const [index, name] of Object.keys(from).entries()) {
    const value = Reflect.get(from, name);
    Reflect.set(from, name, typeof value === 'boolean' ? true : index + 1);
  }
  const to = new CompletionRecord();
  to.copy(from);
  expect(to).toEqual(from);
  expect(to).not.toEqual(new CompletionRecord());
});
