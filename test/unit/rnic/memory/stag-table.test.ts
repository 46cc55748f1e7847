import { expect, test } from 'vitest';
import { seededRandom } from '#base/random';
import { PD } from '#daemon/rnic/memory/protection-domain';
import { StagTable } from '#daemon/rnic/memory/stag-table';

const pd = new PD(() => undefined);

test('finds each STag whichever was found before', () => {
  const table = new StagTable(seededRandom(1));
  const [one, other] = [table.add(pd, false, undefined), table.add(pd, false, undefined)];
  for (const entry of [one, one, other, one, other, other]) {
    expect(table.find(entry.stag)).toBe(entry);
  }
  expect(table.find(0)).toBeUndefined();
  expect(table.find(one.stag)).toBe(one);
});

test('finds nothing under the key that a bind replaced, or after the removal', () => {
  const table = new StagTable(seededRandom(2));
  const entry = table.add(pd, true, 7);
  const old = entry.stag;
  expect(table.find(old)).toBe(entry);
  entry.stag = ((old & ~0xff) | 8) >>> 0;
  expect(table.find(old)).toBeUndefined();
  expect(table.find(entry.stag)).toBe(entry);
  table.remove(entry);
  expect(table.find(entry.stag)).toBeUndefined();
});
