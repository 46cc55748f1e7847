/** A listener whose peers give up before anyone accepts them. */
import { expect, it } from 'vitest';
import { createEmbedded } from '../../../daemon/embedded/embedded-provider.ts';
import { connect, listen } from '../../../verbs-api/connect.ts';
import { patient } from '../../support/patience.ts';

const HOST = '127.0.0.2';

it.each(['iwarp', 'roce'] as const)(
  'accept() skips a %s peer that has just given up',
  async (transport) => {
    const devices = [{ name: 'a', transport, addresses: [HOST] }];
    await using rnic = await createEmbedded({ network: 'isolated', devices });
    await using listener = await listen(rnic, { host: HOST });
    const peer = { host: HOST, port: listener.address.port };
    // Long enough for its request to arrive, on all but the busiest machine.
    await expect(connect(rnic, { ...peer, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'ETIMEDOUT',
    });
    const accepting = listener.accept({ signal: patient() });
    await using client = await connect(rnic, { ...peer, signal: patient() });
    await using server = await accepting;
    expect(server.id.peerAddress).toEqual(client.id.localAddress);
  },
);

it('accept() that is cancelled as a request arrives leaves nothing of it', async () => {
  await using rnic = await createEmbedded({ network: 'isolated' });
  await using listener = await listen(rnic, { host: HOST });
  const peer = { host: HOST, port: listener.address.port };
  await expect(connect(rnic, { ...peer, timeoutMs: 50 })).rejects.toThrow();
  const cancel = new AbortController();
  const cancelled = listener.accept({ signal: cancel.signal });
  const refused = connect(rnic, { ...peer, signal: patient() });
  refused.catch(() => undefined);
  cancel.abort(new Error('enough'));
  await expect(cancelled).rejects.toThrow('enough');
  await using server = await listener.accept({ signal: patient() });
  await using client = await refused;
  expect(server.id.peerAddress).toEqual(client.id.localAddress);
});
