import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { CommandFolder } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from '../support/provider-fixture.ts';
import { ROCE_DEVICE, type RoceFixture } from '../support/roce-fixture.ts';
import { roceSuite } from './roce.ts';
import { complianceSuite } from './suite.ts';

const network = 'isolated';

/** Two clients of one daemon, which reaches nothing else. */
function fixture(lowerLayer: 'tcp' | 'sctp'): ProviderFixture {
  const small = { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE };
  const devices = [DEVICE, small].map((device) => {
    return { ...device, addresses: [...device.addresses], lowerLayer };
  });
  return {
    tiers: { allocated: 'shared', own: 'process_vm' },
    lacks: new Set(['tcp'] as const),
    async start() {
      const folder = new CommandFolder();
      const socketPath = folder.file('s');
      const daemon = await startDaemon({ socketPath, devices, network, logLevel: 'silent' });
      const server = await connectDaemon({ socketPath });
      const client = await connectDaemon({ socketPath });
      return {
        server,
        client,
        async stop() {
          await Promise.all([server.close(), client.close()]);
          await daemon.stop();
          await folder.clean();
        },
      };
    },
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
