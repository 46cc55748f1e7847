/** Forged datagrams against servers on a RoCE device, beside clients that mean it. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createEmbedded, type EmbeddedProvider } from '../../daemon/embedded/embedded-provider.ts';
import { connect, type Listener, listen } from '../../verbs-api/connect.ts';
import type { Connection } from '../../verbs-api/connection.ts';
import { MadForger } from '../support/forged-mads.ts';
import { ownAddress } from '../support/own-address.ts';

const [SERVER, CLIENT] = [ownAddress(24), ownAddress(25)];
const LIMIT = { timeoutMs: 20_000 };

function host(address: string): Promise<EmbeddedProvider> {
  return createEmbedded({ devices: [{ name: 'roce0', addresses: [address], transport: 'roce' }] });
}

describe('a datagram of a stranger', () => {
  let server: EmbeddedProvider;
  let client: EmbeddedProvider;

  beforeEach(async () => {
    server = await host(SERVER);
    client = await host(CLIENT);
  });
  afterEach(async () => {
    await Promise.all([server.close(), client.close()]);
  });

  const dial = (listener: Listener): Promise<Connection> =>
    connect(client, {
      host: SERVER,
      port: listener.address.port,
      source: { address: CLIENT, port: 0 },
      messages: true,
      ...LIMIT,
    });

  /** Both ends hear each other. */
  async function exchange(near: Connection, far: Connection): Promise<void> {
    await near.send('ping');
    for await (const message of far.messages(LIMIT)) {
      expect(Buffer.from(message).toString()).toBe('ping');
      break;
    }
  }

  it('that names the queue pair of a connection ends nothing', async () => {
    await using listener = await listen(server, { host: SERVER });
    const accepting = listener.accept({ messages: true, ...LIMIT });
    await using near = await dial(listener);
    await using far = await accepting;
    using forger = new MadForger(CLIENT);
    // One that the server listens for, and one that it does not.
    forger.request(SERVER, listener.address.port, near.qp.qpNum);
    forger.request(SERVER, 1, near.qp.qpNum);
    // It comes behind them, so the server has seen both.
    const second = listener.accept({ messages: true, ...LIMIT });
    await using beside = await dial(listener);
    await using other = await second;
    await exchange(beside, other);
    await exchange(near, far);
    await exchange(far, near);
  });
});
