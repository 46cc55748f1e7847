import { describe, expect, it } from 'vitest';
import { Fifo } from '#base/fifo';

/** More than an empty list keeps places for. */
const MANY = 5000;

describe('a first-in, first-out list', () => {
  it('returns items in order, and undefined once it is empty', () => {
    const list = new Fifo<number>();
    expect(list.shift()).toBeUndefined();
    list.push(1);
    list.push(2);
    expect([list.count, list.shift(), list.shift(), list.shift()]).toEqual([2, 1, 2, undefined]);
    list.push(3);
    expect([list.items(), list.shift(), list.count]).toEqual([[3], 3, 0]);
  });

  it('keeps the order of many items, also while others are pushed', () => {
    const list = new Fifo<number>();
    for (let item = 0; item < MANY; item += 1) list.push(item);
    for (let item = 0; item < MANY; item += 1) {
      expect(list.shift()).toBe(item);
      list.push(item + MANY);
    }
    expect(list.count).toBe(MANY);
    expect(list.items()).toEqual(Array.from({ length: MANY }, (_, index) => MANY + index));
    for (let item = MANY; item < 2 * MANY; item += 1) expect(list.shift()).toBe(item);
    expect([list.count, list.shift()]).toEqual([0, undefined]);
  });
});
