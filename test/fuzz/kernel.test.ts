/** Hostile programs that use the preload library. */
import { describe, it } from 'vitest';
import { bites, smoke } from './smoke.ts';

describe('fuzzing what programs write to device files', () => {
  it('survives hostile uverbs commands, mappings, rings and doorbells, and frees everything', () =>
    smoke('kernel-verbs'));

  it('survives the same on a RoCE device, and frees everything', () => smoke('kernel-roce'));

  it('survives hostile rdma_cm commands and frees everything', () => smoke('kernel-cm'));

  it('survives the same on a RoCE device', () => smoke('kernel-cmroce'));

  it('answers or refuses netlink messages', () => smoke('kernel-netlink'));

  it('decodes the same frames of the preload library however the bytes are split', () =>
    smoke('kernel-frame'));
});

describe('canaries: a planted defect is found', () => {
  it.each([
    'kernel-verbs',
    'kernel-roce',
    'kernel-cm',
    'kernel-cmroce',
    'kernel-netlink',
    'kernel-frame',
  ])('%s', bites);
});
