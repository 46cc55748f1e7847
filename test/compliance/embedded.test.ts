import { createEmbedded } from '#daemon/embedded/embedded-provider';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from '../support/provider-fixture.ts';
import { complianceSuite } from './suite.ts';

const devices = [DEVICE, { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE }];

/** Two hosts in this process; they share only the loopback interface. */
const embedded: ProviderFixture = {
  tiers: { allocated: 'local', own: 'local' },
  async start() {
    const server = await createEmbedded({ devices });
    const client = await createEmbedded({ devices });
    return {
      server,
      client,
      async stop() {
        await Promise.all([server.close(), client.close()]);
      },
    };
  },
};

complianceSuite('embedded', embedded);
