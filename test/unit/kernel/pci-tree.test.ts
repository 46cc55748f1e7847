import { posix } from 'node:path';
import { describe, expect, it } from 'vitest';
import { hostSystem } from '#daemon/host/links/system';
import { railDevices } from '#daemon/host/rails';
import { RnicHost } from '#daemon/host/rnic-host';
import { cpuMask, inNodes } from '#daemon/kernel/machine-cpus';
import { kernelDevices } from '#daemon/kernel/nldev/devices';
import { sysfsTree } from '#daemon/kernel/sysfs-tree';

const CPUS = {
  online: '0-47',
  nodes: [
    { node: 0, cpus: '0-23' },
    { node: 2, cpus: '24-47' },
  ],
};

function treeOf(...configured: Parameters<typeof railDevices>) {
  const devices = [...railDevices(...configured), { name: 'iwarp0', addresses: [] }];
  const host = new RnicHost({ system: hostSystem(), devices });
  return sysfsTree(kernelDevices(host), [], CPUS);
}

describe('the tree of rails', () => {
  const { files, links } = treeOf({ count: 4 });

  it('leads from the classes and buses to the PCI function', () => {
    const place = 'devices/pci1000:02/1000:02:00.0';
    for (const [link, target] of [
      ['class/infiniband/roce1', `${place}/infiniband/roce1`],
      ['class/infiniband_verbs/uverbs1', `${place}/infiniband_verbs/uverbs1`],
      ['class/net/rail1', `${place}/net/rail1`],
      ['bus/pci/devices/1000:02:00.0', place],
      ['class/pci_bus/1000:02', 'devices/pci1000:02/pci_bus/1000:02'],
      [`${place}/infiniband/roce1/device`, place],
      [`${place}/net/rail1/device`, place],
      [`${place}/subsystem`, 'bus/pci'],
    ] as const) {
      expect(links.get(link)).toBe(target);
    }
  });

  it('has every link lead somewhere', () => {
    const folders = new Set<string>();
    for (const path of [...files.keys(), ...links.keys()]) {
      for (let at = posix.dirname(path); at !== '.'; at = posix.dirname(at)) folders.add(at);
    }
    for (const target of links.values()) expect(folders).toContain(target);
  });

  it('describes the function', () => {
    const file = (name: string) => files.get(`devices/pci1000:01/1000:01:00.0/${name}`);
    expect(file('class')).toBe('0x020000');
    expect(file('max_link_speed')).toBe('32.0 GT/s PCIe');
    expect(file('uevent')).toContain('PCI_SLOT_NAME=1000:01:00.0');
    // rdma-core would choose a provider by it.
    expect(file('modalias')).toBeUndefined();
    expect(file('infiniband/roce0/ports/1/rate')).toBe('100 Gb/sec (4X EDR)');
    expect(file('infiniband/roce0/ports/1/counters/port_xmit_data')).toBe('0');
    expect(file('infiniband/roce0/ports/1/gid_attrs/ndevs/1')).toBe('rail0');
    expect(file('net/rail0/speed')).toBe('100000');
  });

  it('has the configuration space that the files describe', () => {
    const config = files.get('devices/pci1000:01/1000:01:00.0/config') as Uint8Array;
    expect(config).toHaveLength(256);
    expect([...config.subarray(0, 12)]).toEqual([0x77, 0x69, 1, 0, 6, 0, 0x10, 0, 0, 0, 0, 2]);
    // The list of capabilities has PCI Express only, at 16 lanes of 32 GT/s.
    expect(config[0x34]).toBe(0x40);
    expect([...config.subarray(0x40, 0x42)]).toEqual([0x10, 0]);
    expect(config[0x52]).toBe(0x05);
    expect(config[0x53]).toBe(0x01);
  });

  it('spreads rails over the NUMA nodes that have processors', () => {
    const nodes = [1, 2, 3, 4].map((bus) => {
      const place = `devices/pci1000:0${bus}/1000:0${bus}:00.0`;
      return [files.get(`${place}/numa_node`), files.get(`${place}/local_cpulist`)];
    });
    expect(nodes).toEqual([
      ['0', '0-23'],
      ['0', '0-23'],
      ['2', '24-47'],
      ['2', '24-47'],
    ]);
    expect(files.get('devices/pci1000:03/1000:03:00.0/local_cpus')).toBe('ffff,ff000000');
  });

  it('shows a node that the machine lacks, with all processors', () => {
    const far = treeOf({ count: 1, numa: [7] }).files;
    expect(far.get('devices/pci1000:01/1000:01:00.0/numa_node')).toBe('7');
    expect(far.get('devices/pci1000:01/1000:01:00.0/local_cpulist')).toBe('0-47');
  });

  it('shows as many nodes as configured, with the processors divided among them', () => {
    const shown = treeOf({ count: 4, numa: 3 }).files;
    const lists = [0, 1, 2].map((node) => shown.get(`devices/system/node/node${node}/cpulist`));
    expect(lists).toEqual(['0-15', '16-31', '32-47']);
    expect(shown.get('devices/system/node/online')).toBe('0-2');
    expect(shown.get('devices/system/node/has_cpu')).toBe('0,1,2');
    expect(shown.get('devices/system/node/node1/distance')).toBe('20 10 20');
    expect(shown.get('devices/system/node/node2/cpumap')).toBe('ffff,00000000');
    const nodes = [1, 2, 3, 4].map((bus) => {
      return shown.get(`devices/pci1000:0${bus}/1000:0${bus}:00.0/numa_node`);
    });
    expect(nodes).toEqual(['0', '0', '1', '2']);
    expect(files.has('devices/system/node/online')).toBe(false);
  });

  it('shows nodes without processors if there are more of them', () => {
    const online = { online: '0,2', nodes: [] };
    expect(inNodes(online, 4).nodes.map(({ cpus }) => cpus)).toEqual(['', '0', '', '2']);
  });

  it('leaves other devices as they are', () => {
    expect(files.get('class/infiniband/iwarp0/ports/1/rate')).toBe('2.5 Gb/sec (1X SDR)');
    expect(files.has('class/infiniband/iwarp0/hca_type')).toBe(false);
  });
});

it.each([
  ['0', '0', '1'],
  ['0-3,8', '0-8', '10f'.padStart(3, '0')],
  ['0-31', '0-63', '00000000,ffffffff'],
  ['64', '0-64', '1,00000000,00000000'],
])('the mask of processors %s of %s is %s', (list, online, mask) => {
  expect(cpuMask(list, online)).toBe(mask);
});
