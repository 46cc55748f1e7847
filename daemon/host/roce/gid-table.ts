/**
 * The GID table of a RoCE device: link-local at 0, IPv4 at 1, since `-g 1` is what programs are
 * told to use on Linux's rxe; then the device's other addresses.
 *
 * The kernel's table has 1,024 entries, and programs read every one of them at their start. This one
 * is short. Its length is fixed, so files of sysfs and QUERY_PORT agree whatever addresses the host
 * gets, and at least one entry is empty, as programs and their tests expect.
 */
import { addressFamily, isLoopback } from '../../iwarp/cm/address.ts';
import { gidText, type HostAddress, primaryAddress } from '../host-addresses.ts';

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
export interface GidSource {
  /** Addresses of the device; empty: all of the host's. */
  readonly addresses: readonly string[];
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
  const others = device.addresses.length > 0 ? ownAddresses(device, host) : outward(host);
  const listed = [primary, ...others.filter(({ address }) => address !== primary.address)];
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

/** The link-local address that the device forms from its own identifier. */
function linkLocalGid(nodeGuid: string): string {
  return `fe80:0000:0000:0000:${nodeGuid.replace(/(.{4})(?!$)/g, '$1:')}`;
}

function ownAddresses(device: GidSource, host: readonly HostAddress[]): HostAddress[] {
  return device.addresses.map((address) => primaryAddress({ addresses: [address] }, host));
}

/** The host's addresses that other hosts can reach; link-local ones are not unique to a host. */
function outward(host: readonly HostAddress[]): HostAddress[] {
  return host.filter(({ address }) => !isLoopback(address) && !address.startsWith('fe80:'));
}
