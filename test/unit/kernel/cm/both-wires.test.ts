/**
 * Connection ids of rdma_cm's ABI on a host with an iWARP and a RoCE device for every address, as a
 * daemon has them without options.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DeviceConfig } from '#daemon/host/device-config';
import { DEFAULT_DEVICES } from '#daemon/host/device-config';
import type { HostNotice } from '#daemon/host/observer';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { cmCommands as cm } from '#test/support/kernel-commands';
import { ownAddress } from '#test/support/own-address';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

/** On a machine without a network, 127.0.0.1 belongs to `roce0`. */
const LOOPBACK = ownAddress(30);
const { EINVAL, EADDRINUSE, EADDRNOTAVAIL } = NEGATIVE_ERRNO;
const ADDR_RESOLVED = 0;
const [PS_TCP, PS_UDP] = [0x0106, 0x0111];

let notices: HostNotice[];
let rig: RdmaCmRig;

function open(devices: readonly DeviceConfig[]): void {
  notices = [];
  const observer = { notice: (notice: HostNotice) => void notices.push(notice) };
  rig = new RdmaCmRig(new UverbsRig({ devices, observer }));
}

beforeEach(() => open(DEFAULT_DEVICES));

afterEach(async () => {
  rig.file.assertDeepInvariants();
  rig.verbs.host.assertDeepInvariants();
  await rig.close();
});

/** The device that QUERY names for an id; undefined for none. */
function deviceOf(id: number): string | undefined {
  const guid = rig.must(cm.query(id, 0)).getBigUint64(0);
  const { devices } = rig.verbs.host;
  const found = devices.find(({ info }) => BigInt(`0x${info.nodeGuid}`) === guid);
  expect(rig.must(cm.queryRoute(id)).getBigUint64(0)).toBe(guid);
  if (guid === 0n) return undefined;
  return found?.name ?? 'no device of the host';
}

/** An id bound to `address` and `port`. */
function bound(address: string, port: number, portSpace = PS_TCP): number {
  const id = rig.create(1n, rig.file, portSpace);
  rig.must(cm.bind(id, address, port));
  return id;
}

/** A port that no id has, and, for connections, no program. */
function freePortOf(portSpace: number): number {
  const id = bound(LOOPBACK, 0, portSpace);
  const port = rig.must(cm.query(id, 0)).getUint16(18);
  rig.must(cm.destroyId(id));
  return port;
}

describe('a port on which another program of the machine has TCP', () => {
  let other: Server;
  let port: number;

  beforeEach(async () => {
    other = createServer().listen(0, LOOPBACK);
    await once(other, 'listening');
    const address = other.address();
    port = typeof address === 'object' && address !== null ? address.port : 0;
  });

  afterEach(async () => {
    other.close();
    await once(other, 'close');
  });

  it.each(['0.0.0.0', LOOPBACK])('belongs only to RoCE at %s, and the log says so', async (at) => {
    const listener = bound(at, port);
    expect(notices.filter(({ level }) => level === 'warn')).toEqual([]);
    rig.must(cm.listen(listener));
    const said = notices.filter(({ level }) => level === 'warn').map(({ text }) => text);
    expect(said).toEqual([expect.stringContaining(`another program has TCP port ${port}`)]);
    expect(rig.verbs.host.cm.roceAloneAddresses()).toEqual([{ address: at, port }]);

    // iWARP would find the other program there.
    const dialling = rig.create(2n);
    rig.must(cm.resolveAddr(dialling, LOOPBACK, port));
    expect(await rig.event()).toMatchObject({ uid: 2n, type: ADDR_RESOLVED });
    expect(deviceOf(dialling)).toBe('roce0');
    const elsewhere = rig.create(3n);
    rig.must(cm.resolveAddr(elsewhere, LOOPBACK, port - 1));
    expect(await rig.event()).toMatchObject({ uid: 3n, type: ADDR_RESOLVED });
    expect(deviceOf(elsewhere)).toBe('iwarp0');

    rig.must(cm.destroyId(listener));
    expect(rig.verbs.host.cm.roceAloneAddresses()).toEqual([]);
  });

  it('is still not shared with another id', () => {
    bound('0.0.0.0', port);
    expect(rig.write(cm.bind(rig.create(2n), '0.0.0.0', port))).toBe(EADDRNOTAVAIL);
    expect(rig.write(cm.bind(rig.create(2n), LOOPBACK, port))).toBe(EADDRNOTAVAIL);
  });

  it('is in use for an address that only an iWARP device has', async () => {
    await rig.close();
    open([
      { name: 'iwarp0', addresses: [LOOPBACK] },
      { name: 'roce0', addresses: [ownAddress(31)], transport: 'roce' },
    ]);
    expect(rig.write(cm.listen(bound(LOOPBACK, port)))).toBe(EADDRINUSE);
  });
});

