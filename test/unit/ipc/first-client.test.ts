/** Connections of clients and watchers that arrive before the code that serves them is loaded. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  emitHello,
  emitValueFrame,
  FRAME_HEADER_BYTES,
  FrameType,
  parseWelcome,
  Role,
} from '#contract/protocol/ipc-frames';
import { decodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { concat } from '#test/support/hex';
import { RoceRig } from '#test/support/roce-rig';
import { ShimClient } from '#test/support/shim-client';

/** Loads nothing in advance, unlike a daemon that has been ready for a while. */
let rig: RoceRig;

beforeEach(async () => {
  rig = await RoceRig.start({ name: 'iwarp0', addresses: ['127.0.0.1'] });
});

afterEach(() => rig.stop());

interface ReceivedFrame {
  readonly type: number;
  readonly id: number;
  readonly payload: Uint8Array;
}

async function frameOf(client: ShimClient): Promise<ReceivedFrame> {
  const head = new DataView((await client.take(FRAME_HEADER_BYTES)).buffer);
  const payload = await client.take(head.getUint32(0, true));
  return { type: head.getUint8(4), id: head.getUint32(8, true), payload };
}

async function welcomed(client: ShimClient): Promise<number> {
  return parseWelcome(await frameOf(client)).errno;
}

/** Sends the greeting and a request without waiting for the welcome. */
function greetAndAsk(client: ShimClient, role: Role, request: IpcValue): void {
  client.send(concat(emitHello(role), emitValueFrame(FrameType.request, 1, request)));
}

it('a client is served like the others, and the request after its greeting is kept', async () => {
  const client = new ShimClient(rig.socketPath);
  greetAndAsk(client, Role.control, ['listDevices', {}]);
  expect(await welcomed(client)).toBe(0);
  const { type, id, payload } = await frameOf(client);
  expect([type, id]).toEqual([FrameType.reply, 1]);
  expect(decodeValue(payload)).toMatchObject({ devices: [{ name: 'iwarp0' }] });
  client.close();
});

it('a watcher is served, too', async () => {
  const client = new ShimClient(rig.socketPath);
  greetAndAsk(client, Role.tap, { topics: ['posted'] });
  expect(await welcomed(client)).toBe(0);
  expect(await frameOf(client)).toMatchObject({ type: FrameType.reply, id: 1 });
  client.close();
});

it('many clients at once are all served', async () => {
  const clients = [1, 2, 3, 4].map(() => new ShimClient(rig.socketPath));
  for (const client of clients) greetAndAsk(client, Role.control, ['listDevices', {}]);
  for (const client of clients) expect(await welcomed(client)).toBe(0);
  for (const client of clients) client.close();
});

it('a client that has gone meanwhile harms no other', async () => {
  const gone = new ShimClient(rig.socketPath);
  greetAndAsk(gone, Role.control, ['listDevices', {}]);
  gone.close();
  const next = await ShimClient.open(rig.socketPath, Role.control);
  expect(next.welcome.errno).toBe(0);
  next.close();
});
