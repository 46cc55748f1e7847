/** Checks that rails take no name that the machine has given to something else. */
import { existsSync } from 'node:fs';
import type { DeviceConfig } from '../host/device-config.ts';
import { invalidOption } from './config.ts';

/** Throws `VerbsError` EINVAL if the machine has a rail's PCI function, its bus or its interface. */
export function assertFreePlaces(devices: readonly DeviceConfig[]): void {
  for (const { rail } of devices) {
    if (rail === undefined) continue;
    const { pciAddress, interfaceName } = rail;
    const bus = pciAddress.slice(0, '0000:00'.length);
    const places = [`/sys/bus/pci/devices/${pciAddress}`, `/sys/devices/pci${bus}`];
    if (places.some((path) => existsSync(path))) {
      throw invalidOption('rails.pci', `this machine has ${pciAddress}, or a root bus ${bus}`);
    }
    if (existsSync(`/sys/class/net/${interfaceName}`)) {
      throw invalidOption('rails.interfaces', `this machine has an interface ${interfaceName}`);
    }
  }
}
