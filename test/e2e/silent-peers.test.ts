/** Peers that stop within MPA's startup, beside clients that complete it. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createEmbedded, type EmbeddedProvider } from '#daemon/embedded/embedded-provider';
import { connect, type EndpointOptions, type Listener, listen } from '#verbs-api/connect';
import type { Connection } from '#verbs-api/connection';
import { mpaReply, mpaRequest } from '../support/mpa-frames.ts';
import { ownAddress } from '../support/own-address.ts';
import { patience } from '../support/patience.ts';
import { RawPeer } from '../support/raw-peer.ts';

const [SERVER, CLIENT] = [ownAddress(30), ownAddress(31)];
const LIMIT = { timeoutMs: patience() };
/** The offer that `messages: true` sends. */
const OFFER = Uint8Array.of(0x69, 0x77, 0x4d, 0x31, 0, 32, 0, 0, 16, 0);
/** IRD with the flag of the peer-to-peer model, and ORD with those of its RTR, which is never sent. */
const REQUEST = mpaRequest({ ird: 0x8008, ord: 0xc008, privateData: OFFER });

let server: EmbeddedProvider;
let client: EmbeddedProvider;

beforeAll(async () => {
  server = await createEmbedded({ devices: [{ name: 'iwarp0', addresses: [SERVER] }] });
  client = await createEmbedded({ devices: [{ name: 'iwarp0', addresses: [CLIENT] }] });
});
afterAll(() => Promise.all([server.close(), client.close()]));

function dial(listener: Listener): Promise<Connection> {
  const { port } = listener.address;
  const source = { address: CLIENT, port: 0 };
  return connect(client, { host: SERVER, port, source, messages: true, ...LIMIT });
}

it.each<[string, Uint8Array]>([
  ['send nothing', new Uint8Array(0)],
  ['send half of a Request', REQUEST.subarray(0, 17)],
  ['send something other than a Request', mpaReply()],
  ['announce an RTR and send none', REQUEST],
])('peers that %s do not block a server', async (_, bytes) => {
  await using listener = await listen(server, { host: SERVER });
  const options: EndpointOptions = { messages: true, ...LIMIT };
  const silent: RawPeer[] = [];
  const closing: Promise<void>[] = [];
  for (let count = 0; count < 3; count += 1) {
    const peer = await RawPeer.dial(listener.address.port, SERVER);
    peer.say(bytes);
    silent.push(peer);
  }
  const dialing = dial(listener);
  for (;;) {
    const accepted = await listener.accept(options);
    if (accepted.id.peerAddress?.address !== CLIENT) {
      // MPA's responder takes the connection as established.
      closing.push(accepted.close());
      continue;
    }
    const near = await dialing;
    await near.send('ping');
    for await (const message of accepted.messages(LIMIT)) {
      expect(Buffer.from(message).toString()).toBe('ping');
      break;
    }
    await Promise.all([near.close(), accepted.close()]);
    break;
  }
  for (const peer of silent) peer.destroy();
  await Promise.all(closing);
});
