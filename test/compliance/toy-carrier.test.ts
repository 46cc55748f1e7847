import { TOY } from '../support/toy-carrier.ts';
import { DEVICES, daemonDevices, daemonPair, embeddedPair } from './pairs.ts';
import { complianceSuite } from './suite.ts';

// A carrier that the product does not know needs a row and its own code, and nothing else.
const devices = daemonDevices(DEVICES, { lowerLayer: TOY });
const lacks = new Set(['tcp'] as const);

complianceSuite('toy carrier, embedded', {
  tiers: { allocated: 'local', own: 'local' },
  lacks,
  start: () => embeddedPair(devices),
});
complianceSuite('toy carrier, daemon', {
  tiers: { allocated: 'shared', own: 'process_vm' },
  lacks,
  start: () => daemonPair({ devices, memoryTiers: ['shared', 'process_vm'] }),
});
