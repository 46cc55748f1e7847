import { createHook, executionAsyncResource } from 'node:async_hooks';
import { describe, expect, it } from 'vitest';
import { callbackName, TURN_MAX_MS, TurnWatch } from '#daemon/main/turn-watch';

describe('the watch over turns of the event loop', () => {
  it('reports the time that a turn took, and the callback that took most of it', () => {
    const notified: string[] = [];
    const watch = new TurnWatch((text) => notified.push(text));
    // The loop's round, what calls back, and the processor time at that moment.
    watch.begin(1, 'Pipe', 1000);
    watch.begin(1, 'Immediate', 1010);
    watch.beginWork('uverbs', 289, 1011);
    // The longest piece, not the last one.
    watch.beginWork('uverbs', 3, 1009 + TURN_MAX_MS);
    watch.begin(1, 'Timeout', 1010 + TURN_MAX_MS);
    watch.begin(2, 'Pipe', 1020 + TURN_MAX_MS);
    expect(notified).toEqual([
      `a turn of ${TURN_MAX_MS + 20}.0 ms, of which ${TURN_MAX_MS - 2}.0 ms: Immediate, uverbs 289`,
    ]);
    // The next one starts over.
    watch.begin(3, 'Pipe', 1020 + 2 * TURN_MAX_MS);
    expect(notified).toHaveLength(1);
    watch.begin(4, 'Pipe', 1021 + 3 * TURN_MAX_MS);
    expect(notified.slice(1)).toEqual([
      `a turn of ${TURN_MAX_MS + 1}.0 ms, of which ${TURN_MAX_MS + 1}.0 ms: Pipe`,
    ]);
  });

  it('names the function that a timer, an immediate or a tick calls', async () => {
    const names = new Set<string>();
    const hook = createHook({ before: () => names.add(callbackName(executionAsyncResource())) });
    hook.enable();
    await new Promise<void>((resolve) => {
      const afterTimer = (): void => resolve();
      const afterImmediate = (): void => void setTimeout(afterTimer, 1);
      process.nextTick(function afterTick() {
        setImmediate(afterImmediate);
      });
    });
    hook.disable();
    expect([...names]).toEqual(
      expect.arrayContaining([
        'nextTick afterTick',
        'Immediate afterImmediate',
        'Timeout afterTimer',
      ]),
    );
  });
});
