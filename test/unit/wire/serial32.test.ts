import { describe, expect, it } from 'vitest';
import { serialAdd, serialBefore, serialDistance } from '../../../daemon/wire/serial32.ts';

describe('serial32', () => {
  it('adds across the wrap in both directions', () => {
    expect(serialAdd(0xffffffff, 1)).toBe(0);
    expect(serialAdd(0xfffffff0, 0x20)).toBe(0x10);
    expect(serialAdd(0, -1)).toBe(0xffffffff);
  });

  it('measures the shorter way, with its sign', () => {
    expect(serialDistance(0xffffffff, 1)).toBe(2);
    expect(serialDistance(1, 0xffffffff)).toBe(-2);
    expect(serialDistance(5, 5)).toBe(0);
    expect(serialDistance(0, 0x7fffffff)).toBe(0x7fffffff);
  });

  it('orders numbers by the shorter way', () => {
    expect(serialBefore(1, 2)).toBe(true);
    expect(serialBefore(2, 1)).toBe(false);
    expect(serialBefore(7, 7)).toBe(false);
    expect(serialBefore(0xffffffff, 0)).toBe(true);
    expect(serialBefore(0, 0xffffffff)).toBe(false);
    expect(serialBefore(0x80000001, 0)).toBe(true);
  });
});
