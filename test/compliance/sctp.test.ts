import { vi } from 'vitest';
import { createEmbedded } from '../../daemon/embedded/embedded-provider.ts';
import { startDaemon } from '../../daemon/main/daemon.ts';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { CommandFolder } from '../e2e/cli-process.ts';
import { describeWith } from '../interop/prerequisites.ts';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from './fixture.ts';
import { complianceSuite } from './suite.ts';

// The UDP port of an address belongs to one process: this one's addresses are its own.
vi.hoisted(() => {
  const { pid } = process;
  const own = (last: number) => `127.${128 + ((pid >> 8) & 0x7f)}.${pid & 0xff}.${last}`;
  process.env['IWARPD_SUITE_ADDRESSES'] = [own(31), '::1', own(32)].join(',');
});

const devices = [
  { ...DEVICE, lowerLayer: 'sctp' },
  { ...SMALL_DEVICE, lowerLayer: 'sctp', profile: SMALL_PROFILE, wire: SMALL_WIRE },
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

describeWith(['sctp'], 'over SCTP', () => {
  complianceSuite('embedded', embedded);
  complianceSuite('daemon', daemon);
});
