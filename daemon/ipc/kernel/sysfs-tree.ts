/**
 * What `/sys/class/infiniband*` shows of the emulated devices, as files in a directory of the
 * daemon: `$SYSFS_PATH` leads rdma-core there. GIDs are read from it, the rest is for tools that
 * look around.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import { addressFamily, addressOctets, canonicalAddress, isLoopback } from '../../cm/address.ts';
import { type DeviceEventSink, EventRouter } from '../verbs/event-router.ts';
import {
  type DeviceNumber,
  type KernelDevice,
  kernelDevices,
  PORT_STATES,
  RDMA_CM_NUMBER,
} from './nldev-devices.ts';

/** An address of the host and the interface that has it. */
export interface HostAddress {
  readonly address: string;
  readonly interfaceName: string;
}

/** Where the tree of the daemon at `socketPath` is. */
export function sysfsPath(socketPath: string): string {
  return `${socketPath}.sysfs`;
}

/** The addresses of this host, in the order of the system, canonical. */
export function hostAddresses(): HostAddress[] {
  const found: HostAddress[] = [];
  for (const [interfaceName, addresses] of Object.entries(networkInterfaces())) {
    for (const { address } of addresses ?? []) {
      const canonical = canonicalAddress(address);
      if (canonical !== undefined) found.push({ address: canonical, interfaceName });
    }
  }
  return found;
}

/**
 * The address that a device is known by, and its interface: the first of its own, or the host's
 * first one that others reach, IPv4 before IPv6.
 */
export function primaryAddress(
  device: Pick<KernelDevice, 'addresses'>,
  host: readonly HostAddress[],
): HostAddress {
  const [own] = device.addresses;
  if (own !== undefined) {
    const found = host.find(({ address }) => address === own);
    return found ?? { address: own, interfaceName: 'lo' };
  }
  const outward = host.filter(({ address }) => !isLoopback(address));
  return (
    outward.find(({ address }) => addressFamily(address) === 4) ??
    outward[0] ?? { address: '127.0.0.1', interfaceName: 'lo' }
  );
}

/** The files of the tree by their path in it, without the newline at the end of each. */
export function sysfsFiles(
  devices: readonly KernelDevice[],
  host: readonly HostAddress[],
): Map<string, string> {
  const files = new Map<string, string>([
    ['class/infiniband_verbs/abi_version', '6'],
    ['class/misc/rdma_cm/abi_version', '4'],
    ['class/misc/rdma_cm/dev', numberText(RDMA_CM_NUMBER)],
  ]);
  for (const device of devices) addDevice(files, device, primaryAddress(device, host));
  return files;
}

function addDevice(files: Map<string, string>, device: KernelDevice, primary: HostAddress): void {
  const node = `class/infiniband_verbs/${device.nodeName}`;
  files.set(`${node}/abi_version`, '1');
  files.set(`${node}/dev`, numberText(device.number));
  files.set(`${node}/ibdev`, device.name);
  const root = `class/infiniband/${device.name}`;
  const guid = device.nodeGuid.replace(/(.{4})(?!$)/g, '$1:');
  files.set(`${root}/node_type`, '4: RNIC');
  files.set(`${root}/node_desc`, 'Emulated iWARP RNIC');
  files.set(`${root}/node_guid`, guid);
  files.set(`${root}/sys_image_guid`, guid);
  files.set(`${root}/fw_ver`, '');
  files.set(`${root}/device/net/${primary.interfaceName}/operstate`, 'up');
  const port = portPath(device);
  files.set(`${port}/gids/0`, gidText(primary.address));
  files.set(`${port}/gid_attrs/types/0`, 'IB/RoCE v1');
  files.set(`${port}/gid_attrs/ndevs/0`, primary.interfaceName);
  files.set(`${port}/link_layer`, 'Ethernet');
  files.set(`${port}/rate`, '2.5 Gb/sec (1X SDR)');
  files.set(`${port}/cap_mask`, '0x00090000');
  files.set(`${port}/lid`, '0x0');
  files.set(`${port}/sm_lid`, '0x0');
  files.set(`${port}/sm_sl`, '0');
  files.set(`${port}/lid_mask_count`, '0');
  for (const [path, content] of portStateFiles(device)) files.set(path, content);
}

function portPath(device: KernelDevice): string {
  return `class/infiniband/${device.name}/ports/1`;
}

/** The files that change while a daemon runs. */
function portStateFiles(device: KernelDevice): [path: string, content: string][] {
  const { name, physName } = PORT_STATES[device.portState];
  const port = portPath(device);
  return [
    [`${port}/state`, name],
    [`${port}/phys_state`, physName],
  ];
}

/**
 * The GID of a device with this address: eight groups of four hex digits. IPv4 is mapped, so that
 * the last half is never zero, which tools take for "no GID".
 */
export function gidText(address: string): string {
  const octets = gidOctets(address);
  const digits = [...octets].map((octet) => octet.toString(16).padStart(2, '0')).join('');
  return digits.replace(/(.{4})(?!$)/g, '$1:');
}

/** The same as 16 octets. */
export function gidOctets(address: string): Uint8Array {
  const octets = addressOctets(address);
  if (octets.length === 16) return octets;
  const mapped = new Uint8Array(16);
  mapped.fill(0xff, 10, 12);
  mapped.set(octets, 12);
  return mapped;
}

/** Writes the tree of `host` to `directory`, in place of what is there; its files follow the ports. */
export function publishSysfs(directory: string, host: RnicHost): void {
  const devices = kernelDevices(host);
  removeSysfs(directory);
  for (const [path, content] of sysfsFiles(devices, hostAddresses())) {
    const file = join(directory, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${content}\n`);
  }
  EventRouter.of(host).add(new PortFiles(directory, devices));
}

/** The files that tell a port's state. Programs hear of a change when it is there already. */
class PortFiles implements DeviceEventSink {
  readonly #directory: string;
  readonly #devices: readonly KernelDevice[];

  constructor(directory: string, devices: readonly KernelDevice[]) {
    this.#directory = directory;
    this.#devices = devices;
  }

  handleDeviceEvent({ name }: { readonly name: string }): void {
    const device = this.#devices.find((known) => known.name === name);
    if (device === undefined) return;
    try {
      for (const [path, content] of portStateFiles(device)) {
        writeFileSync(join(this.#directory, path), `${content}\n`);
      }
    } catch {
      // The tree has been removed, by us at the daemon's end or by somebody else.
    }
  }
}

/** Removes the tree in `directory`. */
export function removeSysfs(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
}

function numberText({ major, minor }: DeviceNumber): string {
  return `${major}:${minor}`;
}
