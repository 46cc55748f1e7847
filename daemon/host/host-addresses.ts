/** Addresses of this host and of its devices, and their GIDs. */
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import {
  addressBytes,
  addressFamily,
  addressText,
  canonicalAddress,
  isLoopback,
} from '#base/address';
import { interfaceWith } from '#native-bridge/libc/interface-address';
import { SystemCallError } from '#native-bridge/libc/libc';

/** An address of the host and its interface. */
export interface HostAddress {
  readonly address: string;
  readonly interfaceName: string;
}

/** The canonical addresses of this host's interfaces that have a carrier, in the system's order. */
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

/** The same; undefined if the system cannot list them, which takes a free descriptor. */
export function listedAddresses(): HostAddress[] | undefined {
  try {
    return hostAddresses();
  } catch (error) {
    const failed = error instanceof Error && 'code' in error && error.code === 'ERR_SYSTEM_ERROR';
    if (!failed) throw error;
    return undefined;
  }
}

/** The addresses of a device. */
export interface DeviceAddresses {
  /** Empty: all addresses of the host that no other device names. */
  readonly addresses: readonly string[];
  /** For a device without addresses: the addresses that others name. */
  readonly others?: readonly string[] | undefined;
  /** The name under which programs see its interface, if that is not the host's. */
  readonly shownInterface?: string | undefined;
}

/** The addresses of the host that a device without configured addresses may use. */
export function unnamedAddresses(
  { others = [] }: DeviceAddresses,
  host: readonly HostAddress[],
): readonly HostAddress[] {
  return others.length === 0 ? host : host.filter(({ address }) => !others.includes(address));
}

/**
 * The primary address of a device, and its interface: the device's first address, or the host's
 * first one that other hosts can reach, IPv4 before IPv6.
 */
export function primaryAddress(device: DeviceAddresses, host: readonly HostAddress[]): HostAddress {
  const [own] = device.addresses;
  if (own !== undefined) {
    if (device.shownInterface !== undefined) {
      return { address: own, interfaceName: device.shownInterface };
    }
    const found = host.find(({ address }) => address === own);
    return found ?? { address: own, interfaceName: interfaceOf(own) };
  }
  const outward = unnamedAddresses(device, host).filter(({ address }) => !isLoopback(address));
  return (
    outward.find(({ address }) => addressFamily(address) === 4) ??
    outward[0] ?? { address: '127.0.0.1', interfaceName: 'lo' }
  );
}

/** The interface of an address, even without a carrier; `lo` for an address that the host does not have. */
export function interfaceOf(address: string): string {
  if (isLoopback(address)) return 'lo';
  try {
    return interfaceWith(address) ?? 'lo';
  } catch (error) {
    // No free descriptor for the query.
    if (!(error instanceof SystemCallError)) throw error;
    return 'lo';
  }
}

/**
 * The GID of a device with this address: eight groups of four hex digits. IPv4 is mapped, which
 * keeps the last half non-zero: tools read zero as "no GID".
 */
export function gidText(address: string): string {
  const bytes = gidBytes(address);
  const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return digits.replace(/(.{4})(?!$)/g, '$1:');
}

/** The same as 16 bytes. */
export function gidBytes(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (bytes.length === 16) return bytes;
  const mapped = new Uint8Array(16);
  mapped.fill(0xff, 10, 12);
  mapped.set(bytes, 12);
  return mapped;
}

/** The address that a GID stands for. */
export function gidAddress(gid: Uint8Array): string {
  return addressText(gid);
}

/** The kernel's index of a network interface; undefined if there is none of this name. */
export function interfaceIndex(name: string): number | undefined {
  try {
    return Number(readFileSync(`/sys/class/net/${name}/ifindex`, 'utf8'));
  } catch {
    return undefined;
  }
}
