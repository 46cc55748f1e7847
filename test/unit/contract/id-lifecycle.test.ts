import { describe, expect, it } from 'vitest';
import { IdLifecycle, type IdState } from '#contract/verbs/id-lifecycle';

/** Each state, with the steps on a way to it. */
const WAYS: Readonly<Record<IdState, readonly IdState[]>> = {
  idle: [],
  bound: ['bound'],
  resolving: ['bound', 'resolving'],
  resolved: ['resolving', 'resolved'],
  routing: ['resolved', 'routing'],
  routed: ['resolved', 'routing', 'routed'],
  listening: ['bound', 'listening'],
  connection: ['resolved', 'routed', 'connection'],
  closed: ['connection', 'closed'],
  destroyed: ['bound', 'destroyed'],
};
const STATES = Object.keys(WAYS) as IdState[];

function at(state: IdState): IdLifecycle {
  const id = new IdLifecycle();
  for (const step of WAYS[state]) id.enter(step);
  return id;
}

describe('the lifecycle of a connection id', () => {
  it.each(STATES)('%s is reached, named, and left only as rdma_cm leaves it', (state) => {
    const id = at(state);
    expect(id.state).toBe(state);
    const next = STATES.filter((step) => {
      try {
        at(state).enter(step);
        return true;
      } catch {
        return false;
      }
    });
    // A destroyed id stays so; any other may end, since its device may be gone.
    expect(next.includes('destroyed')).toBe(state !== 'destroyed');
    expect(next.includes('closed')).toBe(state !== 'destroyed');
    const onward: Partial<Record<IdState, IdState[]>> = {
      listening: ['bound'],
      routed: ['connection'],
      closed: [],
      destroyed: [],
    };
    const steps = next.filter((step) => step !== 'closed' && step !== 'destroyed');
    if (onward[state] !== undefined) expect(steps).toEqual(onward[state]);
    expect(steps.includes('connection')).toBe(['idle', 'resolved', 'routed'].includes(state));
  });

  it('refuses a command in another state with EINVAL, and on a destroyed id with ENOENT', () => {
    at('bound').expect('idle', 'bound');
    expect(() => at('listening').expect('idle', 'bound')).toThrow(
      'the id must be idle or bound, but is listening',
    );
    expect(() => at('closed').expect('connection')).toThrow(
      'the id must be connecting or connected, but is closed, since its connection failed or ended',
    );
    expect(() => at('destroyed').expect('idle')).toThrow('the id is destroyed');
  });
});
