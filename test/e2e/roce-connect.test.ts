/** Connections of TypeScript programs between hosts with RoCE devices, and the choice of a wire. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { createEmbedded, type EmbeddedProvider } from '#daemon/embedded/embedded-provider';
import { connect, type Listener, listen } from '#verbs-api/connect';
import { ownAddress } from '../support/own-address.ts';
import { patient } from '../support/patience.ts';

const SERVER = { iwarp: ownAddress(20), roce: ownAddress(21) };
const CLIENT = { iwarp: ownAddress(22), roce: ownAddress(23) };

/** A separate host with a device of each wire. */
function host({ iwarp, roce }: typeof SERVER): Promise<EmbeddedProvider> {
  return createEmbedded({
    devices: [
      { name: 'roce0', addresses: [roce], transport: 'roce' },
      { name: 'iwarp0', addresses: [iwarp] },
    ],
  });
}

describe('two hosts with a device of each wire', () => {
  let server: EmbeddedProvider;
  let client: EmbeddedProvider;

  beforeEach(async () => {
    server = await host(SERVER);
    client = await host(CLIENT);
  });
  afterEach(() => Promise.all([server.close(), client.close()]));

  const dial = (to: string, from: string, listener: Listener) =>
    connect(client, {
      host: to,
      port: listener.address.port,
      source: { address: from, port: 0 },
      messages: true,
      signal: patient(),
    });

  it.each([
    ['iwarp0', SERVER.iwarp, CLIENT.iwarp],
    ['roce0', SERVER.roce, CLIENT.roce],
  ])('connect over %s, by address, to one listener', async (device, to, from) => {
    await using listener = await listen(server, { host: '0.0.0.0' });
    const accepting = listener.accept({ messages: true, signal: patient() });
    const near = await dial(to, from, listener);
    const far = await accepting;
    expect([near.id.device, far.id.device]).toEqual([device, device]);
    expect(far.id.peerAddress).toEqual(near.id.localAddress);
    expect(far.id.localAddress).toEqual({ address: to, port: listener.address.port });
    const text = new TextEncoder().encode('across hosts '.repeat(300));
    await near.send(text);
    for await (const message of far.messages()) {
      expect(message).toEqual(text);
      break;
    }
    await near.close();
    expect(await far.disconnected({ signal: patient() })).toMatchObject({ kind: 'closed' });
    await far.close();
  });

  it('do everything once when every packet is duplicated [ROCE-DUP-02, IBCM-DUP-02]', async () => {
    await server.addFault({ kind: 'duplicate', device: 'roce0', every: 1 });
    await client.addFault({ kind: 'duplicate', device: 'roce0', every: 1 });
    await using listener = await listen(server, { host: SERVER.roce });
    const accepting = listener.accept({ messages: true, signal: patient() });
    const near = await dial(SERVER.roce, CLIENT.roce, listener);
    const far = await accepting;
    await near.send(Uint8Array.of(7));
    for await (const message of far.messages()) {
      expect(message).toEqual(Uint8Array.of(7));
      break;
    }
    await Promise.all([near.close(), far.close()]);
  });

  it('receive a rejection, with its data [IBCM-REJ-03, IBCM-REJ-05]', async () => {
    await using listener = await listen(server, { host: SERVER.roce });
    const attempt = dial(SERVER.roce, CLIENT.roce, listener).catch((error: unknown) => error);
    for await (const request of listener) {
      await request.reject(Uint8Array.of(1, 2, 3));
      break;
    }
    const error = await attempt;
    expect(error).toBeInstanceOf(ConnectionRejectedError);
    const { privateData } = (error as ConnectionRejectedError).event;
    expect([...privateData.subarray(0, 4)]).toEqual([1, 2, 3, 0]);
  });

  it('are notified when a host ends', async () => {
    await using listener = await listen(server, { host: SERVER.roce });
    const accepting = listener.accept({ messages: true, signal: patient() });
    const near = await dial(SERVER.roce, CLIENT.roce, listener);
    await accepting;
    await server.close();
    await near.disconnected({ signal: patient() });
    await near.close();
  });
});
