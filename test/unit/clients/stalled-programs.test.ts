import { describe, expect, it } from 'vitest';
import { StalledPrograms } from '#daemon/clients/objects/stalled-programs';

const MINUTE = 60_000;

describe('programs whose memory did not respond', () => {
  it('are under suspicion for some minutes, and no others', () => {
    let now = 0;
    const programs = new StalledPrograms(() => now);
    expect(programs.suspects('forker')).toBe(false);
    programs.note('forker');
    now = 4 * MINUTE;
    expect(['forker', 'other'].map((name) => programs.suspects(name))).toEqual([true, false]);
    programs.note('forker');
    now = 8 * MINUTE;
    expect(programs.suspects('forker')).toBe(true);
    now = 9 * MINUTE;
    expect(programs.suspects('forker')).toBe(false);
  });

  it('are all programs once several names were under suspicion together', () => {
    let now = 0;
    const programs = new StalledPrograms(() => now);
    for (const name of ['one', 'two', 'three', 'four']) programs.note(name);
    expect(programs.suspects('other')).toBe(true);
    now = 5 * MINUTE;
    expect(programs.suspects('other')).toBe(false);
  });
});
