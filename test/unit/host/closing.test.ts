/** The end of a host. */
import { expect, it, vi } from 'vitest';
import { PacketNetwork } from '#daemon/host/roce/packet-network';
import { RoceWorld } from '#test/support/roce-host';

it('closes the sockets of packets within the call if no connection is open', async () => {
  const { host } = new RoceWorld(1);
  const close = vi.spyOn(PacketNetwork.prototype, 'close');
  const closing = host.close();
  expect(close).toHaveBeenCalledOnce();
  await closing;
  close.mockRestore();
});
