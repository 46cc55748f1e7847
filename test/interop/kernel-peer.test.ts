import { afterAll, beforeAll, expect, it } from 'vitest';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import { GUEST_ADDRESS, type Guest, startGuest } from './kernel-peer/kernel-peer.ts';
import { describeWith } from './prerequisites.ts';

describeWith(['kernel-peer'], 'kernel peer: siw against itself in one guest', () => {
  let guest: Guest;

  beforeAll(async () => {
    await prepareKernelPeer();
    guest = await startGuest();
  }, 600_000);
  afterAll(async () => await guest?.stop());

  it('shows siw0 to rdma-core', async () => {
    const { status, output } = await guest.runToEnd('ibv_devinfo -d siw0');
    expect(status, output).toBe(0);
    expect(output).toMatch(/transport:\s+iWARP/);
  });

  it('pings itself with rping', async () => {
    const rping = `rping -a ${GUEST_ADDRESS} -p 7174 -C 3 -v -V`;
    const { status, output } = await guest.runToEnd(`pair 7174 '${rping} -s' '${rping} -c'`);
    expect(status, output).toBe(0);
    expect(output.match(/client: ping data: rdma-ping-/g)).toHaveLength(3);
    expect(output.match(/server: server ping data: rdma-ping-/g)).toHaveLength(3);
  }, 60_000);
});
