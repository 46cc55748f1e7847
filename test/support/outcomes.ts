/** Outcomes that many suites expect: completions, by work request id and status, and errors. */
import { expect } from 'vitest';

/** Takes all completions of a queue, which must be these, in this order. */
export function expectOutcome(
  queue: { outcome(): [number, number][] },
  ...expected: readonly [wrId: number, status: number][]
): void {
  expect(queue.outcome()).toEqual(expected);
}

/** Matches an error of this code, whose message contains `text`. */
export function failure(code: string, text = ''): unknown {
  return expect.objectContaining({ code, message: expect.stringContaining(text) });
}
