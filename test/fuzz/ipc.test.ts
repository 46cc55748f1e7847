/** Hostile clients of the daemon's verbs protocol. */
import { describe, it } from 'vitest';
import { bites, smoke } from './smoke.ts';

describe('fuzzing what clients send', () => {
  it('decodes or refuses any value and request', () => smoke('ipc-value'));

  it('decodes the same frames however the bytes are split', () => smoke('ipc-frame'));

  it('removes everything of a hostile client and leaves a victim unchanged', () =>
    smoke('ipc-command'));

  it('keeps serving a well-behaved client while hostile ones attack the daemon', () =>
    smoke('ipc-socket'));
});

describe('canaries: a planted defect is found', () => {
  it.each(['ipc-value', 'ipc-frame', 'ipc-command', 'ipc-socket'])('%s', bites);
});
