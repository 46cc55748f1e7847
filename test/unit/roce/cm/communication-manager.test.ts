/** The communication manager of InfiniBand. */
import { describe, expect, it } from 'vitest';
import { CommunicationManager } from '../../../../daemon/roce/cm/communication-manager.ts';

describe('a communication manager', () => {
  it('has nothing to do at first', () => {
    const manager = new CommunicationManager({ random32: () => 1 });
    expect(manager.pollEffect()).toBeUndefined();
    expect(manager.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });
});
