import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { gidText, type HostAddress, primaryAddress } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { railDevices } from '#daemon/host/rails';
import { RnicHost } from '#daemon/host/rnic-host';
import { type KernelDevice, kernelDevices } from '#daemon/kernel/nldev/devices';
import { replaceFile } from '#daemon/kernel/sysfs-files';
import { publishSysfs, removeSysfs, sysfsTree } from '#daemon/kernel/sysfs-tree';
import { SIW } from '#daemon/kernel/uverbs/siw/persona';
import { temporaryFolder } from '#test/support/temporary-folder';

const HOST: readonly HostAddress[] = [
  { address: '127.0.0.1', interfaceName: 'lo' },
  { address: '2001:db8::1', interfaceName: 'eth0' },
  { address: '10.0.2.15', interfaceName: 'eth0' },
];

const device = (addresses: readonly string[] = []): KernelDevice => ({
  index: 0,
  name: 'rnic0',
  transport: 'iwarp',
  persona: SIW,
  nodeName: 'uverbs0',
  number: { major: 231, minor: 192 },
  nodeGuid: '02aabbccddeeff01',
  addresses,
  portState: 'active',
});

describe('the GID of a device', () => {
  it('is its IPv4 address mapped, so its last half is not zero', () => {
    expect(gidText('10.0.2.15')).toBe('0000:0000:0000:0000:0000:ffff:0a00:020f');
    expect(gidText('10.0.2.15')).toHaveLength(39);
  });

  it('is its IPv6 address, whatever its zone', () => {
    expect(gidText('fe80::1:2%eth0')).toBe('fe80:0000:0000:0000:0000:0000:0001:0002');
  });
});

describe('the address shown for a device', () => {
  it('is the first in its list', () => {
    expect(primaryAddress(device(['2001:db8::1', '10.0.2.15']), HOST)).toEqual(HOST[1]);
    expect(primaryAddress(device(['127.0.0.7']), HOST).interfaceName).toBe('lo');
  });

  it('is a reachable one, IPv4 first, for a device with all addresses', () => {
    expect(primaryAddress(device(), HOST)).toEqual(HOST[2]);
    expect(primaryAddress(device(), HOST.slice(0, 2))).toEqual(HOST[1]);
    expect(primaryAddress(device(), HOST.slice(0, 1)).address).toBe('127.0.0.1');
  });
});

describe('the tree', () => {
  it('contains the files that rdma-core reads', () => {
    const { files } = sysfsTree([device()], HOST);
    const port = 'class/infiniband/rnic0/ports/1';
    expect(files.get(`${port}/gids/0`)).toBe('0000:0000:0000:0000:0000:ffff:0a00:020f');
    expect(files.get(`${port}/gid_attrs/types/0`)).toBe('IB/RoCE v1');
    expect(files.get(`${port}/gid_attrs/ndevs/0`)).toBe('eth0');
    expect(files.get('class/infiniband/rnic0/node_guid')).toBe('02aa:bbcc:ddee:ff01');
    expect(files.get('class/infiniband_verbs/uverbs0/dev')).toBe('231:192');
    expect(files.has('class/infiniband/rnic0/device/net/eth0/operstate')).toBe(true);
  });

  it('shows a port that is down', () => {
    const { files } = sysfsTree([{ ...device(), portState: 'down' }], HOST);
    expect(files.get('class/infiniband/rnic0/ports/1/state')).toBe('1: DOWN');
    expect(files.get('class/infiniband/rnic0/ports/1/phys_state')).toBe('3: Disabled');
  });

  it('leaves nothing behind when a file cannot be replaced', () => {
    const folder = temporaryFolder();
    expect(() => replaceFile(folder, 'no/such/file', '1')).toThrow('ENOENT');
    expect(readdirSync(folder)).toEqual([]);
  });

  it('shows a rail whose port is down as an interface without a carrier', () => {
    const host = new RnicHost({ system: hostSystem(), devices: railDevices({ count: 1 }) });
    const [fresh] = kernelDevices(host) as [KernelDevice];
    const place = 'devices/pci1000:01/1000:01:00.0/net/rail0';
    for (const [portState, operstate, carrier] of [
      ['active', 'up', '1'],
      ['down', 'down', '0'],
    ] as const) {
      const { files } = sysfsTree([{ ...fresh, portState }], HOST);
      expect(files.get(`${place}/operstate`)).toBe(operstate);
      expect(files.get(`${place}/carrier`)).toBe(carrier);
    }
  });

  it('replaces an older one, follows the port, and is removed', () => {
    const path = join(temporaryFolder(), 'sysfs');
    const file = (name: string): string =>
      readFileSync(join(path, 'class/infiniband/rnic0', name), 'utf8');
    mkdirSync(path);
    writeFileSync(join(path, 'left-behind'), '');
    const host = new RnicHost({
      system: hostSystem(),
      devices: [{ name: 'rnic0', addresses: [] }],
    });
    publishSysfs(path, new DeviceDirectory(host, undefined));
    expect(existsSync(join(path, 'left-behind'))).toBe(false);
    expect(file('fw_ver')).toBe('\n');
    expect(file('ports/1/state')).toBe('4: ACTIVE\n');
    const fault = host.faults.add({ kind: 'port-down' }, undefined);
    expect([file('ports/1/state'), file('ports/1/phys_state')]).toEqual([
      '1: DOWN\n',
      '3: Disabled\n',
    ]);
    host.faults.remove(fault.id);
    expect(file('ports/1/state')).toBe('4: ACTIVE\n');
    removeSysfs(path);
    // Without a reader, it is not restored.
    host.faults.add({ kind: 'port-down' }, undefined);
    expect(existsSync(path)).toBe(false);
  });
});
