import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emitFrame, FrameType, Role } from '#contract/protocol/ipc-frames';
import { encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { OPERATIONS } from '#daemon/control/operations';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { DaemonRig } from '../support/daemon-rig.ts';
import { IpcClient } from '../support/ipc-client.ts';

let rig: DaemonRig;
let client: IpcClient;

beforeEach(async () => {
  rig = await DaemonRig.start({ native: false });
  client = await IpcClient.open(rig.socketPath, Role.admin);
});
afterEach(() => rig.stop());

async function healthy(): Promise<void> {
  const { socketPath } = rig;
  expect(await queryDaemon('status', {}, { socketPath })).toMatchObject({
    socketPath,
    clients: [],
  });
}

describe('an admin connection', () => {
  it.each<[string, IpcValue, string]>([
    ['nothing', null, 'EOPNOTSUPP'],
    ['a word', 'status', 'EOPNOTSUPP'],
    ['no name', [], 'EOPNOTSUPP'],
    ['a number for a name', [7, {}], 'EOPNOTSUPP'],
    ['a command of devices', ['openDevice', {}], 'EOPNOTSUPP'],
    ['a name of every object', ['toString', {}], 'EOPNOTSUPP'],
    ['the prototype', ['__proto__', {}], 'EOPNOTSUPP'],
    ['no request', ['status'], 'EINVAL'],
    ['a list for a request', ['listQPs', []], 'EINVAL'],
    ['bytes for a request', ['reset', Uint8Array.of(1)], 'EINVAL'],
    ['a field too many', ['reset', { hard: true }], 'EINVAL'],
    ['a field of another type', ['listQPs', { pid: 'x' }], 'EINVAL'],
    ['a number that is none', ['listQPs', { limit: Number.NaN }], 'EINVAL'],
    ['a bigint', ['listQPs', { pid: 7n }], 'EINVAL'],
  ])('%s is refused, and the next request is answered', async (_, value, code) => {
    client.request(1, value);
    expect(await client.frame()).toMatchObject({
      type: FrameType.error,
      id: 1,
      value: [code, expect.any(String)],
    });
    client.request(2, ['status', {}]);
    expect(await client.frame()).toMatchObject({ type: FrameType.reply, id: 2 });
    await healthy();
  });

  it.each<[string, Uint8Array]>([
    ['bytes that are no frame', new Uint8Array(64).fill(0xff)],
    ['a frame that is no request', emitFrame(FrameType.reply, 1, encodeValue([]))],
    ['a value that is none', emitFrame(FrameType.request, 1, Uint8Array.of(0x9f, 0xff))],
    ['a frame beyond its size', emitFrame(FrameType.request, 1, new Uint8Array(100_000))],
  ])('%s end it, and no other', async (_, bytes) => {
    client.send(bytes);
    await client.closed();
    await healthy();
  });

  it('that sends too many requests without waiting is cut off', async () => {
    for (let id = 1; id <= 100; id += 1) client.request(id, ['reset', {}]);
    await client.closed();
    await healthy();
  });

  it('that reads no replies gets no further ones: at most one reply is queued', async () => {
    client.socket.pause();
    const cut = (): string | undefined => rig.log.find((line) => line.includes('was cut off'));
    for (let id = 1; cut() === undefined && id < 2000; id += 1) {
      client.request(id, ['status', {}]);
      await healthy();
    }
    expect(cut()).toContain('more than 16 operations at once');
  });

  it('that reads its replies late gets all of them', async () => {
    client.socket.pause();
    const count = 12;
    for (let id = 1; id <= count; id += 1) client.request(id, ['status', {}]);
    await healthy();
    client.socket.resume();
    const ids = [];
    for (let id = 1; id <= count; id += 1) ids.push((await client.frame()).id);
    expect(ids).toEqual(Array.from({ length: count }, (_, index) => index + 1));
  });

  it('that leaves too much unread is cut off, with the limit’s name and its setting', async () => {
    await rig.stop();
    rig = await DaemonRig.start({ native: false, limits: { unreadBytes: 1024 } });
    client = await IpcClient.open(rig.socketPath, Role.admin);
    client.socket.pause();
    const cut = (): string | undefined => rig.log.find((line) => line.includes('limits.unread'));
    for (let id = 1; cut() === undefined && id < 2000; id += 1) {
      client.request(id, ['status', {}]);
      await healthy();
    }
    expect(cut()).toContain(
      'at most 1024 bytes that clients have not read; raise limits.unreadBytes',
    );
  });

  it('that closes before its reply leaks nothing', async () => {
    for (const name of Object.keys(OPERATIONS)) {
      const gone = await IpcClient.open(rig.socketPath, Role.admin);
      gone.request(1, [name, {}]);
      gone.socket.destroy();
    }
    await healthy();
    expect(rig.log.filter((line) => /"level":(?:50|60)/.test(line))).toEqual([]);
  });
});
