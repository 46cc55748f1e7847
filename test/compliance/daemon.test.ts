import type { ProviderFixture } from '../support/provider-fixture.ts';
import { DEVICES, daemonDevices, daemonPair } from './pairs.ts';
import { complianceSuite } from './suite.ts';

const devices = daemonDevices(DEVICES);

/** Two clients, of one daemon or two, which access the clients' memory by the tier `own`. */
function fixture(own: 'process_vm' | 'agent', daemonCount: 1 | 2): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own },
    start: () => daemonPair({ devices, memoryTiers: ['shared', own] }, daemonCount),
  };
}

complianceSuite('daemon, process_vm', fixture('process_vm', 1));
complianceSuite('daemon, agent', fixture('agent', 2));
