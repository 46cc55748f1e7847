/** Finds native devices, opens them, and determines their addresses. */
import { networkInterfaces } from 'node:os';
import { canonicalAddress } from '#base/address';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import { watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import { NativeEventChannel } from '#native-bridge/rdma/cm-id';
import { NativeDevice } from '#native-bridge/rdma/device';
import { listDevices, type NativeDeviceInfo } from '#native-bridge/rdma/device-list';
import { type Libraries, type LibraryOptions, openLibraries } from '#native-bridge/rdma/libraries';
import type { BridgedDeviceInit } from './bridged-device.ts';
import { BridgedHost } from './bridged-host.ts';
import type { LowerEventChannel, LowerId } from './lower.ts';
import { freeName, type NativeDeviceConfig } from './native-config.ts';

/** The kernel's device nodes. */
const NODES = '/dev/infiniband';

interface DiscoveryOptions {
  /** Requested devices; empty: all. */
  readonly selected: readonly NativeDeviceConfig[];
  /** Names and addresses of other devices, which take precedence. */
  readonly takenNames: readonly string[];
  readonly takenAddresses: readonly string[];
  /** Location of rdma-core. Default: where the loader finds it. */
  readonly libraries?: LibraryOptions;
  /** Receives the devices found, or why there are none. */
  readonly note: (level: 'debug' | 'warn', device: string | undefined, text: string) => void;
}

/**
 * Opens the native devices, or the selected ones. Returns undefined if there are none and notes the
 * reason, since a daemon needs no native device. Rejects with `VerbsError` if a selected one cannot
 * be served.
 */
export async function openNativeDevices(
  options: DiscoveryOptions,
): Promise<BridgedHost | undefined> {
  const demanded = options.selected.length > 0;
  try {
    return await open(options);
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    if (demanded) throw new VerbsError(error.code, `${error.message}; run \`iwarpd doctor\``);
    options.note('debug', undefined, `no native devices: ${error.message}`);
    return undefined;
  }
}

async function open(options: DiscoveryOptions): Promise<BridgedHost | undefined> {
  const { selected, note } = options;
  const libraries = openLibraries(options.libraries);
  const found = listDevices(libraries);
  const wanted = selected.length > 0 ? selectedDevices(found, selected) : listed(found, options);
  if (wanted.length === 0) {
    note('debug', undefined, 'no native devices: rdma-core finds none');
    return undefined;
  }
  const channel = new NativeEventChannel(libraries);
  const devices: BridgedDeviceInit[] = [];
  try {
    const addresses = await addressesByDevice(channel);
    for (const { name, native, addresses: given } of wanted) {
      const lower = openDevice(libraries, native, options);
      if (lower === undefined) continue;
      const own = given.length > 0 ? given : (addresses.get(native) ?? []);
      const served = own.filter((address) => !options.takenAddresses.includes(address));
      const node = `${NODES}/${lower.info.nodeName}`;
      devices.push({ name, addresses: served, node, lower });
      note('debug', name, `native device ${native} serves ${served.join(', ') || 'no address'}`);
    }
    if (devices.length > 0)
      return new BridgedHost({ devices, channel, watch: watchDescriptor, note });
  } catch (error) {
    for (const { lower } of devices) lower.dispose();
    channel.dispose();
    throw error;
  }
  channel.dispose();
  return undefined;
}

/** The requested devices. ENODEV if one does not exist. */
function selectedDevices(
  found: readonly NativeDeviceInfo[],
  selected: readonly NativeDeviceConfig[],
): readonly NativeDeviceConfig[] {
  for (const { name, native } of selected) {
    const device = found.find((one) => one.name === native);
    if (device === undefined) {
      const there = found.map((one) => one.name).join(', ') || 'none';
      throw new VerbsError(
        'ENODEV',
        `device ${name}: no native device ${native} (found: ${there})`,
      );
    }
    if (device.transport !== 'iwarp') {
      throw new VerbsError('EOPNOTSUPP', `device ${name}: ${native} is not an iWARP device`);
    }
  }
  return selected;
}

/** All iWARP devices, each with a free name. */
function listed(
  found: readonly NativeDeviceInfo[],
  { takenNames, note }: DiscoveryOptions,
): NativeDeviceConfig[] {
  const taken = new Set(takenNames);
  const devices: NativeDeviceConfig[] = [];
  for (const { name: native, transport } of found) {
    if (transport !== 'iwarp') {
      note('debug', undefined, `${native} is not served: it is not an iWARP device`);
      continue;
    }
    const name = freeName(native, taken);
    taken.add(name);
    devices.push({ name, native, addresses: [] });
  }
  return devices;
}

/** Opens a device. Notes a failure unless the device was requested. */
function openDevice(
  libraries: Libraries,
  native: string,
  { selected, note }: DiscoveryOptions,
): NativeDevice | undefined {
  try {
    return NativeDevice.open(libraries, native);
  } catch (error) {
    if (selected.length > 0 || !isVerbsError(error)) throw error;
    note('warn', undefined, `the native device ${native} cannot be served: ${error.message}`);
    return undefined;
  }
}

/**
 * Asks rdma_cm for the device of each of the host's addresses, by binding an id to it: rdma_cm assigns
 * connections to devices in the same way.
 */
async function addressesByDevice(channel: LowerEventChannel): Promise<Map<string, string[]>> {
  const addresses = new Map<string, string[]>();
  for (const address of hostAddresses()) {
    const id = channel.createId();
    try {
      const device = deviceOf(id, address);
      if (device !== undefined) addresses.set(device, [...(addresses.get(device) ?? []), address]);
    } finally {
      await id.disposeAsync();
    }
  }
  return addresses;
}

function deviceOf(id: LowerId, address: string): string | undefined {
  try {
    id.bindAddr({ address, port: 0 });
    return id.deviceName;
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    return undefined;
  }
}

/** Canonical addresses of the host's interfaces, except link-local ones. */
function hostAddresses(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((entries) =>
    (entries ?? []).map(({ address }) => canonicalAddress(address) ?? address),
  );
  return [...new Set(addresses)].filter((address) => !/^fe[89ab]/.test(address));
}
