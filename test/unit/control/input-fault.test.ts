import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { inputFault } from '../../../daemon/control/input-fault.ts';

const cat = z.strictObject({ name: z.string(), lives: z.int().max(9) });
const stone = z.strictObject({ name: z.string(), mass: z.number(), hard: z.boolean() });
const schema = z.strictObject({ things: z.array(z.union([cat, stone])), deep: cat.optional() });

function fault(input: unknown): string {
  const parsed = schema.safeParse(input);
  if (parsed.success) return 'none';
  const { field, reason } = inputFault(parsed.error);
  return `${field}: ${reason}`;
}

describe('the fault of an input', () => {
  it.each([
    [{ things: [] }, 'none'],
    [{ things: [], thing: 1 }, 'thing: there is no such field'],
    [{ things: [], deep: { name: 'a', lives: 1, tail: 1 } }, 'deep.tail: there is no such field'],
    [{ things: [], deep: { name: 'a' } }, /^deep\.lives: .*expected/],
    [7, /^: .*expected object/],
    [undefined, /^: .*expected object/],
  ])('%j: %s', (input, expected) => {
    if (typeof expected === 'string') expect(fault(input)).toBe(expected);
    else expect(fault(input)).toMatch(expected);
  });

  it('is that of the alternative which the input is nearest to', () => {
    expect(fault({ things: [{ name: 'a', lives: 10 }] })).toMatch(/^things\.0\.lives: .*9/);
    const nearStone = { name: 'a', mass: 1, hard: 'yes' };
    expect(fault({ things: [nearStone] })).toMatch(/^things\.0\.hard: .*boolean/);
    expect(fault({ things: [{ name: 'a', mass: 1, hard: true, soft: true }] })).toBe(
      'things.0.soft: there is no such field',
    );
  });
});
