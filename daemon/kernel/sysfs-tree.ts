/**
 * The daemon's version of `/sys/class/infiniband*` for its emulated devices, as files in a directory
 * that `$SYSFS_PATH` names to rdma-core. rdma-core reads GIDs from it; the rest is for inspection
 * tools.
 */
import { existsSync, lstatSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AsyncEventType } from '#contract/verbs/enums';
import { type HostAddress, hostAddresses, primaryAddress } from '#daemon/host/host-addresses';
import { NO_RATE } from '#daemon/host/rails';
import type { DeviceAsyncEvent, ServedDevice } from '#daemon/host/served-device';
import type { DeviceDirectory } from '../clients/objects/device-directory.ts';
import type { DeviceEventSink } from '../clients/objects/event-router.ts';
import { placeFailure } from '../clients/own-place.ts';
import { machineCpus } from './machine-cpus.ts';
import {
  type DeviceNumber,
  type KernelDevice,
  kernelDevices,
  PORT_STATES,
  RDMA_CM_NUMBER,
} from './nldev/devices.ts';
import {
  addRails,
  carrierFiles,
  devicePath,
  type FileContent,
  nodePath,
  type TreeParts,
} from './pci-tree.ts';
import { linkMachine, replaceFile, writeFiles, writeLinks } from './sysfs-files.ts';

/** Readable by other users' programs, if the daemon serves them. */
const DIRECTORY_MODE = 0o755;

/** The directory of the tree for the daemon at `socketPath`. */
export function sysfsPath(socketPath: string): string {
  return `${socketPath}.sysfs`;
}

/** The files and links of the tree. */
export function sysfsTree(
  devices: readonly KernelDevice[],
  host: readonly HostAddress[],
  cpus = machineCpus(),
): TreeParts {
  const files = new Map<string, FileContent>([
    ['class/infiniband_verbs/abi_version', '6'],
    ['class/misc/rdma_cm/abi_version', '4'],
    ['class/misc/rdma_cm/dev', numberText(RDMA_CM_NUMBER)],
    // Of nodes, the preload library lists the names only.
    ['dev/infiniband/rdma_cm', ''],
  ]);
  for (const device of devices) addDevice(files, device, host);
  const tree = { files, links: new Map<string, string>() };
  addRails(tree, devices, cpus);
  return tree;
}

function addDevice(
  files: Map<string, FileContent>,
  device: KernelDevice,
  host: readonly HostAddress[],
): void {
  const { interfaceName } = primaryAddress(device, host);
  const node = nodePath(device);
  files.set(`${node}/abi_version`, String(device.persona.abiVersion));
  files.set(`${node}/dev`, numberText(device.number));
  files.set(`${node}/ibdev`, device.name);
  files.set(`dev/infiniband/${device.nodeName}`, '');
  const root = devicePath(device);
  const guid = device.nodeGuid.replace(/(.{4})(?!$)/g, '$1:');
  files.set(`${root}/node_type`, device.persona.nodeType.name);
  files.set(`${root}/node_desc`, device.persona.description);
  files.set(`${root}/node_guid`, guid);
  files.set(`${root}/sys_image_guid`, guid);
  const { rail } = device;
  files.set(`${root}/fw_ver`, rail?.identity.firmware ?? '');
  const port = portPath(device);
  if (rail === undefined) {
    files.set(`${root}/device/net/${interfaceName}/operstate`, 'up');
  } else {
    files.set(`${root}/hca_type`, rail.identity.hcaType);
    files.set(`${root}/board_id`, rail.identity.boardId);
    files.set(`${root}/hw_rev`, '0');
    for (const [name, value] of Object.entries(device.portCounters ?? {})) {
      files.set(`${port}/counters/${name}`, String(value));
    }
  }
  device.persona.gids(device, host).forEach((entry, index) => {
    files.set(`${port}/gids/${index}`, entry.gid);
    files.set(`${port}/gid_attrs/types/${index}`, entry.type);
    if (entry.interfaceName !== undefined) {
      files.set(`${port}/gid_attrs/ndevs/${index}`, entry.interfaceName);
    }
  });
  files.set(`${port}/link_layer`, 'Ethernet');
  files.set(`${port}/rate`, (rail?.rate ?? NO_RATE).text);
  files.set(`${port}/cap_mask`, `0x${device.persona.portCapFlags.toString(16).padStart(8, '0')}`);
  files.set(`${port}/lid`, '0x0');
  files.set(`${port}/sm_lid`, '0x0');
  files.set(`${port}/sm_sl`, '0');
  files.set(`${port}/lid_mask_count`, '0');
  for (const [path, content] of portStateFiles(device)) files.set(path, content);
  for (const [path, content] of Object.entries(device.persona.sysfsFiles(interfaceName))) {
    files.set(`${root}/${path}`, content);
  }
}

function portPath(device: KernelDevice): string {
  return `${devicePath(device)}/ports/1`;
}

/** The files that change while the daemon runs. */
function portStateFiles(device: KernelDevice): [path: string, content: string][] {
  const { name, physName } = PORT_STATES[device.portState];
  const port = portPath(device);
  return [[`${port}/state`, name], [`${port}/phys_state`, physName], ...carrierFiles(device)];
}

