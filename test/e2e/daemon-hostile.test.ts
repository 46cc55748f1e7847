import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitFrame,
  emitHello,
  FRAME_HEADER_BYTES,
  FrameType,
  IPC_VERSION,
  parseTokenText,
  Role,
  TOKEN_BYTES,
} from '#contract/protocol/ipc-frames';
import { encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { ERRNO } from '#contract/verbs/errors';
import type { Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonRig } from '../support/daemon-rig.ts';
import { bytesOf } from '../support/hex.ts';
import { IpcClient } from '../support/ipc-client.ts';

let rig: DaemonRig;
/** Another client, which must not notice anything. */
let witness: Provider;

beforeEach(async () => {
  rig = await DaemonRig.start({
    unreadMaxBytes: 256 * 1024,
    quotas: { objects: { pd: 3, cq: 300 }, sharedBytes: 4 * 2 ** 20, queueEntries: 100_000 },
  });
  witness = await connectDaemon({ socketPath: rig.socketPath });
});

afterEach(async () => {
  await witness.close();
  await rig.stop();
});

/** The witness works, and no other client's objects are left. */
async function expectUnharmed(): Promise<void> {
  const context = await witness.open();
  const pd = await context.allocPD();
  await pd.allocMR(4096, 1);
  await context.close();
  expect((await rig.daemon.status()).clients).toHaveLength(1);
}

function expectLogged(text: string): void {
  expect(rig.log.filter((line) => line.includes(text))).not.toEqual([]);
}

/** A request frame with `payload` as its value. */
function rawRequest(payload: Uint8Array): Uint8Array {
  return emitFrame(FrameType.request, 1, payload);
}

function header(type: number, payloadBytes: number): Uint8Array {
  const bytes = emitFrame(type as FrameType, 1, new Uint8Array(0));
  new DataView(bytes.buffer).setUint32(0, payloadBytes, true);
  return bytes;
}

async function clientWithDevice(): Promise<IpcClient> {
  const client = await IpcClient.open(rig.socketPath);
  client.request(1, ['openDevice', { name: undefined }]);
  await client.frame();
  return client;
}

/** A greeting of protocol version `version`. */
function helloOf(version: number, ...hello: Parameters<typeof emitHello>): Uint8Array {
  const bytes = emitHello(...hello);
  new DataView(bytes.buffer).setUint16(FRAME_HEADER_BYTES + 4, version, true);
  return bytes;
}

/** Sends a greeting, which the daemon refuses; returns its reason. */
async function expectRefused(code: keyof typeof ERRNO, ...parts: Uint8Array[]): Promise<string> {
  const client = new IpcClient(rig.socketPath);
  for (const bytes of parts) client.send(bytes);
  const { errno, text } = await client.welcome();
  expect(errno).toBe(ERRNO[code].number);
  await client.closed();
  return text;
}

describe('greetings', () => {
  it.each([
    ['bytes of another protocol', new TextEncoder().encode(`GET / HTTP/1.1\r\n${'x'.repeat(40)}`)],
    ['a length that is not a greeting’s', header(FrameType.hello, 25)],
    ['another frame first', emitFrame(FrameType.request, 1, new Uint8Array(24))],
    ['a wrong magic', emitFrame(FrameType.hello, 0, new Uint8Array(24))],
  ])('%s: refused with EPROTO and the end of the connection', async (_what, bytes) => {
    await expectRefused('EPROTO', bytes, new Uint8Array(24));
    expectLogged('refused a connection');
    await expectUnharmed();
  });

  it('another version: the reply names the daemon’s version', async () => {
    const reason = `newer than the daemon (version 77 of the protocol, not ${IPC_VERSION})`;
    expect(await expectRefused('EPROTO', helloOf(77, Role.control))).toContain(reason);
  });

  it('a preload library of version 1, where operation 2 differed: EPROTO, which the log names', async () => {
    const device = new Uint8Array(TOKEN_BYTES);
    device[0] = 1;
    const reason = `older than the daemon (version 1 of the protocol, not ${IPC_VERSION}): use both from the same release`;
    expect(await expectRefused('EPROTO', helloOf(1, Role.uverbs, device))).toContain(reason);
    expectLogged(reason);
    await expectUnharmed();
  });

  it('an unknown role: EPROTO', async () => {
    await expectRefused('EPROTO', emitHello(99 as Role));
  });

  it('none in time: ETIMEDOUT', async () => {
    const impatient = await DaemonRig.start({ greetingTimeoutMs: 200 });
    onTestFinished(() => impatient.stop());
    const client = new IpcClient(impatient.socketPath);
    client.send(emitHello(Role.control).subarray(0, 35));
    expect(await client.welcome()).toMatchObject({ errno: ERRNO.ETIMEDOUT.number });
    await client.closed();
  });

  it.each([Role.doorbell, Role.map, Role.agent, Role.channel])(
    'role %s with an unknown token: EACCES',
    async (role) => {
      await expectRefused('EACCES', emitHello(role, new Uint8Array(TOKEN_BYTES).fill(7)));
    },
  );

  it('a second doorbell connection: EBUSY, and the client continues', async () => {
    const control = await IpcClient.open(rig.socketPath);
    const { token } = await control.welcome();
    await IpcClient.open(rig.socketPath, Role.doorbell, token);
    await expectRefused('EBUSY', emitHello(Role.doorbell, token));
    control.request(1, ['listDevices', {}]);
    expect(await control.frame()).toMatchObject({ type: FrameType.reply, id: 1 });
    control.socket.destroy();
  });
});

describe('frames that end their client, with a logged reason', () => {
  const deep = new Uint8Array(64).fill(0x81);
  it.each<[string, Uint8Array, string]>([
    ['longer than allowed', header(FrameType.request, CLIENT_FRAME_MAX_BYTES + 1), 'frame of'],
    ['longest length', header(FrameType.request, 0xffff_ffff), 'frame of 4294967295'],
    ['unknown type', emitFrame(42 as FrameType, 1, new Uint8Array(4)), 'frame of type 42'],
    ['the daemon’s own type', emitFrame(FrameType.reply, 1, new Uint8Array(4)), 'type 4'],
    ['a second greeting', emitHello(Role.control), 'frame of type 1'],
    ['an unknown command', rawRequest(encodeValue(['format', {}])), 'unknown command'],
    ['a command of Object', rawRequest(encodeValue(['constructor', {}])), 'unknown command'],
    ['no command', rawRequest(encodeValue(17)), 'unknown command'],
    ['an empty value', rawRequest(new Uint8Array(0)), 'cut off'],
    ['a value that is cut off', rawRequest(bytesOf('826b6c69')), 'cut off'],
    ['bytes after the value', rawRequest(bytesOf('0000')), 'bytes after the value'],
    ['a count of 2^32', rawRequest(bytesOf('9affffffff')), 'cut off'],
    ['deep nesting', rawRequest(deep), 'nested too deeply'],
    ['a key that is a number', rawRequest(bytesOf('a10001')), 'key is not text'],
    ['a double key', rawRequest(bytesOf('a2616100616101')), 'duplicate'],
    ['__proto__', rawRequest(bytesOf('a1695f5f70726f746f5f5fa0')), 'forbidden'],
    ['an indefinite length', rawRequest(bytesOf('9fff')), 'indefinite'],
    ['a bignum of 9 bytes', rawRequest(bytesOf('c249010000000000000000')), '64 bits'],
    ['text that is not UTF-8', rawRequest(bytesOf('62c328')), 'UTF-8'],
  ])('%s', async (_what, bytes, reason) => {
    const client = await clientWithDevice();
    client.send(bytes);
    const farewell = await client.frame();
    expect(farewell).toMatchObject({ type: FrameType.error, id: 0 });
    expect(JSON.stringify(farewell.value)).toContain(reason);
    await client.closed();
    expectLogged(reason);
    expectLogged('client was cut off');
    await expectUnharmed();
  });

  it('a frame cut off by the end of the connection: everything of the client is freed', async () => {
    const client = await clientWithDevice();
    client.socket.end(header(FrameType.request, 100));
    await client.closed();
    await expectUnharmed();
  });

  it('bytes on a completion channel', async () => {
    const { client, token } = await clientWithChannel();
    const channel = await IpcClient.open(rig.socketPath, Role.channel, token);
    channel.send(Uint8Array.of(1));
    await client.closed();
    await channel.closed();
    await expectUnharmed();
  });

  it.each([
    ['without a request', 0, 'the agent replied without a request'],
    ['longer than any request', 0xff, 'agent reply too long'],
  ])('an agent reply %s', async (_what, byte, reason) => {
    const client = await IpcClient.open(rig.socketPath);
    const { token } = await client.welcome();
    const agent = await IpcClient.open(rig.socketPath, Role.agent, token);
    agent.send(new Uint8Array(16).fill(byte));
    await client.closed();
    expectLogged(reason);
    await expectUnharmed();
  });

  it('a client that does not read: cut off at the bound', async () => {
    const client = await IpcClient.open(rig.socketPath);
    client.socket.pause();
    // Each reply is longer than its request; the socket's own buffers take some of them.
    for (let id = 1; id <= 20_000 && !client.isClosed; id++)
      client.request(id, ['listDevices', {}]);
    await expect.poll(() => rig.log.some((line) => line.includes('bytes unread'))).toBe(true);
    client.socket.resume();
    await client.closed();
    await expectUnharmed();
  });
});

async function clientWithChannel() {
  const client = await clientWithDevice();
  client.request(2, ['createCompChannel', { context: 1 }]);
  const { value } = await client.frame();
  const token = parseTokenText((value as { token: string }).token);
  return { client, token };
}

describe('requests that are refused, and the client continues', () => {
  const empty = new Uint8Array(0);
  const wrong: [string, IpcValue, string][] = [
    ['a missing field', ['openDevice', {}], 'EINVAL'],
    ['an extra field', ['listDevices', { extra: 1 }], 'EINVAL'],
    ['a string for a handle', ['allocPD', { context: '1' }], 'EINVAL'],
    ['a fraction for a handle', ['allocPD', { context: 0.5 }], 'EINVAL'],
    ['a negative handle', ['allocPD', { context: -1 }], 'EINVAL'],
    ['NaN', ['allocBuffer', { lengthBytes: Number.NaN }], 'EINVAL'],
    ['infinity', ['allocBuffer', { lengthBytes: Number.POSITIVE_INFINITY }], 'EINVAL'],
    ['an array for a request', ['listDevices', []], 'EINVAL'],
    ['no request', ['listDevices', undefined], 'EINVAL'],
    ['bytes for text', ['openDevice', { name: empty }], 'EINVAL'],
    ['an unknown handle', ['allocPD', { context: 77 }], 'ENOENT'],
    ['the largest handle', ['allocPD', { context: 0xffff_ffff }], 'ENOENT'],
    ['a handle of another kind', ['queryQP', { qp: 1 }], 'EINVAL'],
    ['a buffer of no bytes', ['allocBuffer', { lengthBytes: 0 }], 'EINVAL'],
    ['a buffer beyond the quota', ['allocBuffer', { lengthBytes: 2 ** 40 }], 'ENOMEM'],
    ['a buffer of 2^53', ['allocBuffer', { lengthBytes: 2 ** 53 }], 'EINVAL'],
    ['a queue of fractions', ['createCQ', { context: 1, cqe: 1.5, channel: undefined }], 'EINVAL'],
    ['a queue beyond limits', ['createCQ', { context: 1, cqe: 2e9, channel: undefined }], 'EINVAL'],
    [
      'a queue beyond the quota',
      ['createCQ', { context: 1, cqe: 100_001, channel: undefined }],
      'ENOMEM',
    ],
    ['an unknown device', ['openDevice', { name: '../../etc/passwd' }], 'ENODEV'],
  ];
  it.each(wrong)('%s', async (_what, request, code) => {
    const client = await clientWithDevice();
    const { clients: before } = await rig.daemon.status();
    client.request(2, request);
    const { type, id, value } = await client.frame();
    expect([type, id, Array.isArray(value) ? value[0] : value]).toEqual([FrameType.error, 2, code]);
    expect((await rig.daemon.status()).clients).toEqual(before);
    client.socket.destroy();
    await client.closed();
  });

  it('unmapped memory: EFAULT, and no partial object', async () => {
    const client = await IpcClient.open(rig.socketPath);
    client.request(1, ['openDevice', { name: undefined }]);
    client.request(2, ['allocPD', { context: 1 }]);
    const source = { kind: 'process', address: 4096n };
    const rest = { address: undefined, iova: undefined, access: 1, key: undefined };
    client.request(3, ['regMR', { pd: 2, source, lengthBytes: 64, ...rest }]);
    await client.frame();
    await client.frame();
    const value = ['EFAULT', expect.stringContaining('64 bytes')];
    expect(await client.frame()).toMatchObject({ type: FrameType.error, value });
    const usage = (await rig.daemon.status()).clients[1]?.usage;
    expect(usage).toMatchObject({ pinnedBytes: 0, objects: { mr: 0 } });
    client.socket.destroy();
  });

  it('objects beyond the quota: ENOMEM, and room again after one is destroyed', async () => {
    const context = await witness.open();
    const pds = [await context.allocPD(), await context.allocPD(), await context.allocPD()];
    await expect(context.allocPD()).rejects.toMatchObject({ code: 'ENOMEM' });
    await pds[0]?.close();
    await context.allocPD();
    await context.close();
  });

  it('shared memory that is never mapped: ENOMEM before descriptors run out', async () => {
    const client = await clientWithDevice();
    let code: unknown;
    for (let id = 2; code === undefined && id < 400; id++) {
      client.request(id, ['createCQ', { context: 1, cqe: 1, channel: undefined }]);
      const { type, value } = await client.frame();
      if (type === FrameType.error && Array.isArray(value)) code = value[0];
    }
    expect(code).toBe('ENOMEM');
    client.socket.destroy();
    await client.closed();
    await expectUnharmed();
  });

  it('doorbells of handles that are not queue pairs, in pieces', async () => {
    const client = await IpcClient.open(rig.socketPath);
    const { token } = await client.welcome();
    const doorbell = await IpcClient.open(rig.socketPath, Role.doorbell, token);
    doorbell.send(bytesOf('01000000ffffffff00000000010000'));
    doorbell.send(bytesOf('0002'));
    client.request(1, ['listDevices', {}]);
    expect(await client.frame()).toMatchObject({ type: FrameType.reply });
    client.socket.destroy();
  });

  it('an event path of a destroyed channel: EACCES', async () => {
    const { client, token } = await clientWithChannel();
    client.request(3, ['destroyCompChannel', { channel: 2 }]);
    await client.frame();
    await expectRefused('EACCES', emitHello(Role.channel, token));
    client.socket.destroy();
  });
});
