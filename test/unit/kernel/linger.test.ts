import { beforeEach, describe, expect, it } from 'vitest';
import { Linger } from '#daemon/kernel/linger';

let now: number;
let turns: (() => void)[];
let linger: Linger;

beforeEach(() => {
  now = 1_000_000;
  turns = [];
  linger = new Linger({ now: () => now, soon: (run) => turns.push(run) });
});

/** Runs turns of the event loop, each of which takes so long, until it would sleep. Returns their number. */
function run(microsPerTurn: number): number {
  let count = 0;
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
    now += microsPerTurn;
    count += 1;
    turn();
  }
  return count;
}

describe('an event loop that has sent an event', () => {
  it('stays awake for 50 µs, and for 64 turns if no time passes', () => {
    linger.begin();
    expect(run(5)).toBe(10);
    linger.begin();
    expect(run(0)).toBe(64);
  });

  it('stays awake longer after another event, with one turn at a time', () => {
    linger.begin();
    now += 40;
    linger.begin();
    expect(turns).toHaveLength(1);
    expect(run(5)).toBe(10);
  });

  it('sleeps once a program has sent something', () => {
    linger.begin();
    linger.end();
    expect(run(5)).toBe(1);
  });

  it('sleeps when others had the core meanwhile', () => {
    linger.begin();
    expect(run(1000)).toBe(1);
  });

  it('lingers rarely while nothing comes of it, and again once something does', () => {
    const lingered = (events: number): number => {
      let count = 0;
      for (let event = 0; event < events; event += 1) {
        linger.begin();
        if (run(5) > 0) count += 1;
      }
      return count;
    };
    expect(lingered(8)).toBe(8);
    expect(lingered(160)).toBe(10);
    for (let event = 0; event < 16; event += 1) linger.begin();
    linger.end();
    run(5);
    expect(lingered(8)).toBe(8);
  });

  it('sleeps between events that come all the time while programs only receive', () => {
    for (let event = 0; event < 20; event += 1) {
      linger.begin();
      now += 10;
      turns.shift()?.();
    }
    expect(run(5)).toBeLessThan(10);
    linger.begin();
    expect(turns).toEqual([]);
  });

  it('takes requests that come at other times for nothing', () => {
    for (let event = 0; event < 8; event += 1) {
      linger.begin();
      run(5);
      linger.end();
    }
    linger.begin();
    expect(turns).toEqual([]);
  });
});
