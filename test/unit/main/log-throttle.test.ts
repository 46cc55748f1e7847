import { beforeEach, expect, it } from 'vitest';
import { LogThrottle, THROTTLE_BURST } from '#daemon/main/log-throttle';

let nowMs: number;
let summaries: [string, number][];
let throttle: LogThrottle;

beforeEach(() => {
  nowMs = 1000;
  summaries = [];
  throttle = new LogThrottle(
    (kind, similar) => summaries.push([kind, similar]),
    () => nowMs,
  );
});

function admitted(kind: string, messages: number): number {
  let count = 0;
  for (let message = 0; message < messages; message += 1) if (throttle.admit(kind)) count += 1;
  return count;
}

it('writes a burst of one kind, then a limited rate, and counts the rest', () => {
  expect(admitted('refused', 1500)).toBe(THROTTLE_BURST);
  nowMs += 1000;
  expect(admitted('refused', 1500)).toBe(10);
  throttle.flush();
  expect(summaries).toEqual([['refused', 3000 - THROTTLE_BURST - 10]]);
  throttle.flush();
  expect(summaries).toHaveLength(1);
});

it('has a burst for each kind, and a limited number of kinds', () => {
  admitted('refused', 1500);
  expect(admitted('client came', 1)).toBe(1);
  let others = 0;
  for (let kind = 0; kind < 10_000; kind += 1) others += admitted(`kind ${kind}`, 1);
  expect(others).toBeLessThan(500);
});

it('restores the whole burst of a quiet kind, and no more', () => {
  admitted('refused', 1500);
  nowMs += 3_600_000;
  expect(admitted('refused', 1500)).toBe(THROTTLE_BURST);
});
