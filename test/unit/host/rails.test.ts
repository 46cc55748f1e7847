import { expect, it } from 'vitest';
import { RAILS_MAX, type RailsOptions, railDevices } from '#daemon/host/rails';

it('rails have a device, an address, a PCI function and an interface each', () => {
  const devices = railDevices({ count: 3 });
  expect(devices.map(({ name, addresses }) => [name, ...addresses])).toEqual([
    ['roce0', '127.0.0.1'],
    ['roce1', '127.0.0.2'],
    ['roce2', '127.0.0.3'],
  ]);
  expect(devices[2]?.rail).toMatchObject({
    pciAddress: '1000:03:00.0',
    interfaceName: 'rail2',
    numaNode: undefined,
    rate: { gbps: 100, text: '100 Gb/sec (4X EDR)' },
  });
});

it('rails are named and placed as configured', () => {
  const [, second] = railDevices({
    count: 2,
    names: 'mlx5_%d',
    interfaces: 'ens%dnp0',
    addresses: ['10.0.0.1', '10.0.1.1'],
    pci: ['0000:3B:00.0', '0000:3b:00.1'],
    numa: [0, -1],
    rate: 400,
  });
  expect(second).toMatchObject({
    name: 'mlx5_1',
    addresses: ['10.0.1.1'],
    transport: 'roce',
    rail: {
      pciAddress: '0000:3b:00.1',
      numaNode: -1,
      interfaceName: 'ens1np0',
      rate: { gbps: 400, speed: 128, width: 2 },
    },
  });
});

it('an identity brings its names and numbers', () => {
  const [device] = railDevices({ count: 1, identity: 'connectx7' });
  expect(device).toMatchObject({
    name: 'mlx5_0',
    rail: { identity: { vendorId: 0x02c9, vendorPartId: 4129, hcaType: 'MT4129' } },
  });
});

it('the largest number of rails have distinct places', () => {
  const rails = railDevices({ count: RAILS_MAX }).map(({ rail }) => rail);
  expect(new Set(rails.map(({ pciAddress }) => pciAddress)).size).toBe(RAILS_MAX);
  expect(rails.at(-1)?.pciAddress).toBe('1000:40:00.0');
});

it.each<[Partial<RailsOptions>, string]>([
  [{ names: 'mlx5_' }, 'names: must contain %d once, the number of the rail'],
  [{ names: '%d%d' }, 'names: must contain %d once, the number of the rail'],
  [{ interfaces: 'a/%d' }, "interfaces: 'a/0' is no name of an interface: use 1 to 15 letters"],
  [
    { interfaces: 'fifteen-letters%d' },
    "interfaces: 'fifteen-letters0' is no name of an interface",
  ],
  [{ pci: ['0000:3b:00.0'] }, 'pci: has 1 entries for 2 rails'],
  [{ pci: ['0000:3b:00.0', '3c:00.0'] }, "pci: '3c:00.0' is no PCI address; write one like"],
  [{ pci: ['0000:3b:00.0', '../3b:00.0'] }, "pci: '../3b:00.0' is no PCI address"],
  [{ pci: ['0000:3b:00.0', '0000:3B:00.0'] }, 'pci: two rails have 0000:3b:00.0'],
  [{ numa: [0, 0, 0] }, 'numa: has 3 entries for 2 rails'],
  [{ addresses: [] }, 'addresses: has 0 entries for 2 rails'],
  [{ rate: 56 }, 'rate: must be one of 10, 25, 40, 50, 100, 200, 400'],
])('rejects %j', (wrong, message) => {
  expect(() => railDevices({ count: 2, ...wrong })).toThrow(`option rails.${message}`);
});
