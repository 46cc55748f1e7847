import { beforeEach, describe, expect, it } from 'vitest';
import {
  REFUSALS_OF_USER_MAX,
  type Refusal,
  refusalLine,
  SENTENCE_MAX,
} from '#contract/protocol/refusals';
import {
  REFUSAL_COUNTS_MAX,
  REFUSAL_WATCHERS_MAX,
  REFUSED_USERS_MAX,
  type RefusalReport,
  Refusals,
} from '#daemon/refusals/refusals';

function report(fields: Partial<RefusalReport> = {}): RefusalReport {
  return {
    pid: 7,
    uid: 1000,
    program: 'pp',
    api: 'verbs',
    verb: 'ibv_modify_qp',
    code: 'EINVAL',
    sentence: 'qp_state is 9; there are 0 to 6',
    ...fields,
  };
}

function refusals(): Refusals {
  let seconds = 0;
  return new Refusals(() => {
    seconds += 1;
    return new Date(seconds * 1000).toISOString();
  });
}

function sentences(list: readonly Refusal[]): string[] {
  return list.map(({ sentence }) => sentence);
}

let all: ReturnType<typeof refusals>;

beforeEach(() => {
  all = refusals();
});

describe('the refusals of a daemon', () => {
  it('are kept in order, with number and time', () => {
    all.record(report({ sentence: 'one' }));
    all.record(report({ sentence: 'two', uid: 1001 }));
    const { refusals: list, last, lost } = all.list({}, undefined);
    expect(sentences(list)).toEqual(['one', 'two']);
    expect(list.map(({ number }) => number)).toEqual([1, 2]);
    expect(list[1]?.at).toBe('1970-01-01T00:00:02.000Z');
    expect([last, lost]).toEqual([2, 0]);
  });

  it('show each user only their own', () => {
    all.record(report({ sentence: 'one' }));
    all.record(report({ sentence: 'two', uid: 1001 }));
    expect(sentences(all.list({}, 1001).refusals)).toEqual(['two']);
    expect(all.list({}, 1002).refusals).toEqual([]);
  });

  it('of one user do not push out those of another', () => {
    all.record(report({ sentence: 'kept', uid: 1001 }));
    for (let count = 0; count < 3 * REFUSALS_OF_USER_MAX; count += 1) {
      all.record(report({ sentence: `flood ${count}` }));
    }
    expect(sentences(all.list({}, 1001).refusals)).toEqual(['kept']);
    expect(all.list({}, 1000).refusals).toHaveLength(REFUSALS_OF_USER_MAX);
    expect(all.list({ after: 2 }, 1000).lost).toBe(1);
  });

  it('forget the user with the oldest last refusal, when there are too many', () => {
    for (let uid = 0; uid < REFUSED_USERS_MAX; uid += 1) all.record(report({ uid }));
    all.record(report({ uid: 0, sentence: 'again' }));
    all.record(report({ uid: 9999 }));
    expect(all.list({}, 1).refusals).toEqual([]);
    expect(all.list({}, 0).refusals).toHaveLength(2);
  });

  it('that repeat the last one are counted, and renewed', () => {
    all.record(report({ objects: { qp: 17 } }));
    all.record(report({ objects: { qp: 17 } }));
    all.record(report({ objects: { qp: 18 } }));
    const { refusals: list } = all.list({}, 1000);
    expect(list.map(({ times, number }) => [times, number])).toEqual([
      [2, 2],
      [1, 3],
    ]);
    expect(all.counts()).toEqual([
      { api: 'verbs', verb: 'ibv_modify_qp', code: 'EINVAL', count: 3 },
    ]);
  });

  it('are listed by program, process, device and number', () => {
    all.record(report({ sentence: 'one', pid: 1, program: 'a', device: 'rxe0' }));
    all.record(report({ sentence: 'two', pid: 2, program: 'b', device: 'iwarp0' }));
    expect(sentences(all.list({ pid: 2 }, undefined).refusals)).toEqual(['two']);
    expect(sentences(all.list({ program: 'a' }, undefined).refusals)).toEqual(['one']);
    expect(sentences(all.list({ device: 'rxe0' }, undefined).refusals)).toEqual(['one']);
    expect(sentences(all.list({ after: 1 }, undefined).refusals)).toEqual(['two']);
    const { refusals: list, lost } = all.list({ limit: 1 }, undefined);
    expect([sentences(list), lost]).toEqual([['two'], 1]);
  });

  it('have sentences of bounded length without control characters', () => {
    all.record(report({ sentence: `a\nb\u001b[31m${'x'.repeat(1000)}`, program: 'p\u0007' }));
    const [refusal] = all.list({}, undefined).refusals;
    expect(refusal?.sentence).toHaveLength(SENTENCE_MAX);
    expect(refusal?.sentence.startsWith('a?b?[31mx')).toBe(true);
    expect(refusal?.program).toBe('p?');
  });

  it('have a bounded number of counts', () => {
    for (let count = 0; count < 2 * REFUSAL_COUNTS_MAX; count += 1) {
      all.record(report({ verb: `verb ${count}` }));
    }
    expect(all.counts()).toHaveLength(REFUSAL_COUNTS_MAX + 1);
    expect(all.counts().at(-1)).toMatchObject({ verb: 'other', count: REFUSAL_COUNTS_MAX });
  });

  it('are sent to a bounded number of watchers, until these stop', () => {
    const seen: string[] = [];
    const stop = all.watch(({ sentence }) => seen.push(sentence));
    all.record(report({ sentence: 'one' }));
    stop?.();
    all.record(report({ sentence: 'two' }));
    expect(seen).toEqual(['one']);
    for (let count = 0; count < REFUSAL_WATCHERS_MAX; count += 1) all.watch(() => undefined);
    expect(all.watch(() => undefined)).toBeUndefined();
  });

  it('are forgotten by a reset, which keeps their numbering', () => {
    all.record(report());
    all.clear();
    expect(all.list({}, undefined).refusals).toEqual([]);
    expect(all.record(report()).number).toBe(2);
  });

  it('have one line each, the same everywhere', () => {
    expect(refusalLine(report({ step: 'INIT to RTR' }))).toBe(
      'ibv_modify_qp INIT to RTR: EINVAL: qp_state is 9; there are 0 to 6',
    );
    expect(refusalLine(report({ code: '' }))).toBe(
      'ibv_modify_qp: qp_state is 9; there are 0 to 6',
    );
  });
});
