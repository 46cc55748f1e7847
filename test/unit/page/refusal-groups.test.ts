import { describe, expect, it } from 'vitest';
import type { Refusal } from '#contract/protocol/refusals';
import { refusalGroups } from '#daemon/page/refusals-view';

function refusal(number: number, program: string, pid: number, times = 1): Refusal {
  return {
    number,
    at: '2026-01-02T03:04:05.678Z',
    pid,
    uid: 0,
    program,
    api: 'verbs',
    verb: 'ibv_create_cq',
    code: 'EINVAL',
    sentence: 'cqe is 0',
    times,
  };
}

describe('refusals by program', () => {
  it('have the last program first, and of each its last refusal first', () => {
    const all = [
      refusal(1, 'pp', 7),
      refusal(4, 'rping', 8, 3),
      refusal(5, 'pp', 9),
      refusal(6, 'pp', 7),
    ];
    const groups = refusalGroups(all).map(({ program, pid, times, refusals }) => {
      return [program, pid, times, ...refusals.map(({ number }) => number)];
    });
    expect(groups).toEqual([
      ['pp', 7, 2, 6, 1],
      ['pp', 9, 1, 5],
      ['rping', 8, 3, 4],
    ]);
    expect(refusalGroups([])).toEqual([]);
  });
});
