/**
 * The GID table of a RoCE device: link-local at 0, IPv4 at 1, since `-g 1` is what programs are
 * told to use on Linux's rxe; then the device's other addresses.
 *
 * The kernel's table has 1,024 entries, and programs read every one of them at their start. This one
 * is short. Its length is fixed, so files of sysfs and QUERY_PORT agree whatever addresses the host
 * gets, and at least one entry is empty, as programs and their tests expect. While a device runs, an
 * address keeps its entry, and a new one takes the first that is free.
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
export interface GidEntry {
  /** Eight groups of four hex digits; all zero in an empty entry. */
  readonly gid: string;
  /** As sysfs spells it. */
  readonly type: string;
  /** Undefined in an empty entry. */
  readonly interfaceName: string | undefined;
}

/** What a GID table is made from. */
export interface GidSource extends DeviceAddresses {
  /** 16 hex digits. */
  readonly nodeGuid: string;
}

/** Entries of the table. */
const GID_TABLE_LENGTH = 8;
/** An unreadable type would make programs give up on the whole table, so empty entries have one. */
const TYPE = 'RoCE v2';
const EMPTY: GidEntry = { gid: gidText('::'), type: TYPE, interfaceName: undefined };

/** The GID table of a device on a host with these addresses. */
export function gidTable(device: GidSource, host: readonly HostAddress[]): readonly GidEntry[] {
  const primary = primaryAddress(device, host);
  const own =
    device.addresses.length > 0 ? ownAddresses(device, host) : openAddresses(device, host);
  const rest = own.filter(({ address }) => address !== primary.address);
  // Another device may have even the address that is left when all are named.
  const listed = device.others?.includes(primary.address) === true ? rest : [primary, ...rest];
  // Programs that ask for entry 1 want IPv4.
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
 * The GID table of a running device. Each datagram and message of another host looks up an entry, so the
 * table is cached, and the host updates it when its addresses change.
 */
export class GidTable {
  readonly #device: GidSource;
  #entries: readonly GidEntry[];

  constructor(device: GidSource, host: readonly HostAddress[]) {
    this.#device = device;
    this.#entries = gidTable(device, host);
  }

  /** All entries; another array after each change. */
  entries(): readonly GidEntry[] {
    return this.#entries;
  }

  /** The host has these addresses now. True if an entry changed. */
  follow(host: readonly HostAddress[]): boolean {
    // Configured addresses do not depend on the host.
    if (this.#device.addresses.length > 0) return false;
    const before = this.#entries;
    this.#entries = following(before, gidTable(this.#device, host));
    return this.#entries !== before;
  }
}

/** The entries of `before` that are still wanted, where they are, and the others of `wanted`. */
function following(before: readonly GidEntry[], wanted: readonly GidEntry[]): readonly GidEntry[] {
  const kept = before.map(({ gid }) => wanted.find((entry) => entry.gid === gid) ?? EMPTY);
  const added = wanted.filter((entry) => !kept.includes(entry));
  const next = kept.map((entry, index) => {
    // The last one stays empty.
    return isUsed(entry) || index === GID_TABLE_LENGTH - 1 ? entry : (added.shift() ?? EMPTY);
  });
  const same = next.every(({ gid, interfaceName }, index) => {
    return gid === before[index]?.gid && interfaceName === before[index]?.interfaceName;
  });
  return same ? before : next;
}

function isUsed({ interfaceName }: GidEntry): boolean {
  return interfaceName !== undefined;
}

/** The link-local address that the device forms from its own identifier. */
function linkLocalGid(nodeGuid: string): string {
  return `fe80:0000:0000:0000:${nodeGuid.replace(/(.{4})(?!$)/g, '$1:')}`;
}

function ownAddresses(device: GidSource, host: readonly HostAddress[]): HostAddress[] {
  return device.addresses.map((address) => primaryAddress({ addresses: [address] }, host));
}

/** The host's addresses that other hosts can reach; link-local ones are not unique to a host. */
function openAddresses(device: GidSource, host: readonly HostAddress[]): HostAddress[] {
  return unnamedAddresses(device, host).filter(
    ({ address }) => !isLoopback(address) && !address.startsWith('fe80:'),
  );
}
