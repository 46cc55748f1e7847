/** Devices of SCTP for the compliance suite, of either transport. */
import type { ProviderFixture } from '../support/provider-fixture.ts';
import { DEVICES, daemonDevices, daemonPair, embeddedPair } from './pairs.ts';

/** Fixtures of hosts whose devices have this transport, by the way that programs reach them. */
export function sctpFixtures(
  sctpTransport: 'usrsctp' | 'kernel',
): Record<'embedded' | 'daemon', ProviderFixture> {
  const devices = daemonDevices(DEVICES, { lowerLayer: 'sctp' as const, sctpTransport });
  const lacks = new Set(['tcp'] as const);
  const memoryTiers = ['shared', 'process_vm'] as const;
  return {
    // Two hosts in this process, over one stack of SCTP.
    embedded: {
      tiers: { allocated: 'local', own: 'local' },
      lacks,
      start: () => embeddedPair(devices),
    },
    // Two clients of one daemon.
    daemon: {
      tiers: { allocated: 'shared', own: 'process_vm' },
      lacks,
      // The guest has a device of siw, too.
      start: () => daemonPair({ devices, memoryTiers, native: false }),
    },
  };
}
