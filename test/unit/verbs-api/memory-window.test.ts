import { expect, it } from 'vitest';
import { incRkey } from '#verbs-api/client/memory-window';

it.each([
  [0x00000100, 0x00000101],
  [0x123456fe, 0x123456ff],
  [0x123456ff, 0x12345600],
  [0xffffffff, 0xffffff00],
])('incRkey increments the key of %i and keeps the index', (rkey, next) => {
  expect(incRkey(rkey)).toBe(next);
});
