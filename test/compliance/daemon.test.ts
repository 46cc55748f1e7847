import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from '../support/provider-fixture.ts';
import { complianceSuite } from './suite.ts';

const small = { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE };
const devices = [DEVICE, small].map((device) => ({ ...device, addresses: [...device.addresses] }));

/** Two clients, each of its own daemon; the daemons access client memory by the named tier. */
function fixture(own: 'process_vm' | 'agent', daemonCount: 1 | 2): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own },
    async start() {
      const directory = mkdtempSync(join(tmpdir(), 'iwarpd-'));
      const daemons = await Promise.all(
        Array.from({ length: daemonCount }, (_, index) =>
          startDaemon({
            socketPath: join(directory, `${index}.sock`),
            devices,
            memoryTiers: ['shared', own],
            logLevel: 'silent',
          }),
        ),
      );
      const [server, client] = await Promise.all([
        connectDaemon({ socketPath: join(directory, '0.sock') }),
        connectDaemon({ socketPath: join(directory, `${daemonCount - 1}.sock`) }),
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

complianceSuite('daemon, process_vm', fixture('process_vm', 1));
complianceSuite('daemon, agent', fixture('agent', 2));
