/**
 * The part of the device tree that describes rails: their PCI functions, one of each, and the buses,
 * network interfaces and links that lead to them.
 */
import { dirname } from 'node:path/posix';
import type { Rail } from '#daemon/host/rails';
import { cpuMask, inNodes, type MachineCpus } from './machine-cpus.ts';
import type { KernelDevice } from './nldev/devices.ts';
import { addNumaNodes } from './numa-tree.ts';
import { pciConfig } from './pci-config.ts';

/** An Ethernet controller, revision 0. */
const PCI_CLASS = '0x020000';
const REVISION = '0x00';
/** A slot that limits no rate of a rail. */
const LINK_SPEED = '32.0 GT/s PCIe';
const LINK_WIDTH = '16';
/** Start, end and flags. */
const NO_REGION = Array.from({ length: 3 }, () => `0x${'0'.repeat(16)}`).join(' ');
/** ARPHRD_ETHER */
const INTERFACE_TYPE = '1';

/** Text, without the final newline, or bytes. */
export type FileContent = string | Uint8Array;

/** Files and links of the tree by path. */
export interface TreeParts {
  readonly files: Map<string, FileContent>;
  /** Paths in the tree that the links lead to. */
  readonly links: Map<string, string>;
}

/** The directory of a device in the class `infiniband`. */
export function devicePath({ name, rail }: KernelDevice): string {
  return rail ? `${functionPath(rail)}/infiniband/${name}` : `class/infiniband/${name}`;
}

/** The directory of its node in the class `infiniband_verbs`. */
export function nodePath({ nodeName, rail }: KernelDevice): string {
  const name = `infiniband_verbs/${nodeName}`;
  return rail ? `${functionPath(rail)}/${name}` : `class/${name}`;
}

/** Adds everything of the rails but the contents of `devicePath` and `nodePath`. */
export function addRails(
  { files, links }: TreeParts,
  devices: readonly KernelDevice[],
  machine: MachineCpus,
): void {
  const rails = devices.filter(({ rail }) => rail !== undefined);
  const shown = rails[0]?.rail?.shownNodes;
  const cpus = shown === undefined ? machine : inNodes(machine, shown);
  if (shown !== undefined) addNumaNodes(files, cpus);
  rails.forEach((device, index) => {
    const { rail, name, nodeName } = device;
    if (rail === undefined) return;
    const spread = cpus.nodes[Math.floor((index * cpus.nodes.length) / rails.length)];
    const place = functionPath(rail);
    const node = rail.numaNode ?? spread?.node ?? -1;
    const near = cpus.nodes.find((each) => each.node === node)?.cpus ?? cpus.online;
    const local = { cpus: near, mask: cpuMask(near, cpus.online) };
    addFiles(files, place, { ...functionFiles(rail), numa_node: String(node) });
    addFiles(files, place, { local_cpulist: local.cpus, local_cpus: local.mask });
    files.set(`${place}/config`, pciConfig(rail.identity));
    links.set(`${place}/subsystem`, 'bus/pci');
    links.set(`bus/pci/devices/${rail.pciAddress}`, place);
    const bus = `${dirname(place)}/pci_bus/${busOf(rail)}`;
    addFiles(files, bus, { cpulistaffinity: local.cpus, cpuaffinity: local.mask });
    links.set(`${bus}/device`, dirname(place));
    links.set(`${bus}/subsystem`, 'class/pci_bus');
    links.set(`class/pci_bus/${busOf(rail)}`, bus);
    addFiles(files, `${place}/net/${rail.interfaceName}`, interfaceFiles(device, rail));
    for (const [kind, entry] of [
      ['infiniband', name],
      ['infiniband_verbs', nodeName],
      ['net', rail.interfaceName],
    ]) {
      links.set(`class/${kind}/${entry}`, `${place}/${kind}/${entry}`);
      links.set(`${place}/${kind}/${entry}/device`, place);
      links.set(`${place}/${kind}/${entry}/subsystem`, `class/${kind}`);
    }
  });
}

/** The files of a rail's interface that follow the state of its port; of other devices, none. */
export function carrierFiles({ rail, portState }: KernelDevice): [path: string, content: string][] {
  if (rail === undefined) return [];
  const place = `${functionPath(rail)}/net/${rail.interfaceName}`;
  const isUp = portState === 'active';
  return [
    [`${place}/operstate`, isUp ? 'up' : 'down'],
    [`${place}/carrier`, isUp ? '1' : '0'],
  ];
}

/** DOMAIN:BUS. */
function busOf({ pciAddress }: Rail): string {
  return pciAddress.slice(0, '0000:00'.length);
}

/** Each bus is a root: no bridge of the machine leads to it. */
function functionPath(rail: Rail): string {
  return `devices/pci${busOf(rail)}/${rail.pciAddress}`;
}

/**
 * No `modalias`: rdma-core would look for a driver by it and load the provider of another adapter.
 */
function functionFiles({ identity, pciAddress }: Rail): Record<string, string> {
  const { pci } = identity;
  const [vendor, device, subsystemVendor, subsystemDevice] = [
    pci.vendor,
    pci.device,
    pci.subsystemVendor,
    pci.subsystemDevice,
  ].map((number) => number.toString(16).padStart(4, '0')) as [string, string, string, string];
  const uevent = [
    `PCI_CLASS=${PCI_CLASS.slice('0x0'.length)}`,
    `PCI_ID=${vendor}:${device}`.toUpperCase(),
    `PCI_SUBSYS_ID=${subsystemVendor}:${subsystemDevice}`.toUpperCase(),
    `PCI_SLOT_NAME=${pciAddress}`,
  ];
  return {
    class: PCI_CLASS,
    vendor: `0x${vendor}`,
    device: `0x${device}`,
    subsystem_vendor: `0x${subsystemVendor}`,
    subsystem_device: `0x${subsystemDevice}`,
    revision: REVISION,
    max_link_speed: LINK_SPEED,
    max_link_width: LINK_WIDTH,
    current_link_speed: LINK_SPEED,
    current_link_width: LINK_WIDTH,
    uevent: uevent.join('\n'),
    irq: '0',
    // Six regions, a ROM and six of virtual functions; libpci gives up without the file.
    resource: Array.from({ length: 13 }, () => NO_REGION).join('\n'),
  };
}

function interfaceFiles(device: KernelDevice, { rate }: Rail): Record<string, string> {
  const { nodeGuid, netdev } = device;
  // As adapters do: the GUID is the address with four more digits in the middle.
  const address = `${nodeGuid.slice(0, 6)}${nodeGuid.slice(10)}`.replace(/(..)(?!$)/g, '$1:');
  return {
    type: INTERFACE_TYPE,
    address,
    dev_port: '0',
    speed: String(rate.gbps * 1000),
    ...(netdev === undefined ? {} : { ifindex: String(netdev.index) }),
  };
}

function addFiles(
  files: Map<string, FileContent>,
  folder: string,
  contents: Readonly<Record<string, string>>,
): void {
  for (const [name, content] of Object.entries(contents)) files.set(`${folder}/${name}`, content);
}
