import { existsSync, readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { railDevices } from '#daemon/host/rails';
import { assertFreePlaces } from '#daemon/main/free-places';

const [RAIL] = railDevices({ count: 1 });
const FUNCTIONS = '/sys/bus/pci/devices';

function startWith(place: { interfaceName?: string; pciAddress?: string }): void {
  if (RAIL !== undefined) assertFreePlaces([{ ...RAIL, rail: { ...RAIL.rail, ...place } }]);
}

it('a rail takes no interface of the machine', () => {
  expect(() => startWith({})).not.toThrow();
  expect(() => startWith({ interfaceName: 'lo' })).toThrow(
    'option rails.interfaces: this machine has an interface lo',
  );
});

const [taken] = existsSync(FUNCTIONS) ? readdirSync(FUNCTIONS) : [];

it.runIf(taken !== undefined)('a rail takes no PCI function of the machine', () => {
  expect(() => startWith({ pciAddress: taken ?? '' })).toThrow(`this machine has ${taken}, or`);
});
