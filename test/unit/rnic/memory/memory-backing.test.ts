import { expect, test } from 'vitest';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { pattern } from '#test/support/pattern';

const BYTES = 512;
/** Lengths around those at which the copy method changes, and at which a word ends. */
const LENGTHS = [0, 1, 3, 4, 7, 8, 9, 15, 16, 64, 191, 192, 193, 300];

/** `into` with `length` bytes of `source` at `at`, copied one by one. */
function expected(
  into: Uint8Array,
  at: number,
  length: number,
  source: Uint8Array,
  from: number,
): Uint8Array {
  const copy = into.slice();
  for (let index = 0; index < length; index += 1) copy[at + index] = source[from + index] ?? 0;
  return copy;
}

test('copies exactly the bytes asked for, at any offsets and of any length', () => {
  // Arrays that begin within their buffers, as those of a pool and of a mapping do.
  const memory = pattern(BYTES, 1).subarray(5);
  const backing = new ViewBacking(memory);
  for (const length of LENGTHS) {
    for (const [offset, start] of [
      [0, 0],
      [3, 17],
      [memory.length - length, 2],
    ] as const) {
      const target = pattern(BYTES, 99).subarray(1);
      const before = target.slice();
      expect(backing.read(offset, length, target, start)).toBe(true);
      expect(target).toEqual(expected(before, start, length, memory, offset));

      const input = pattern(BYTES, 43).subarray(2);
      const held = memory.slice();
      expect(backing.write(offset, input, start, length)).toBe(true);
      expect(memory).toEqual(expected(held, offset, length, input, start));
    }
  }
});

test('follows its caller from one buffer to another and back', () => {
  const backing = new ViewBacking(pattern(BYTES, 0));
  const [one, other] = [new Uint8Array(16), new Uint8Array(16)];
  backing.read(0, 8, one, 0);
  backing.read(8, 8, other, 8);
  backing.read(16, 8, one, 8);
  expect([...one]).toEqual([
    ...pattern(BYTES, 0).subarray(0, 8),
    ...pattern(BYTES, 0).subarray(16, 24),
  ]);
  expect([...other]).toEqual([...new Uint8Array(8), ...pattern(BYTES, 0).subarray(8, 16)]);
});

test('refuses bytes past the end of its memory', () => {
  const memory = pattern(BYTES, 0);
  const backing = new ViewBacking(memory);
  const other = new Uint8Array(BYTES);
  for (const length of [8, 300]) {
    expect(backing.read(BYTES - length + 1, length, other, 0)).toBe(false);
    expect(backing.write(BYTES - length + 1, other, 0, length)).toBe(false);
  }
  expect(memory).toEqual(pattern(BYTES, 0));
  expect(other).toEqual(new Uint8Array(BYTES));
});

test('takes bytes at its start', () => {
  const backing = new ViewBacking(new Uint8Array(80));
  const source = pattern(BYTES, 11);
  backing.take(new DataView(source.buffer), 21, 77);
  const wanted = expected(new Uint8Array(80), 0, 77, source, 21);
  expect(backing.view).toEqual(wanted);
});
