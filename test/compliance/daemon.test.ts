import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDaemon } from '../../daemon/main/daemon.ts';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from './fixture.ts';
import { complianceSuite } from './suite.ts';

const small = { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE };
const devices = [DEVICE, small].map((device) => ({ ...device, addresses: [...device.addresses] }));

/** Two daemons, each with its client; the daemons reach own memory in the way that is named. */
function fixture(own: 'process_vm' | 'agent'): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own },
    async start() {
      const directory = mkdtempSync(join(tmpdir(), 'iwarpd-'));
      const start = (name: string) =>
        startDaemon({
          socketPath: join(directory, name),
          devices,
          memoryTiers: ['shared', own],
          logLevel: 'silent',
        });
      const daemons = [await start('server'), await start('client')];
      const [server, client] = await Promise.all([
        connectDaemon({ socketPath: join(directory, 'server') }),
        connectDaemon({ socketPath: join(directory, 'client') }),
      ]);
      return {
        server,
        client,
        async stop() {
          await Promise.all([server.close(), client.close()]);
          await Promise.all(daemons.map((daemon) => daemon.stop()));
          rmSync(directory, { recursive: true });
        },
      };
    },
  };
}

complianceSuite('daemon, process_vm', fixture('process_vm'));
complianceSuite('daemon, agent', fixture('agent'));
