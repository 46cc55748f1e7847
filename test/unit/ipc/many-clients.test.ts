/** A daemon with more clients than it describes in one turn of the event loop. */
import { afterEach, expect, it, vi } from 'vitest';
import { Role } from '#contract/protocol/ipc-frames';
import { ClientIdentity } from '#daemon/clients/client-identity';
import { DaemonRig } from '#test/support/daemon-rig';
import { IpcClient } from '#test/support/ipc-client';

const MANY = 600;
/** Statuses that may be made in one turn. */
const PER_TURN = 512;

let rig: DaemonRig;
const clients: IpcClient[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
  await rig.stop();
});

it('lists clients and their status in several turns', async () => {
  rig = await DaemonRig.start({ native: false });
  for (let count = 0; count < MANY; count += 1) clients.push(await IpcClient.open(rig.socketPath));
  const status = vi.spyOn(ClientIdentity.prototype, 'status');
  let most = 0;
  const admin = await IpcClient.open(rig.socketPath, Role.admin);
  clients.push(admin);
  for (const name of ['status', 'listClients']) {
    let replied = false;
    admin.request(1, [name, {}]);
    const reply = admin.frame().finally(() => {
      replied = true;
    });
    while (!replied) {
      const before = status.mock.calls.length;
      await new Promise((resolve) => setImmediate(resolve));
      most = Math.max(most, status.mock.calls.length - before);
    }
    const { value } = await reply;
    expect(name === 'status' ? value : { clients: value }).toMatchObject({
      clients: { length: MANY },
    });
  }
  expect(status).toHaveBeenCalledTimes(2 * MANY);
  expect(most).toBeLessThanOrEqual(PER_TURN);
});
