import { DEVICES, embeddedPair } from './pairs.ts';
import { complianceSuite } from './suite.ts';

/** Two hosts in this process; they share only the loopback interface. */
complianceSuite('embedded', {
  tiers: { allocated: 'local', own: 'local' },
  start: () => embeddedPair(DEVICES),
});
