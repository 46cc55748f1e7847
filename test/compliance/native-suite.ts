/**
 * The suite on the native bridge. It runs where the installed rdma-core finds devices named as the
 * fixture wants them: `test/interop` arranges that, in a process that the shim is loaded into.
 */
import { createNative } from '../../native-bridge/provider/native-provider.ts';
import type { ProviderFixture } from './fixture.ts';
import { complianceSuite } from './suite.ts';

/** rdma-core's connection manager counts private data in one octet. */
const CM_PRIVATE_DATA_MAX = 255;

/** Two providers of one process, with what libsiw lacks. */
const fixture: ProviderFixture = {
  tiers: { allocated: 'pinned', own: 'pinned' },
  backend: 'native',
  maxPrivateData: CM_PRIVATE_DATA_MAX,
  lacks: new Set([
    'windows',
    'atomics',
    'immediateData',
    'localInvalidate',
    'chosenKeys',
    'chosenAddresses',
    'wireOptions',
    'reset',
  ]),
  async start() {
    const [server, client] = await Promise.all([createNative(), createNative()]);
    return {
      server,
      client,
      async stop() {
        await Promise.all([server.close(), client.close()]);
      },
    };
  },
};

complianceSuite('native', fixture);