it('a port that another id has only on iWARP cannot be bound at a wildcard', async () => {
  await rig.close();
  open([
    { name: 'iwarp0', addresses: [LOOPBACK] },
    { name: 'roce0', addresses: [ownAddress(31)], transport: 'roce' },
  ]);
  const listener = bound(LOOPBACK, 0);
  rig.must(cm.listen(listener));
  const port = rig.must(cm.query(listener, 0)).getUint16(18);
  expect(rig.write(cm.bind(rig.create(2n), '0.0.0.0', port))).toBe(EADDRNOTAVAIL);
});

it('an id with a path on iWARP keeps it, whatever address it is given', async () => {
  await rig.close();
  open([
    { name: 'iwarp0', addresses: [LOOPBACK] },
    { name: 'roce0', addresses: [ownAddress(31)], transport: 'roce' },
  ]);
  const id = rig.create(1n);
  rig.must(cm.resolveAddr(id, LOOPBACK, 7471));
  expect(rig.write(cm.bind(id, ownAddress(31), 0))).toBe(EINVAL);
  expect(rig.write(cm.resolveAddr(id, ownAddress(31), 7471))).toBe(EINVAL);
  expect(deviceOf(id)).toBe('iwarp0');
});

describe('a loopback address that no device lists', () => {
  const roce = (name: string, ...addresses: readonly string[]): DeviceConfig => ({
    name,
    addresses,
    transport: 'roce',
  });
  const iwarp = (name: string, ...addresses: readonly string[]) => ({ name, addresses });

  it.each([
    ['both wires', DEFAULT_DEVICES, PS_TCP, 'iwarp0'],
    ['both wires, datagrams', DEFAULT_DEVICES, PS_UDP, 'roce0'],
    ['only RoCE', [roce('r')], PS_TCP, 'r'],
    ['only RoCE, datagrams', [roce('r')], PS_UDP, 'r'],
    ['one named RoCE device', [roce('r', ownAddress(31))], PS_TCP, 'r'],
    ['only iWARP', [iwarp('i')], PS_TCP, 'i'],
    ['one named iWARP device', [iwarp('i', ownAddress(31))], PS_TCP, 'i'],
    ['one iWARP device of two', [iwarp('a', ownAddress(31)), iwarp('i')], PS_TCP, 'i'],
    ['two named ones', [iwarp('a', ownAddress(31)), iwarp('b', ownAddress(32))], PS_TCP, undefined],
    ['two RoCE devices', [roce('a', ownAddress(31)), roce('b', ownAddress(32))], PS_TCP, undefined],
  ] as const)('has the device that it most likely means: %s', async (_, devices, space, name) => {
    await rig.close();
    open(devices);
    const id = bound(LOOPBACK, freePortOf(space), space);
    expect(deviceOf(id)).toBe(name);
    expect(deviceOf(bound('0.0.0.0', freePortOf(space), space))).toBeUndefined();
    // libfabric finds all devices that way.
    expect(deviceOf(bound(LOOPBACK, 0, space))).toBeUndefined();
    // Its queue pair enters INIT as that device says.
    expect(rig.write(cm.initQpAttr(id, 1))).toBe(name === undefined ? EINVAL : 0);
  });

  it('leaves a listener on both wires', () => {
    const listener = bound(LOOPBACK, freePortOf(PS_TCP));
    rig.must(cm.listen(listener));
    expect(deviceOf(listener)).toBe('iwarp0');
    const { id } = rig.file.expect(listener);
    expect([id.iwarp?.state, id.roce?.state]).toEqual(['listening', 'listening']);
  });
});
