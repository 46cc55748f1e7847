import { describe, expect, it } from 'vitest';
import { RefusalLog } from '#daemon/http/refusal-log';

describe('the log of refusals', () => {
  it('warns ten times a minute, then once with the number suppressed', () => {
    const log = new RefusalLog();
    const notes = Array.from({ length: 1000 }, (_, at) => log.judge({ status: 403 }, at));
    expect(notes.filter(({ level }) => level === 'warn')).toHaveLength(10);
    expect(log.judge({ status: 401 }, 59_999)).toEqual({ level: 'debug', heldBack: 0 });
    expect(log.judge({ status: 401 }, 60_000)).toEqual({ level: 'warn', heldBack: 991 });
    expect(log.judge({ status: 401 }, 60_001)).toEqual({ level: 'warn', heldBack: 0 });
  });

  it('does not warn about invalid input', () => {
    const log = new RefusalLog();
    for (const status of [400, 404, 405, 413, 415]) {
      expect(log.judge({ status }, 0).level).toBe('debug');
    }
  });
});
