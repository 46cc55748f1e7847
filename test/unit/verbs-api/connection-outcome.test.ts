import { describe, expect, it } from 'vitest';
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { CMEvent } from '#contract/verbs/provider';
import { ConnectionOutcome } from '#verbs-api/client/connection-outcome';

function event(type: CMEventType, more: Partial<CMEvent> = {}): CMEvent {
  const id = {} as CMEvent['id'];
  const depths = { initiatorDepth: 0, responderResources: 0 };
  const facts = { listenId: undefined, error: undefined, privateData: new Uint8Array(0) };
  return { type, id, ...facts, ...depths, text: 'it went wrong', ...more };
}

describe('the outcome of a call on a connection id', () => {
  it('is the expected event, and no other success', async () => {
    const outcome = new ConnectionOutcome();
    const established = outcome.begin(CMEventType.established);
    outcome.settle(event(CMEventType.addrResolved));
    outcome.settle(event(CMEventType.connectRequest));
    expect(outcome.pending).toBe(true);
    const last = event(CMEventType.established);
    outcome.settle(last);
    expect(await established).toBe(last);
    expect(outcome.pending).toBe(false);
    // An event with no call outstanding is not an outcome.
    outcome.settle(event(CMEventType.disconnected));
  });

  it.each([
    CMEventType.addrError,
    CMEventType.routeError,
    CMEventType.connectError,
    CMEventType.unreachable,
    CMEventType.disconnected,
    CMEventType.deviceRemoval,
  ])('is the error of event %i', async (type) => {
    const outcome = new ConnectionOutcome();
    const notified = outcome.begin(CMEventType.established);
    outcome.settle(event(type, { error: 'ETIMEDOUT' }));
    await expect(notified).rejects.toMatchObject({ code: 'ETIMEDOUT', message: 'it went wrong' });
    const untold = outcome.begin(CMEventType.established);
    outcome.settle(event(type));
    await expect(untold).rejects.toMatchObject({ code: 'ECONNRESET' });
  });

  it('is a rejection with the peer’s data', async () => {
    const outcome = new ConnectionOutcome();
    const promise = outcome.begin(CMEventType.established);
    outcome.settle(event(CMEventType.rejected, { privateData: Uint8Array.of(7) }));
    await expect(promise).rejects.toBeInstanceOf(ConnectionRejectedError);
  });

  it('is an error of the id, or undefined if nothing was started', async () => {
    const outcome = new ConnectionOutcome();
    const lost = outcome.begin(CMEventType.addrResolved);
    outcome.fail(new VerbsError('EIO', 'gone'));
    await expect(lost).rejects.toMatchObject({ code: 'EIO' });
    const refused = outcome.begin(CMEventType.established);
    outcome.withdraw(refused);
    expect(outcome.pending).toBe(false);
    const next = outcome.begin(CMEventType.established);
    outcome.withdraw(refused);
    outcome.settle(event(CMEventType.established));
    await expect(next).resolves.toBeDefined();
  });
});
