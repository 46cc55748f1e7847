/** The suite for connection ids of iWARP devices, run on RoCE devices. */
import { describe } from 'vitest';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
} from '../support/provider-fixture.ts';
import { awaitedSuite } from './awaited.ts';
import { connectionSuite } from './connections.ts';
import { notificationSuite } from './notifications.ts';
import { daemonDevices, daemonPair } from './pairs.ts';
import { transferSuite } from './transfers.ts';

const devices = daemonDevices([DEVICE, { ...SMALL_DEVICE, profile: SMALL_PROFILE }], {
  transport: 'roce' as const,
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
  start: () => daemonPair({ devices, memoryTiers: ['shared', 'process_vm'] }),
};

describe('RoCE: connections', () => connectionSuite(daemon));
describe('RoCE: transfers', () => transferSuite(daemon));
describe('RoCE: notifications', () => notificationSuite(daemon));
describe('RoCE: awaited operations', () => awaitedSuite(daemon));
