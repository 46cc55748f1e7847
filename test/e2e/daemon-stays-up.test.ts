/** No client and no peer can end the daemon or keep it from answering others. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonProcess } from '../support/daemon-process.ts';

let daemon: DaemonProcess;
const clients: Provider[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
  await daemon.clean();
});

async function newClient(): Promise<Provider> {
  const client = await connectDaemon({ socketPath: daemon.socketPath });
  clients.push(client);
  return client;
}

describe('sizes that no mapping can have', () => {
  it('are refused with ENOMEM, and the client continues', async () => {
    daemon = await DaemonProcess.start({ quotas: { sharedBytes: 2 ** 52 } });
    const context = await (await newClient()).open();
    const pd = await context.allocPD();
    // V8 cannot create a view of 5 GiB; koffi would then abort the process.
    for (const lengthBytes of [5 * 2 ** 30, 2 ** 32 + 1, 2 ** 47, 2 ** 52]) {
      await expect(pd.allocMR(lengthBytes, 1)).rejects.toMatchObject({
        code: 'ENOMEM',
        // Names this size, or the limit of all clients together.
        message: expect.stringMatching(new RegExp(`not ${lengthBytes}|together may have at most`)),
      });
    }
    for (const lengthBytes of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, 1.5]) {
      await expect(pd.allocMR(lengthBytes, 1)).rejects.toMatchObject({ code: 'EINVAL' });
    }
    expect((await pd.allocMR(4096, 1)).buffer.length).toBe(4096);
  });
});
