/** The native bridge as a fixture: two providers of one process, and the gaps of its drivers. */
import { createNative } from '#verbs-api/native/native-provider';
import type { Lack, ProviderFixture } from '../support/provider-fixture.ts';
import { pairOf } from './pairs.ts';

/** rdma-core's connection manager counts private data in one byte. */
const CM_PRIVATE_DATA_MAX = 255;

/** Features that libsiw's devices lack. */
export const LIBSIW_LACKS: readonly Lack[] = [
  'windows',
  'atomics',
  'immediateData',
  'localInvalidate',
  'chosenKeys',
  'chosenAddresses',
  'wireOptions',
];

/** The fixture, on a device that lacks more than libsiw does, or carries less private data. */
export function nativeFixture(
  more: readonly Lack[] = [],
  maxPrivateData: number = CM_PRIVATE_DATA_MAX,
): ProviderFixture {
  return {
    tiers: { allocated: 'pinned', own: 'pinned' },
    backend: 'native',
    maxPrivateData,
    lacks: new Set<Lack>([...LIBSIW_LACKS, 'reset', ...more]),
    start: async () => pairOf(await Promise.all([createNative(), createNative()])),
  };
}
