import type { ProviderFixture } from '../support/provider-fixture.ts';
import { DEVICES, daemonDevices, daemonPair } from './pairs.ts';
import { complianceSuite } from './suite.ts';

const devices = daemonDevices(DEVICES);

/** Two clients, each of its own daemon; the daemons access client memory by the named tier. */
function fixture(own: 'process_vm' | 'agent', daemonCount: 1 | 2): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own },
    start: () => daemonPair({ devices, memoryTiers: ['shared', own] }, daemonCount),
  };
}

complianceSuite('daemon, process_vm', fixture('process_vm', 1));
complianceSuite('daemon, agent', fixture('agent', 2));
