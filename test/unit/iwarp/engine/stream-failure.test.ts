import { describe, expect, it } from 'vitest';
import { streamFailure } from '#daemon/iwarp/engine/stream-failure';
import { MessageFailure } from '#daemon/rnic/wire-port';

describe('the failure of a stream', () => {
  it('identifies the event by its numbers, and whether a request was refused [RDMAP-7.1-01, DDP-8.3-03, RDMAP-7-01]', () => {
    const meanings: [number, number, string | undefined, MessageFailure | undefined][] = [
      [1, 1, 'access', undefined],
      [1, 2, undefined, undefined],
      [0, 0, undefined, undefined],
      [0, 1, 'request', MessageFailure.remoteAccess],
      [0, 2, 'request', MessageFailure.remoteInvalidRequest],
      [2, 0, undefined, undefined],
      [2, 1, undefined, undefined],
    ];
    for (const [layer, etype, event, refusal] of meanings) {
      const failure = streamFailure('protocol', 'why', { layer, etype, code: 3, quirk: undefined });
      expect([failure.event, failure.refusal]).toEqual([event, refusal]);
      expect(failure).toMatchObject({ layer, etype, code: 3, text: 'why' });
      expect(failure.detail).toBe(`layer ${layer}, type ${etype}, code 3`);
      expect('quirk' in failure).toBe(false);
    }
  });
});
