/** How the objects of programs that have ended are destroyed. */
import { describe, expect, it } from 'vitest';
import { EndingOwners } from '#daemon/clients/objects/ending-owners';

/** Milliseconds that destroying one object takes. */
const OBJECT_MS = 0.1;
/** More than a turn's share, plus the piece destroyed before the clock is read again. */
const TURN_MAX_MS = 6;

/** Owners on a virtual clock, on which destroying objects takes time. */
class Ended {
  readonly owners: EndingOwners<Owner>;
  nowMs = 0;
  readonly #later: (() => void)[] = [];

  constructor() {
    const soon = (run: () => void): void => void this.#later.push(run);
    this.owners = new EndingOwners({ soon, now: () => this.nowMs * 1000 });
  }

  owner(objects: number, objectMs = OBJECT_MS): Owner {
    return new Owner(this, objects, objectMs);
  }

  /** Runs the next turn; the milliseconds it took. */
  turn(): number {
    const begun = this.nowMs;
    for (const run of this.#later.splice(0)) run();
    return this.nowMs - begun;
  }

  get scheduled(): number {
    return this.#later.length;
  }
}

class Owner {
  left: number;
  readonly #ended: Ended;
  readonly #objectMs: number;

  constructor(ended: Ended, objects: number, objectMs: number) {
    this.#ended = ended;
    this.left = objects;
    this.#objectMs = objectMs;
  }

  close(costMax: number): number {
    const cost = Math.min(costMax, this.left);
    this.left -= cost;
    this.#ended.nowMs += cost * this.#objectMs;
    return cost;
  }
}

describe('owners of objects that have ended', () => {
  it('destroy few objects at once, and are then idle', () => {
    const ended = new Ended();
    const owner = ended.owner(3);
    let ends = 0;
    ended.owners.add(owner, () => {
      ends += 1;
    });
    expect([owner.left, ends, ended.owners.owners]).toEqual([0, 1, []]);
    ended.turn();
    ended.turn();
    expect([ends, ended.scheduled]).toEqual([1, 0]);
  });

  it.each([OBJECT_MS / 10, OBJECT_MS, OBJECT_MS * 3])(
    'take a few milliseconds of a turn, however long an object takes: %d ms',
    (objectMs) => {
      const ended = new Ended();
      const owner = ended.owner(8000, objectMs);
      let ends = 0;
      ended.owners.add(owner, () => {
        ends += 1;
      });
      expect(owner.left).toBeGreaterThan(0);
      expect(ended.nowMs).toBeLessThan(TURN_MAX_MS + objectMs * 16);
      let turns = 0;
      for (; ended.scheduled > 0; turns += 1) {
        expect(ended.turn()).toBeLessThan(TURN_MAX_MS + objectMs * 16);
      }
      expect([owner.left, ends]).toEqual([0, 1]);
      // Few turns suffice: the share is used.
      expect(turns).toBeLessThan((8000 * objectMs) / 4 + 8000 / 256);
    },
  );

  it('take several turns though the clock stands still, as in a simulation', () => {
    const ended = new Ended();
    const owner = ended.owner(8000, 0);
    ended.owners.add(owner, () => undefined);
    let turns = 0;
    for (; ended.scheduled > 0; turns += 1) ended.turn();
    expect(owner.left).toBe(0);
    expect(turns).toBeGreaterThan(10);
  });

  it('share a turn, oldest first, with the time of their end callbacks', () => {
    const ended = new Ended();
    const ends: number[] = [];
    for (let index = 0; index < 100; index += 1) {
      ended.owners.add(ended.owner(1), () => {
        ends.push(index);
        ended.nowMs += 1;
      });
    }
    expect(ends.length).toBeLessThan(6);
    while (ended.scheduled > 0) expect(ended.turn()).toBeLessThan(TURN_MAX_MS);
    expect(ends).toEqual(Array.from({ length: 100 }, (_, index) => index));
  });

  it('leave an owner that ends in an exhausted turn to the next turn', async () => {
    const ended = new Ended();
    const first = ended.owner(40);
    ended.owners.add(first, () => undefined);
    const [small, begun] = [ended.owner(1), ended.nowMs];
    ended.owners.add(small, () => undefined);
    expect([small.left, ended.nowMs]).toEqual([1, begun]);
    const idle = ended.owners.idle();
    while (ended.scheduled > 0) {
      ended.turn();
      await Promise.resolve();
    }
    await idle;
    expect([first.left, small.left]).toEqual([0, 0]);
  });
});
