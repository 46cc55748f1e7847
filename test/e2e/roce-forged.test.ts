/** Forged datagrams against servers on a RoCE device, beside honest clients. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createEmbedded, type EmbeddedProvider } from '#daemon/embedded/embedded-provider';
import { connect, type EndpointOptions, type Listener, listen } from '#verbs-api/connect';
import type { Connection } from '#verbs-api/connection';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import { listenRpc } from '#verbs-api/rpcrdma/rpc-server';
import { MadForger } from '../support/forged-mads.ts';
import { ownAddress } from '../support/own-address.ts';
import { patience } from '../support/patience.ts';
import { echoService } from '../support/rpc-world.ts';

/** A forger that uses the last address gets no answers: no host has it. */
const [SERVER, CLIENT, FORGER] = [ownAddress(24), ownAddress(25), ownAddress(26)];
const LIMIT = { timeoutMs: patience() };

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
  afterEach(() => Promise.all([server.close(), client.close()]));

  const dial = (listener: Listener): Promise<Connection> =>
    connect(client, {
      host: SERVER,
      port: listener.address.port,
      source: { address: CLIENT, port: 0 },
      messages: true,
      ...LIMIT,
    });

  /** Each end receives from the other. */
  async function exchange(near: Connection, far: Connection): Promise<void> {
    await near.send('ping');
    for await (const message of far.messages(LIMIT)) {
      expect(Buffer.from(message).toString()).toBe('ping');
      break;
    }
  }

  it('that names the queue pair of a connection ends nothing [IBCM-STALE-03]', async () => {
    await using listener = await listen(server, { host: SERVER });
    const accepting = listener.accept({ messages: true, ...LIMIT });
    await using near = await dial(listener);
    await using far = await accepting;
    using forger = new MadForger(CLIENT);
    // One for a port with a listener, and one for a port without.
    forger.request(SERVER, listener.address.port, near.qp.qpNum);
    forger.request(SERVER, 1, near.qp.qpNum);
    // An honest connect after the forged ones, to be sure that the server has received them.
    const second = listener.accept({ messages: true, ...LIMIT });
    await using beside = await dial(listener);
    await using other = await second;
    await exchange(beside, other);
    await exchange(near, far);
    await exchange(far, near);
  });

  it.each<[string, EndpointOptions]>([
    ['a server', {}],
    ['a server that prepares', { prepare: () => undefined }],
  ])('that asks to connect and never confirms does not stop %s', async (_, options) => {
    await using listener = await listen(server, { host: SERVER });
    using forger = new MadForger(FORGER);
    for (let qpn = 17; qpn < 20; qpn += 1) forger.request(SERVER, listener.address.port, qpn);
    for (let count = 0; count < 2; count += 1) {
      const accepting = listener.accept({ messages: true, ...LIMIT, ...options });
      await using near = await dial(listener);
      await using far = await accepting;
      await exchange(near, far);
    }
  });

  it('that asks to connect does not stop a server that accepts requests in order', async () => {
    await using listener = await listen(server, { host: SERVER });
    using forger = new MadForger(FORGER);
    forger.request(SERVER, listener.address.port, 17);
    const accepted: Promise<Connection>[] = [];
    const dialing = dial(listener);
    for await (const request of listener) {
      accepted.push(request.accept({ messages: true, ...LIMIT }));
      if (accepted.length === 2) break;
    }
    await using near = await dialing;
    await using far = await Promise.any(accepted);
    await exchange(near, far);
  });

  it('that asks to connect does not take the place of a client of RPC over RDMA', async () => {
    const options = { host: SERVER, port: 0, connectionsMax: 2 };
    await using service = await listenRpc(server, echoService().service, options);
    using forger = new MadForger(FORGER);
    for (let qpn = 17; qpn < 27; qpn += 1) forger.request(SERVER, service.address.port, qpn);
    await using near = await connectRpc(client, {
      host: SERVER,
      port: service.address.port,
      requester: { connectsMax: 1 },
      ...LIMIT,
    });
    expect(near).toBeDefined();
    await vi.waitUntil(() => service.connectionCount === 1, { timeout: LIMIT.timeoutMs });
  });
});
