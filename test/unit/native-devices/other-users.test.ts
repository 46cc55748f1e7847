/** Programs of other users may use a native device only if they could open its node themselves. */
import { chmodSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EmbeddedMemory } from '#daemon/embedded/embedded-memory';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { UNKNOWN_UID } from '#native-bridge/libc/peer-process';
import { NativeRig } from '#test/support/native-rig';
import { temporaryFolder } from '#test/support/temporary-folder';

const OWN_UID = process.getuid?.() ?? 0;
const STRANGER = OWN_UID + 61_003;
const NATIVE_ADDRESS = { address: '127.0.0.2', port: 0 };
const EVERYWHERE = { address: '0.0.0.0', port: 0 };

let folder: string;
let nodes: string;
let node: string;
let nodeGid: number;
let rig: NativeRig;
const clients: ClientContext[] = [];

beforeEach(() => {
  folder = temporaryFolder();
  nodes = join(folder, 'infiniband');
  node = join(nodes, 'uverbs0');
  mkdirSync(nodes);
  chmodSync(nodes, 0o755);
  writeFileSync(node, '');
  nodeGid = statSync(node).gid;
  rig = new NativeRig(node);
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await rig.close();
});

/** A program that is served both kinds of devices. */
function clientOf(uid: number, gid?: number): ClientContext {
  const client = new ClientContext({
    directory: rig.directory,
    memory: new EmbeddedMemory(),
    uid,
    ...(gid === undefined ? {} : { gid }),
    sendEvent: () => undefined,
    sendCompletion: () => undefined,
    label: 'test',
  });
  clients.push(client);
  return client;
}

function devicesOf(client: ClientContext): string[] {
  return client.execute('listDevices', {}).devices.map(({ name }) => name);
}

describe('a native device whose node another user may not open', () => {
  beforeEach(() => chmodSync(node, 0o600));

  it('is refused to that user by name, and not listed', () => {
    const client = clientOf(STRANGER, nodeGid + 1);
    expect(devicesOf(client)).toEqual(['emu0']);
    expect(() => client.execute('openDevice', { name: 'nat0' })).toThrow(
      expect.objectContaining({
        code: 'EACCES',
        message: expect.stringMatching(new RegExp(`nat0: user ${STRANGER} may not open ${node}`)),
      }),
    );
    expect(client.execute('openDevice', { name: 'emu0' }).device.name).toBe('emu0');
  });

  it('serves no connection of that user', () => {
    const client = clientOf(STRANGER, nodeGid + 1);
    const bind = (address: typeof EVERYWHERE) => {
      const { id } = client.execute('cmCreateId', {});
      client.execute('cmBindAddr', { id, address });
      return id;
    };
    bind(NATIVE_ADDRESS);
    client.execute('cmListen', { id: bind(EVERYWHERE), backlog: 1 });
    expect(rig.channel.ids).toEqual([]);
  });

  it('stays available to the user of the daemon and to root', () => {
    for (const uid of [OWN_UID, 0]) {
      const client = clientOf(uid, nodeGid);
      expect(devicesOf(client)).toEqual(['emu0', 'nat0']);
      expect(client.execute('openDevice', { name: 'nat0' }).device.name).toBe('nat0');
      const { id } = client.execute('cmCreateId', {});
      client.execute('cmBindAddr', { id, address: NATIVE_ADDRESS });
    }
    expect(rig.channel.ids).toHaveLength(2);
  });
});

describe('whether another user may open a node', () => {
  const [same, other, unknown] = [0, 1, undefined] as const;

  it.each([
    ['everyone may', 0o666, other, true],
    ['everyone may, and the user’s group is not known', 0o666, unknown, true],
    ['everyone may read only', 0o644, other, false],
    ['its group may', 0o660, same, true],
    ['another group may', 0o660, other, false],
    ['a group may, and the user’s is not known', 0o660, unknown, false],
    ['all but a group may, to which it may belong', 0o606, other, false],
  ] as const)('%s', (_, mode, group, may) => {
    chmodSync(node, mode);
    const client = clientOf(STRANGER, group === undefined ? undefined : nodeGid + group);
    expect(devicesOf(client)).toEqual(may ? ['emu0', 'nat0'] : ['emu0']);
  });

  it('depends on the directory, too', () => {
    chmodSync(node, 0o666);
    chmodSync(nodes, 0o700);
    expect(devicesOf(clientOf(STRANGER, nodeGid + 1))).toEqual(['emu0']);
  });

  it('is decided again for each command', () => {
    chmodSync(node, 0o666);
    const client = clientOf(STRANGER, nodeGid + 1);
    expect(devicesOf(client)).toEqual(['emu0', 'nat0']);
    rmSync(node);
    expect(devicesOf(client)).toEqual(['emu0']);
  });

  it('is decided by the rights of others for an unidentified user', () => {
    chmodSync(node, 0o600);
    expect(devicesOf(clientOf(UNKNOWN_UID))).toEqual(['emu0']);
    chmodSync(node, 0o666);
    expect(devicesOf(clientOf(UNKNOWN_UID))).toEqual(['emu0', 'nat0']);
  });
});

it('another user’s view of devices changes nothing for the rest', () => {
  chmodSync(node, 0o600);
  const all = rig.directory;
  const stranger = all.forUser({ uid: STRANGER, gid: undefined });
  expect(stranger.events).toBe(all.events);
  expect(all.forUser({ uid: OWN_UID, gid: undefined }).find('nat0').host).toBe(rig.native);
  expect(stranger.at(NATIVE_ADDRESS)).toBe(rig.host);
});
