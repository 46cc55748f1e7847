/**
 * The GID table of a RoCE device: link-local at 0, IPv4 at 1, since guides to Linux's rxe tell programs to
 * use `-g 1`; then the device's other addresses.
 *
 * The kernel's table has 1,024 entries, and programs read all of them at their start; this one is short. Its
 * length is fixed, so files of sysfs and QUERY_PORT agree after any change of addresses, and at least one
 * entry is empty, as programs and their tests expect. While a device runs, an address keeps its entry, and a
 * new one takes the first free entry.
 */
import { addressFamily, isLoopback } from '#base/address';
import {
  type DeviceAddresses,
  gidText,
  type HostAddress,
  primaryAddress,
  unnamedAddresses,
} from '../host-addresses.ts';

/** An entry of a port's GID table. */
export interface GidTableEntry {
  /** Eight groups of four hex digits; all zero in an empty entry. */
  readonly gid: string;
  /** Spelling of sysfs. */
  readonly type: string;
  /** Undefined in an empty entry. */
  readonly interfaceName: string | undefined;
}

/** Inputs of a GID table. */
export interface GidSource extends DeviceAddresses {
  /** 16 hex digits. */
  readonly nodeGuid: string;
}

/** Entries of the table. */
const GID_TABLE_LENGTH = 8;
/** Empty entries have a type, too: programs give up on the whole table if one is unreadable. */
const TYPE = 'RoCE v2';
const EMPTY: GidTableEntry = { gid: gidText('::'), type: TYPE, interfaceName: undefined };

/** The GID table of a device on a host with these addresses. */
export function gidTable(
  device: GidSource,
  host: readonly HostAddress[],
): readonly GidTableEntry[] {
  const primary = primaryAddress(device, host);
  const own =
    device.addresses.length > 0 ? ownAddresses(device, host) : openAddresses(device, host);
  const rest = own.filter(({ address }) => address !== primary.address);
  // If all addresses are named, even the remaining primary one may belong to another device.
  const listed = device.others?.includes(primary.address) === true ? rest : [primary, ...rest];
  // Programs that use entry 1 want IPv4.
  listed.sort((a, b) => addressFamily(a.address) - addressFamily(b.address));
  const linkLocal = { gid: linkLocalGid(device.nodeGuid), interfaceName: primary.interfaceName };
  const gids = [
    linkLocal,
    ...listed.map(({ address, interfaceName }) => ({ gid: gidText(address), interfaceName })),
  ];
  const used = gids.slice(0, GID_TABLE_LENGTH - 1).map((entry) => ({ ...entry, type: TYPE }));
  const empty = Array.from({ length: GID_TABLE_LENGTH - used.length }, () => EMPTY);
  return [...used, ...empty];
}

/**
 * The GID table of a running device. It is cached, since each datagram and message of another host looks up
 * an entry; the host updates it when its addresses change.
 */
export class GidTable {
  readonly #device: GidSource;
  #entries: readonly GidTableEntry[];

  constructor(device: GidSource, host: readonly HostAddress[]) {
    this.#device = device;
    this.#entries = gidTable(device, host);
  }

  /** All entries; another array after each change. */
  entries(): readonly GidTableEntry[] {
    return this.#entries;
  }

  /** Updates the table to these addresses of the host. True if an entry changed. */
  follow(host: readonly HostAddress[]): boolean {
    // Configured addresses do not depend on the host.
    if (this.#device.addresses.length > 0) return false;
    const before = this.#entries;
    this.#entries = following(before, gidTable(this.#device, host));
    return this.#entries !== before;
  }
}

/** Keeps entries of `before` that are still wanted in place, and adds the others of `wanted`. */
function following(
  before: readonly GidTableEntry[],
  wanted: readonly GidTableEntry[],
): readonly GidTableEntry[] {
  const kept = before.map(({ gid }) => wanted.find((entry) => entry.gid === gid) ?? EMPTY);
  const added = wanted.filter((entry) => !kept.includes(entry));
  const next = kept.map((entry, index) => {
    // The last entry stays empty.
    return isUsed(entry) || index === GID_TABLE_LENGTH - 1 ? entry : (added.shift() ?? EMPTY);
  });
  const same = next.every(({ gid, interfaceName }, index) => {
    return gid === before[index]?.gid && interfaceName === before[index]?.interfaceName;
  });
  return same ? before : next;
}

function isUsed({ interfaceName }: GidTableEntry): boolean {
  return interfaceName !== undefined;
}

/** The link-local address that the device derives from its own identifier. */
function linkLocalGid(nodeGuid: string): string {
  return `fe80:0000:0000:0000:${nodeGuid.replace(/(.{4})(?!$)/g, '$1:')}`;
}

function ownAddresses(device: GidSource, host: readonly HostAddress[]): HostAddress[] {
  return device.addresses.map((address) =>
    primaryAddress({ ...device, addresses: [address] }, host),
  );
}

/** The host's addresses that other hosts can reach; link-local ones are not unique to a host. */
function openAddresses(device: GidSource, host: readonly HostAddress[]): HostAddress[] {
  return unnamedAddresses(device, host).filter(
    ({ address }) => !isLoopback(address) && !address.startsWith('fe80:'),
  );
}
