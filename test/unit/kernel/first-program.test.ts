/** A connection that arrives before the code that serves programs is loaded. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  emitHello,
  FRAME_HEADER_BYTES,
  FrameType,
  parseWelcome,
  Role,
} from '#contract/protocol/ipc-frames';
import { ERRNO } from '#contract/verbs/errors';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import { bytesOf } from '#test/support/hex';
import { commands, le } from '#test/support/kernel-commands';
import { RoceRig } from '#test/support/roce-rig';
import { ShimClient } from '#test/support/shim-client';

/** Starts nothing in advance, as a daemon does once it is ready. */
let rig: RoceRig;

beforeEach(async () => {
  rig = await RoceRig.start({ name: 'iwarp0', addresses: ['127.0.0.1'] });
});

afterEach(() => rig.stop());

const FIRST_DEVICE = bytesOf(`${le(1)} 00*12`);

/** Reads the welcome of a greeting sent by hand; its errno. */
async function welcomed(client: ShimClient): Promise<number> {
  const head = new DataView((await client.take(FRAME_HEADER_BYTES)).buffer);
  const payload = await client.take(head.getUint32(0, true));
  return parseWelcome({ type: FrameType.welcome, id: 0, payload }).errno;
}

it('the first program is served like the others, and the bytes after its greeting are kept', async () => {
  const client = new ShimClient(rig.socketPath);
  client.send(emitHello(Role.uverbs, FIRST_DEVICE));
  client.ask(ShimOp.write, { payload: commands.getContext() });
  expect(await welcomed(client)).toBe(0);
  expect((await client.reply()).status).toBe(0);
  client.close();
});

it('the first program may end meanwhile; the next is served', async () => {
  const gone = new ShimClient(rig.socketPath);
  gone.send(emitHello(Role.uverbs, FIRST_DEVICE));
  gone.close();
  const next = await ShimClient.uverbs(rig.socketPath, Role.uverbs);
  expect(next.welcome.errno).toBe(0);
  next.close();
});

it('the first program is refused for its own mistakes: EACCES for an invalid event queue', async () => {
  const client = await ShimClient.open(rig.socketPath, Role.event, bytesOf('aa*16'));
  expect(client.welcome.errno).toBe(ERRNO.EACCES.number);
  await client.closed();
});

it('the first program is cut off when it floods instead of waiting for the welcome', async () => {
  const client = new ShimClient(rig.socketPath);
  client.send(emitHello(Role.uverbs, FIRST_DEVICE));
  client.send(new Uint8Array(64 * 1024));
  client.send(new Uint8Array(64 * 1024));
  await client.closed();
  const next = await ShimClient.uverbs(rig.socketPath, Role.uverbs);
  expect(next.welcome.errno).toBe(0);
  next.close();
});
