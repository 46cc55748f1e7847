import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isVerbsError, type VerbsError } from '#contract/verbs/errors';
import { OWNER, SharedLimit } from '#daemon/clients/objects/shared-limit';

const ALICE = 1001;
const EVE = 1002;
const TERMS = {
  what: 'things',
  remedy: 'raise limits.things of the daemon',
  code: 'ENOMEM',
} as const;

/** Takes all that the user may have, one by one; returns the refusal. */
function takeAll(limit: SharedLimit, user: number): VerbsError {
  for (;;) {
    try {
      limit.take(user);
    } catch (error) {
      if (isVerbsError(error)) return error;
      throw error;
    }
  }
}

describe('a limit of the whole daemon', () => {
  it('belongs only to the owner if there is no other user', () => {
    const limit = new SharedLimit(100, TERMS);
    const refusal = takeAll(limit, OWNER);
    expect(limit.heldBy(OWNER)).toBe(100);
    expect(refusal).toMatchObject({
      code: 'ENOMEM',
      message:
        'all clients together may have at most 100 things; raise limits.things of the daemon',
    });
  });

  it('gives another user half of the resources outside the owner’s reserve', () => {
    const limit = new SharedLimit(100, TERMS);
    const refusal = takeAll(limit, EVE);
    expect(limit.heldBy(EVE)).toBe(37);
    expect(refusal).toMatchObject({
      code: 'ENOMEM',
      message:
        "user 1002 has 37 of the daemon's 100 things and may have 37, half of what other users " +
        "leave; end some of this user's programs, or raise limits.things of the daemon",
    });
    takeAll(limit, OWNER);
    expect(limit.heldBy(OWNER)).toBe(63);
  });

  it('leaves something for each further user, and the reserve for the owner', () => {
    const limit = new SharedLimit(1000, TERMS);
    for (let uid = 1; uid <= 8; uid += 1) {
      const free = 750 - limit.use().used;
      takeAll(limit, uid);
      expect(limit.heldBy(uid)).toBe(Math.floor(free / 2));
    }
    takeAll(limit, OWNER);
    expect(limit.heldBy(OWNER)).toBeGreaterThanOrEqual(250);
  });

  it('leaves half of the rest to an owner that has more than the reserve', () => {
    const limit = new SharedLimit(100, TERMS);
    limit.take(OWNER, 60);
    takeAll(limit, EVE);
    expect(limit.heldBy(EVE)).toBe(20);
    limit.take(OWNER, 20);
    expect(() => limit.take(OWNER)).toThrow('all clients together');
  });

  it('names the user closest to a refusal', () => {
    const limit = new SharedLimit(100, TERMS);
    limit.take(OWNER, 10);
    expect(limit.use()).toEqual({ used: 10, limit: 100 });
    limit.take(ALICE, 3);
    limit.take(EVE, 9);
    expect(limit.use()).toEqual({ used: 22, limit: 100, user: { uid: EVE, used: 9, share: 36 } });
    limit.give(EVE, 9);
    expect(limit.use()).toMatchObject({ user: { uid: ALICE, used: 3 } });
  });

  it('counts the real use of the process, if that is more', () => {
    let measured = 90;
    const limit = new SharedLimit(100, TERMS, { measure: () => measured });
    limit.take(ALICE, 10);
    expect(limit.use()).toMatchObject({ used: 90 });
    measured = 100;
    expect(() => limit.take(ALICE)).toThrow('all clients together may have at most 100 things');
  });

  it('excludes lingering objects from shares and reserve', () => {
    let lingers = 0;
    const limit: SharedLimit = new SharedLimit(150, TERMS, {
      measure: () => limit.heldBy(OWNER) + limit.heldBy(EVE) + limit.heldBy(ALICE) + lingers,
      lingering: 50,
    });
    takeAll(limit, EVE);
    expect(limit.heldBy(EVE)).toBe(37);
    // Resources that a user returned and the process still holds.
    lingers = 50;
    takeAll(limit, ALICE);
    expect(limit.heldBy(ALICE)).toBe(19);
    limit.take(OWNER, 25);
    takeAll(limit, OWNER);
    expect(limit.heldBy(OWNER)).toBe(150 - 50 - 37 - 19);
  });

  it('reports each refusal with its user', () => {
    const refused: number[] = [];
    const limit = new SharedLimit(4, TERMS, { onRefused: (user) => refused.push(user) });
    takeAll(limit, EVE);
    takeAll(limit, OWNER);
    expect(refused).toEqual([EVE, OWNER]);
  });

  it('holds, and keeps the owner’s reserve, whatever users take and return', () => {
    const step = fc.record({
      user: fc.integer({ min: 0, max: 4 }),
      amount: fc.integer({ min: -20, max: 20 }),
    });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), fc.array(step), (most, steps) => {
        const limit = new SharedLimit(most, TERMS);
        for (const { user, amount } of steps) {
          if (amount < 0) limit.give(user, Math.min(-amount, limit.heldBy(user)));
          else {
            try {
              limit.take(user, amount);
            } catch (error) {
              if (!isVerbsError(error)) throw error;
            }
          }
          limit.assertInvariants();
          const { used } = limit.use();
          expect(used).toBeLessThanOrEqual(most);
          expect(limit.shareOf(OWNER)).toBeGreaterThanOrEqual(Math.ceil(most / 4));
        }
      }),
    );
  });
});
