/**
 * The daemon inside the guest, where it serves Linux's siw beside an emulated device.
 *
 * If the guest does not boot, all tests are skipped, with the reason.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { CommandFolder } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { kernelRping, ourRpingInGuest } from './rping-ends.ts';

/** The emulated device's address, on the same interface as siw's so that they reach each other. */
const EMULATED_ADDRESS = '10.0.2.16';
const SOCKET = '/run/iwarpd/s';
const PINGS = 10;
const SIZE = 8192;

let guest: Guest;
const folder = new CommandFolder();
let daemon: GuestProcess;
/** Why no guest is available. */
let obstacle: string | undefined;

const command = (words: string) =>
  `node ${join(repositoryRoot(), 'dist/daemon/cli/main.js')} ${words} --socket ${SOCKET}`;
const ourRping = (words: string) => ourRpingInGuest(`${words} --socket ${SOCKET}`);

async function boot(): Promise<void> {
  try {
    await prepareKernelPeer();
    guest = await startGuest({ share: folder.path });
  } catch (error) {
    obstacle = `the kernel peer does not boot: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: the daemon beside siw (${obstacle})\n`);
    return;
  }
  await guest.setSiw({ crcRequired: true });
  await guest.succeed(`ip address add ${EMULATED_ADDRESS}/24 dev eth0`);
  daemon = guest.run(command(`start --device emu0=${EMULATED_ADDRESS}`));
  await daemon.waitFor(/ready/);
}

describeWith(['kernel-peer'], 'a daemon beside siw', () => {
  beforeAll(async () => {
    await boot();
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  it('lists siw0 and the emulated device', async () => {
    const devices = await guest.succeed(command('devices'));
    expect(devices).toMatch(new RegExp(`^emu0 +emulated +[0-9a-f]{16} +${EMULATED_ADDRESS}$`, 'm'));
    expect(devices).toMatch(new RegExp(`^siw0 +native +[0-9a-f]{16} +${GUEST_ADDRESS}$`, 'm'));
  });

  it.each([
    ['from the emulated device to siw0', EMULATED_ADDRESS, GUEST_ADDRESS],
    ['from siw0 to the emulated device', GUEST_ADDRESS, EMULATED_ADDRESS],
    ['from siw0 to siw0', GUEST_ADDRESS, GUEST_ADDRESS],
  ])('carries rping through one daemon %s', async (_name, from, to) => {
    const server = ourRping(`-s -a ${to} -p 7201`);
    const client = ourRping(`-c -a ${to} -I ${from} -p 7201 -V -S ${SIZE} -C ${PINGS}`);
    await guest.succeed(`pair 7201 "${server}" "${client}"`);
  });

  it.each([
    ["the kernel's server", false],
    ["the kernel's client", true],
  ])('carries rping between siw0 and %s', async (_name, serves) => {
    const place = `-a ${GUEST_ADDRESS} -p 7202`;
    const ours = ourRping(serves ? `-s ${place}` : `-c ${place} -V -S ${SIZE} -C ${PINGS}`);
    const theirs = kernelRping(
      serves ? `-c ${place} -V -S ${SIZE} -C ${PINGS}` : `-s ${place} -S ${SIZE}`,
    );
    await guest.succeed(`pair 7202 "${serves ? ours : theirs}" "${serves ? theirs : ours}"`);
  });

  it('shuts down cleanly', async () => {
    await guest.succeed(`kill $(sed -n 's/.*"pid":\\([0-9]*\\).*/\\1/p' ${SOCKET}.run)`);
    expect(await daemon.exit, daemon.output).toBe(0);
  });
});
