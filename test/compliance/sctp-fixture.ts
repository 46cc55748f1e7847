/** Devices of SCTP for the compliance suite, of either transport. */
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { CommandFolder } from '../support/cli-process.ts';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from '../support/provider-fixture.ts';

/** The suite's hosts, by how its programs reach them. */
interface SctpFixtures {
  /** Two hosts in this process. */
  readonly embedded: ProviderFixture;
  /** Two clients of one daemon. */
  readonly daemon: ProviderFixture;
}

/** Hosts whose devices have this transport. */
export function sctpFixtures(sctpTransport: 'usrsctp' | 'kernel'): SctpFixtures {
  const devices = [
    { ...DEVICE, lowerLayer: 'sctp', sctpTransport },
    {
      ...SMALL_DEVICE,
      lowerLayer: 'sctp',
      sctpTransport,
      profile: SMALL_PROFILE,
      wire: SMALL_WIRE,
    },
  ] as const;
  const lacks = new Set(['tcp'] as const);

  /** Two hosts in this process, over one stack of SCTP. */
  const embedded: ProviderFixture = {
    tiers: { allocated: 'local', own: 'local' },
    lacks,
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

  /** Two clients of one daemon. */
  const daemon: ProviderFixture = {
    tiers: { allocated: 'shared', own: 'process_vm' },
    lacks,
    async start() {
      const folder = new CommandFolder();
      const socketPath = folder.file('s');
      const running = await startDaemon({
        socketPath,
        devices: devices.map((device) => ({ ...device, addresses: [...device.addresses] })),
        memoryTiers: ['shared', 'process_vm'],
        // The guest has a device of siw, too.
        native: false,
        logLevel: 'silent',
      });
      const server = await connectDaemon({ socketPath });
      const client = await connectDaemon({ socketPath });
      return {
        server,
        client,
        async stop() {
          await Promise.all([server.close(), client.close()]);
          await running.stop();
          await folder.clean();
        },
      };
    },
  };
  return { embedded, daemon };
}