/**
 * Writes the tree of the emulated devices to `directory`, replacing its contents. Port states and,
 * until the result is closed, counters are kept up to date. Throws `VerbsError` EACCES if another user
 * owns that path, ENOSPC if the file system is full.
 */
export function publishSysfs(
  directory: string,
  { emulated, events }: DeviceDirectory,
): CounterFiles {
  const devices = kernelDevices(emulated);
  makeDirectory(directory);
  try {
    const { files, links } = sysfsTree(devices, hostAddresses());
    writeFiles(directory, files);
    writeLinks(directory, links);
    if (links.size > 0) linkMachine(directory);
  } catch (error) {
    throw placeFailure('write', directory, error);
  }
  events.add(new PortFiles(directory, devices));
  return new CounterFiles(directory, emulated.devices);
}

/** The files of a port's state and GIDs. Updated before programs receive the event. */
class PortFiles implements DeviceEventSink {
  readonly #directory: string;
  readonly #devices: readonly KernelDevice[];

  constructor(directory: string, devices: readonly KernelDevice[]) {
    this.#directory = directory;
    this.#devices = devices;
  }

  handleDeviceEvent({ name }: { readonly name: string }, { event }: DeviceAsyncEvent): void {
    const device = this.#devices.find((known) => known.name === name);
    if (device === undefined) return;
    try {
      for (const [path, content] of portStateFiles(device)) {
        replaceFile(this.#directory, path, content);
      }
      if (event === AsyncEventType.gidChange) this.#writeGids(device);
    } catch {
      // The tree was removed, by the stopping daemon or another process.
    }
  }

  #writeGids(device: KernelDevice): void {
    const directory = this.#directory;
    const port = portPath(device);
    device.gids?.forEach(({ gid, interfaceName }, index) => {
      replaceFile(directory, `${port}/gids/${index}`, gid);
      const owner = `${port}/gid_attrs/ndevs/${index}`;
      if (interfaceName === undefined) rmSync(join(directory, owner), { force: true });
      else replaceFile(directory, owner, interfaceName);
    });
    this.#writeInterface(device, primaryAddress(device, hostAddresses()).interfaceName);
  }

  #writeInterface(device: KernelDevice, interfaceName: string): void {
    const root = `class/infiniband/${device.name}`;
    const folder = `${root}/device/net/${interfaceName}`;
    const path = join(this.#directory, folder);
    if (existsSync(path)) return;
    rmSync(dirname(path), { recursive: true, force: true });
    mkdirSync(path, { recursive: true });
    replaceFile(this.#directory, `${folder}/operstate`, 'up');
    replaceFile(this.#directory, `${root}/parent`, interfaceName);
  }
}

/** Creates an empty directory that only this user can write to. */
function makeDirectory(directory: string): void {
  removeSysfs(directory);
  try {
    // Not recursive: fails if another user has created something meanwhile, such as a symbolic link.
    mkdirSync(directory, { mode: DIRECTORY_MODE });
  } catch (error) {
    throw placeFailure('create', directory, error);
  }
}

/**
 * Removes the tree in `directory` if this user owns it. A symbolic link is removed, not followed.
 */
export function removeSysfs(directory: string): void {
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  if (stats === undefined || stats.uid !== process.geteuid?.()) return;
  rmSync(directory, { recursive: true, force: true });
}

function numberText({ major, minor }: DeviceNumber): string {
  return `${major}:${minor}`;
}

const INTERVAL_MS = 1000;

/** A device with the counters of its port, if it has some. */
type CountingDevice = Pick<ServedDevice, 'name' | 'hwCounters' | 'portCounters'>;

/** Keeps the `hw_counters` of RoCE devices and `counters` of rails up to date; `iwarpd status` has the current values. */
class CounterFiles {
  readonly #directory: string;
  readonly #devices: readonly CountingDevice[];
  /** Values as last written, by path. */
  readonly #written = new Map<string, number>();
  readonly #timer: NodeJS.Timeout | undefined;

  /** `directory` contains the tree, with every counter at 0. */
  constructor(directory: string, devices: readonly CountingDevice[]) {
    this.#directory = directory;
    this.#devices = devices.filter(({ hwCounters }) => hwCounters !== undefined);
    if (this.#devices.length === 0) return;
    this.#timer = setInterval(() => this.#update(), INTERVAL_MS);
    // Must not keep the daemon running.
    this.#timer.unref();
  }

  /** Stops updating; the files stay. */
  close(): void {
    clearInterval(this.#timer);
  }

  #update(): void {
    try {
      for (const { name, hwCounters = {}, portCounters = {} } of this.#devices) {
        const port = `class/infiniband/${name}/ports/1`;
        this.#write(`${port}/hw_counters`, hwCounters);
        this.#write(`${port}/counters`, portCounters);
      }
    } catch {
      // The tree was removed, by the stopping daemon or another process.
      this.close();
    }
  }

  #write(folder: string, counters: Readonly<Record<string, number>>): void {
    for (const [counter, value] of Object.entries(counters)) {
      const path = `${folder}/${counter}`;
      if ((this.#written.get(path) ?? 0) === value) continue;
      replaceFile(this.#directory, path, String(value));
      this.#written.set(path, value);
    }
  }
}
