/** Deadlines that are due together, on a clock of the test. */
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import type { Conduit } from '#daemon/host/conduit';
import { EventLoop } from '#daemon/host/event-loop';
import type { HostClock } from '#daemon/host/links/network';

const DUE_MICROS = 5000;

describe('deadlines of connections', () => {
  it('that are due together are all handled, in several turns', () => {
    const alarms: { readonly at: number; readonly run: () => void }[] = [];
    let now = 0;
    const clock = {
      now: () => now,
      soon: () => undefined,
      after: (micros: number, run: () => void) => {
        const alarm = { at: now + micros, run };
        alarms.push(alarm);
        return { cancel: () => void alarms.splice(alarms.indexOf(alarm), 1) };
      },
    } as unknown as HostClock;
    const user = {
      drainEffects: () => false,
      handleDeadline: () => undefined,
      nextDeadline: () => NEVER,
    };
    const loop = new EventLoop(user, clock);
    let met = 0;
    const count = 10_000;
    for (let made = 0; made < count; made += 1) {
      let due = DUE_MICROS;
      const conduit = {
        queued: false,
        deferred: false,
        settle: () => 'done',
        nextDeadline: () => due,
        handleDeadline: () => {
          due = NEVER;
          met += 1;
        },
      };
      loop.enqueue(conduit as unknown as Conduit);
    }
    loop.drain();
    let most = 0;
    let turns = 0;
    for (let alarm = alarms.shift(); alarm !== undefined; alarm = alarms.shift()) {
      const before = met;
      now = Math.max(now, alarm.at);
      alarm.run();
      most = Math.max(most, met - before);
      turns += 1;
    }
    expect(met).toBe(count);
    expect(most).toBeLessThanOrEqual(128);
    expect(turns).toBeLessThan(200);
    loop.close();
  });
});
