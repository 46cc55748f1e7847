/** Devices of SCTP for the compliance suite, of either transport. */
import type { ProviderFixture } from '../support/provider-fixture.ts';
import { DEVICES, daemonDevices, daemonPair, embeddedPair } from './pairs.ts';

/** The suite's hosts, by how its programs reach them. */
interface SctpFixtures {
  /** Two hosts in this process, over one stack of SCTP. */
  readonly embedded: ProviderFixture;
  /** Two clients of one daemon. */
  readonly daemon: ProviderFixture;
}

/** Hosts whose devices have this transport. */
export function sctpFixtures(sctpTransport: 'usrsctp' | 'kernel'): SctpFixtures {
  const devices = daemonDevices(DEVICES, { lowerLayer: 'sctp' as const, sctpTransport });
  const lacks = new Set(['tcp'] as const);
  const memoryTiers = ['shared', 'process_vm'] as const;
  return {
    embedded: {
      tiers: { allocated: 'local', own: 'local' },
      lacks,
      start: () => embeddedPair(devices),
    },
    daemon: {
      tiers: { allocated: 'shared', own: 'process_vm' },
      lacks,
      // The guest has a device of siw, too.
      start: () => daemonPair({ devices, memoryTiers, native: false }),
    },
  };
}
