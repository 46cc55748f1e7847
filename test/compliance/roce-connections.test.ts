/** What programs of connection ids do on iWARP devices, on RoCE devices. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from 'vitest';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
} from '../support/provider-fixture.ts';
import { awaitedSuite } from './awaited.ts';
import { connectionSuite } from './connections.ts';
import { notificationSuite } from './notifications.ts';
import { transferSuite } from './transfers.ts';

const devices = [DEVICE, { ...SMALL_DEVICE, profile: SMALL_PROFILE }].map((device) => {
  return { ...device, addresses: [...device.addresses], transport: 'roce' as const };
});

/** Two clients of one daemon. */
const daemon: ProviderFixture = {
  tiers: { allocated: 'shared', own: 'process_vm' },
  maxPrivateData: 56,
  lacks: new Set([
    'tcp',
    'exactDepths',
    'closingDrain',
    'bareInit',
    'terminate',
    'overflow',
    'wireOptions',
    'immediateData',
  ]),
  async start() {
    const directory = mkdtempSync(join(tmpdir(), 'iwarpd-'));
    const socketPath = join(directory, 'iwarpd.sock');
    const memoryTiers = ['shared', 'process_vm'] as const;
    const running = await startDaemon({ socketPath, devices, memoryTiers, logLevel: 'silent' });
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

describe('RoCE: connections', () => connectionSuite(daemon));
describe('RoCE: transfers', () => transferSuite(daemon));
describe('RoCE: notifications', () => notificationSuite(daemon));
describe('RoCE: awaited operations', () => awaitedSuite(daemon));
