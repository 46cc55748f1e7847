import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DEVICE } from '../support/provider-fixture.ts';
import { ROCE_DEVICE, type RoceFixture } from '../support/roce-fixture.ts';
import { roceSuite } from './roce.ts';

const devices = [DEVICE, ROCE_DEVICE].map((device) => {
  return { ...device, addresses: [...device.addresses] };
});

/** Two clients of one daemon. */
const daemon: RoceFixture = {
  async start() {
    const directory = mkdtempSync(join(tmpdir(), 'iwarpd-'));
    const socketPath = join(directory, 'iwarpd.sock');
    const running = await startDaemon({ socketPath, devices, logLevel: 'silent' });
    const [server, client] = await Promise.all([
      connectDaemon({ socketPath }),
      connectDaemon({ socketPath }),
    ]);
    return {
      server,
      client,
      async stop() {
        await Promise.all([server.close(), client.close()]);
        await running.stop();
        rmSync(directory, { recursive: true });
      },
    };
  },
};

roceSuite('daemon', daemon);
