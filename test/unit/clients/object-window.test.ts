/** Long lists, whose entries are described in several turns. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ObjectWindow } from '#daemon/clients/objects/object-window';
import { commands } from '#test/support/kernel-commands';
import { UverbsRig } from '#test/support/uverbs-rig';

const COUNT = 1200;
let rig: UverbsRig;

beforeEach(() => {
  rig = new UverbsRig();
  rig.must(commands.getContext());
  for (let count = 0; count < COUNT; count += 1) rig.create(commands.createCQ(0n, 1));
});

afterEach(() => rig.close());

it('shows a part of the objects, in order, at once if they are few', () => {
  const window = new ObjectWindow('cqs', { offset: 3, limit: 5 });
  rig.file.listObjects(window);
  expect(window.describe(() => undefined)).toBeUndefined();
  expect(window.cqs.map(({ handle }) => handle)).toEqual([3, 4, 5, 6, 7]);
});

it('needs a turn for each few hundred objects, and omits those that are gone by then', async () => {
  const window = new ObjectWindow('cqs', {});
  rig.file.listObjects(window);
  const later: (() => void)[] = [];
  const all = window.describe((run) => later.push(run));
  expect(window.cqs.length).toBeGreaterThan(0);
  expect(window.cqs.length).toBeLessThan(COUNT / 2);
  // A new queue has the handle of one of them, and is not in the list.
  for (const handle of [COUNT - 2, COUNT - 1]) rig.must(commands.destroyCQ(handle));
  expect(rig.create(commands.createCQ(0n, 1))).toBe(COUNT - 2);
  for (let run = later.shift(); run !== undefined; run = later.shift()) run();
  await all;
  const handles = window.cqs.map(({ handle }) => handle);
  expect(handles).toEqual(Array.from({ length: COUNT - 2 }, (_, handle) => handle));
});
