/** Objects by increasing numbers. */
import { describe, expect, it } from 'vitest';
import { NumberedList } from '#daemon/clients/objects/numbered-list';

interface Named {
  readonly name: string;
}

function listOf(count: number): NumberedList<Named> {
  const list = new NumberedList<Named>();
  for (let made = 0; made < count; made += 1) list.add({ name: `${made}` });
  return list;
}

function namesAfter(list: NumberedList<Named>, number: number): string[] {
  return [...list.after(number)].map(([, { name }]) => name);
}

describe('a numbered list', () => {
  it('continues after a number, whether its object is still there or not', () => {
    const list = listOf(6);
    list.remove(2);
    list.remove(3);
    expect(namesAfter(list, -1)).toEqual(['0', '1', '4', '5']);
    expect(namesAfter(list, 2)).toEqual(['4', '5']);
    expect(namesAfter(list, 4)).toEqual(['5']);
    expect(namesAfter(list, 5)).toEqual([]);
    expect([list.find(1)?.name, list.find(2), list.find(6)]).toEqual(['1', undefined, undefined]);
    expect(list.size).toBe(4);
  });

  it('never reuses a number, and keeps those of others when it drops the places of many', () => {
    const list = listOf(10_000);
    for (let number = 0; number < 10_000; number += 1) if (number % 100 !== 7) list.remove(number);
    expect(list.size).toBe(100);
    expect(list.find(9907)?.name).toBe('9907');
    expect(list.find(9908)).toBeUndefined();
    expect(namesAfter(list, 9800)).toEqual(['9807', '9907']);
    expect(list.add({ name: 'new' })).toBe(10_000);
    expect(() => list.remove(9908)).toThrow('removed object is not in the list');
  });
});
