import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { inputFault } from '#daemon/control/input-fault';

const cat = z.strictObject({ name: z.string(), lives: z.int().max(9) });
const stone = z.strictObject({ name: z.string(), mass: z.number(), hard: z.boolean() });
const schema = z.strictObject({ things: z.array(z.union([cat, stone])), deep: cat.optional() });

function fault(input: unknown): string {
  const parsed = schema.safeParse(input);
  if (parsed.success) return 'none';
  const { field, reason } = inputFault(parsed.error);
  return `${field}: ${reason}`;
}

describe('an input error', () => {
  it.each([
    [{ things: [] }, 'none'],
    [{ things: [], thing: 1 }, 'thing: unknown field'],
    [{ things: [], deep: { name: 'a', lives: 1, tail: 1 } }, 'deep.tail: unknown field'],
    [{ things: [], deep: { name: 'a' } }, 'deep.lives: is required'],
    [7, ': must be an object'],
    [undefined, ': is required'],
  ])('%j: %s', (input, expected) => {
    if (typeof expected === 'string') expect(fault(input)).toBe(expected);
    else expect(fault(input)).toMatch(expected);
  });

  it('is reported for the alternative closest to the input', () => {
    expect(fault({ things: [{ name: 'a', lives: 10 }] })).toMatch(/^things\.0\.lives: .*9/);
    const nearStone = { name: 'a', mass: 1, hard: 'yes' };
    expect(fault({ things: [nearStone] })).toMatch(/^things\.0\.hard: must be true or false$/);
    expect(fault({ things: [{ name: 'a', mass: 1, hard: true, soft: true }] })).toBe(
      'things.0.soft: unknown field',
    );
  });
});
