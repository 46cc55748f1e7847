/** The meter of turns, on a separate clock. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { noteShortWork, noteWork, workListeners } from '#daemon/host/turn-note';
import { TurnMeter } from '#daemon/main/turn-meter';

let nowMs = 0;
let due: { readonly atMs: number; readonly run: () => void } | undefined;
let meter: TurnMeter;

/** Advances time, in a long turn of the loop or asleep; then timers fire. */
function pass(ms: number): void {
  nowMs += ms;
  const timer = due;
  if (timer === undefined || timer.atMs > nowMs) return;
  due = undefined;
  timer.run();
}

beforeEach(() => {
  nowMs = 1000;
  due = undefined;
  meter = new TurnMeter({
    nowMs: () => nowMs,
    after: (ms, run) => {
      const again = (): void => {
        due = { atMs: nowMs + ms, run };
      };
      again();
      return { again, cancel: () => (due = undefined) };
    },
  });
  meter.start();
});

afterEach(() => {
  meter.close();
  expect(workListeners.onNext).toBeUndefined();
});

describe('the meter of turns', () => {
  it('counts a turn by how late its timer is', () => {
    noteShortWork();
    pass(90);
    noteWork('a command');
    pass(14);
    const { count, sumSeconds, bounds, withinBound } = meter.times;
    expect([meter.longestSeconds, count, sumSeconds]).toEqual([0.08, 2, 0.084]);
    const within = (bound: number) => withinBound[bounds.indexOf(bound)];
    expect([0.005, 0.05, 0.1, 2.5].map(within)).toEqual([1, 1, 2, 2]);
  });

  it('asks for no timer while there is no work', () => {
    expect(due).toBeUndefined();
    noteShortWork();
    noteShortWork();
    expect(due?.atMs).toBe(1010);
    pass(10);
    // There was work; the next check shows whether there is more.
    expect(due).toBeDefined();
    pass(10);
    expect(due).toBeUndefined();
    pass(10_000);
    expect(meter.longestSeconds).toBe(0);
    noteShortWork();
    expect(due?.atMs).toBe(nowMs + 10);
  });
});
