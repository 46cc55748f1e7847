import { expect, it } from 'vitest';
import { profileRows } from '#test/bench/profile-summary';

const node = (id: number, functionName: string, url = '', lineNumber = -1) => ({
  id,
  callFrame: { functionName, url, lineNumber },
});

it('a profile is summed up by function, without the idle time', () => {
  const profile = {
    nodes: [
      node(1, '(idle)'),
      node(2, 'pump', 'file:///x/dist/daemon/iwarp/engine/stream.js', 9),
      node(3, '(garbage collector)'),
      // The same function under another caller.
      node(4, 'pump', 'file:///x/dist/daemon/iwarp/engine/stream.js', 9),
    ],
    samples: [1, 2, 3, 4, 1],
    timeDeltas: [500, 300, 100, 100, 9000],
  };
  expect(profileRows(profile)).toEqual([
    [' 80.0 %', 'pump  engine/stream.js:10'],
    [' 20.0 %', '(garbage collector)'],
  ]);
});
