import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { describeWith } from '../support/prerequisites.ts';
import { DEVICE, type ProviderFixture } from '../support/provider-fixture.ts';
import { ROCE_DEVICE, type RoceFixture } from '../support/roce-fixture.ts';
import { DEVICES, daemonDevices, daemonPair } from './pairs.ts';
import { roceSuite } from './roce.ts';
import { complianceSuite } from './suite.ts';

const network = 'isolated';

/** Two clients of one daemon, which reaches nothing else. */
function fixture(lowerLayer: 'tcp' | 'sctp'): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own: 'process_vm' },
    lacks: new Set(['tcp'] as const),
    start: () => daemonPair({ devices: daemonDevices(DEVICES, { lowerLayer }), network }),
  };
}

const roce: RoceFixture = {
  async start() {
    const provider = await createEmbedded({ devices: [DEVICE, ROCE_DEVICE], network });
    return { server: provider, client: provider, stop: () => provider.close() };
  },
};

complianceSuite('isolated', fixture('tcp'));
roceSuite('isolated', roce);

describeWith(['sctp'], 'over SCTP', () => {
  complianceSuite('isolated', fixture('sctp'));
});
