/** Queries of a RoCE device, against recordings of the kernel's rxe. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { kernelDevices } from '#daemon/kernel/nldev/devices';
import { sysfsTree } from '#daemon/kernel/sysfs-tree';
import { bytesOf, hexOf } from '#test/support/hex';
import { commands, le } from '#test/support/kernel-commands';
import { netlinkDatagrams } from '#test/support/netlink-answers';
import { recordedCommand } from '#test/support/rxe-recordings';
import { UverbsRig } from '#test/support/uverbs-rig';

/** The node GUID of the recorded device. */
const RECORDED_GUID = '505400fffe123456';
const EINVAL = -22;
/** In responses of QUERY_DEVICE. */
const MAX_CQE_AT = 76;

let rig: UverbsRig;

beforeEach(() => {
  const devices = [{ name: 'rxe0', addresses: ['10.0.2.15'], transport: 'roce' as const }];
  rig = new UverbsRig({ devices });
});

afterEach(() => rig.close());

/** The response that was recorded, with this device's GUID. */
function recorded(name: string): string {
  const { nodeGuid } = rig.file.device.info;
  return recordedCommand(name).response.replaceAll(RECORDED_GUID, nodeGuid);
}

describe('rxe0', () => {
  it('answers GET_CONTEXT as rxe does, without private data', () => {
    const { request, response } = recordedCommand('GET_CONTEXT');
    const reply = rig.write(bytesOf(request));
    // The recorded descriptor is one of the program's; the preload library stores its own.
    expect(reply).toEqual({ status: 0, response: `00000000${response.slice(8)}` });
  });

  it.each(['QUERY_DEVICE', 'EX_QUERY_DEVICE'])('answers %s byte for byte but max_cqe', (name) => {
    rig.must(commands.getContext());
    const reply = rig.write(bytesOf(recordedCommand(name).request));
    const expected = bytesOf(recorded(name));
    const fields = new DataView(expected.buffer);
    expect(fields.getUint32(MAX_CQE_AT, true)).toBe(32_767);
    fields.setUint32(MAX_CQE_AT, 524_287, true);
    expect(reply).toEqual({ status: 0, response: hexOf(expected) });
  });

  it('answers QUERY_PORT byte for byte, except the GID table and the active MTU', () => {
    rig.must(commands.getContext());
    const reply = bytesOf(rig.write(bytesOf(recordedCommand('QUERY_PORT').request)).response);
    const expected = bytesOf(recorded('QUERY_PORT'));
    new DataView(expected.buffer).setUint32(16, 8, true);
    expected[28] = 5;
    expect(hexOf(reply)).toBe(hexOf(expected));
    expect(rig.write(commands.queryPort(2)).status).toBe(EINVAL);
  });

  it('is a CA of the protocol roce in netlink, served by rxe’s provider', () => {
    const devices = kernelDevices(rig.host);
    const guid = hexOf(bytesOf(rig.file.device.info.nodeGuid).reverse());
    const request = bytesOf(`${le(24)} 0114 0500 ${le(7)} ${le(9)} 0800 0100 ${le(0)}`);
    const [record = new Uint8Array(0)] = netlinkDatagrams(request, devices);
    expect(hexOf(record.subarray(16))).toBe(
      '080001000000000009000200727865300000000008000300010000000c000400763c220100000000' +
        `0c000600${guid}0c000700${guid}05000e00010000000500540000000000` +
        '09004300726f636500000000',
    );
    const chardev = bytesOf(`${le(36)} 0f14 0100 ${le(7)} ${le(9)}
      0800 0100 ${le(0)} 0b00 4500 75766572627300 00`);
    const [node = new Uint8Array(0)] = netlinkDatagrams(chardev, devices);
    expect(hexOf(node.subarray(16))).toBe(
      '080049000e0000000c004800c0e70000000000000c00470002000000000000000c0046007576657262733000',
    );
  });

  it('names its interface to rdma link, as the kernel does byte for byte', () => {
    const [device] = kernelDevices(rig.host);
    if (device === undefined) throw new Error('no device');
    const onEthernet = {
      ...device,
      netdev: { index: 2, name: 'eth0' },
      portState: 'active',
    } as const;
    const request = bytesOf(`${le(32)} 0514 0500 ${le(7)} ${le(9)}
      0800 0100 ${le(0)} 0800 0300 ${le(1)}`);
    const [record = new Uint8Array(0)] = netlinkDatagrams(request, [onEthernet]);
    expect(hexOf(record.subarray(16))).toBe(
      '08000100000000000900020072786530000000000800030001000000' +
        '05000c000400000005000d000500000008003200020000000900330065746830' +
        '00000000',
    );
  });
});

describe('the GID table', () => {
  const HOST = [
    { address: '127.0.0.1', interfaceName: 'lo' },
    { address: '2001:db8::1', interfaceName: 'eth0' },
    { address: 'fe80::1', interfaceName: 'eth0' },
    { address: '10.0.2.15', interfaceName: 'eth0' },
    { address: '10.0.3.15', interfaceName: 'eth1' },
  ];

  function gids(addresses: readonly string[]): (string | undefined)[] {
    const [device] = kernelDevices(rig.host);
    if (device === undefined) throw new Error('no device');
    const { files } = sysfsTree([{ ...device, addresses }], HOST);
    const port = 'class/infiniband/rxe0/ports/1';
    return Array.from({ length: 8 }, (_, index) => {
      const type = files.get(`${port}/gid_attrs/types/${index}`);
      const interfaceName = files.get(`${port}/gid_attrs/ndevs/${index}`);
      return `${files.get(`${port}/gids/${index}`)} ${type} ${interfaceName}`;
    });
  }

  const EMPTY = '0000:0000:0000:0000:0000:0000:0000:0000 RoCE v2 undefined';

  it('has the link-local GID, then IPv4, then the rest, and empty entries with a type', () => {
    const [first, ...rest] = gids([]);
    expect(first).toMatch(/^fe80:0000:0000:0000:02[0-9a-f:]+ RoCE v2 eth0$/);
    expect(rest).toEqual([
      '0000:0000:0000:0000:0000:ffff:0a00:020f RoCE v2 eth0',
      '0000:0000:0000:0000:0000:ffff:0a00:030f RoCE v2 eth1',
      '2001:0db8:0000:0000:0000:0000:0000:0001 RoCE v2 eth0',
      ...Array.from({ length: 4 }, () => EMPTY),
    ]);
  });

  it('has the addresses of the device only, and keeps an entry empty however many there are', () => {
    const many = Array.from({ length: 9 }, (_, index) => `127.0.0.${index + 1}`);
    const table = gids(many);
    expect(table[1]).toBe('0000:0000:0000:0000:0000:ffff:7f00:0001 RoCE v2 lo');
    expect(table[6]).toContain('7f00:0006');
    expect(table[7]).toBe(EMPTY);
  });
});
