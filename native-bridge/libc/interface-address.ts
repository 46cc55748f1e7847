/**
 * Which network interface has an address. Node lists only interfaces with a carrier, and the kernel
 * takes up to a second to detect one after an interface is up; this checks all interfaces.
 */
import { readFileSync } from 'node:fs';
import { closeDescriptor, ioctl } from './descriptor.ts';
import {
  AF_INET,
  IFNAMSIZ,
  IFREQ_BYTES,
  openSocket,
  SocketType,
  socketAddress,
} from './internet-socket.ts';
import { addressOf, checked } from './libc.ts';

const SIOCGIFCONF = 0x8912;
/** struct ifconf: the length of a buffer, and where it is. */
const IFCONF_BYTES = 16;
/** Maximum number of interfaces with IPv4 addresses to check. */
const INTERFACES_MAX = 1024;
/** Offsets of the address in struct sockaddr_in and sockaddr_in6. */
const [IPV4_AT, IPV6_AT] = [4, 8];
const IPV4_BYTES = 4;

/**
 * The name of the interface with an IPv4 or IPv6 address, without a %zone; undefined if none has it.
 * Throws `SystemCallError`: EMFILE, EINVAL if it is not an address.
 */
export function interfaceWith(address: string): string | undefined {
  const name = socketAddress(address, 0);
  return name[0] === AF_INET ? ipv4Interface(name) : ipv6Interface(name);
}

function ipv4Interface(name: Uint8Array): string | undefined {
  const table = new Uint8Array(INTERFACES_MAX * IFREQ_BYTES);
  const request = new DataView(new ArrayBuffer(IFCONF_BYTES));
  request.setInt32(0, table.length, true);
  request.setBigUint64(8, addressOf(table), true);
  const fd = openSocket(name, SocketType.datagram);
  try {
    checked('ioctl', ioctl(fd, SIOCGIFCONF, new Uint8Array(request.buffer)), 'SIOCGIFCONF');
  } finally {
    closeDescriptor(fd);
  }
  const wanted = Buffer.from(name).subarray(IPV4_AT, IPV4_AT + IPV4_BYTES);
  const entries = Buffer.from(table.buffer, 0, request.getInt32(0, true));
  for (let at = 0; at < entries.length; at += IFREQ_BYTES) {
    const addressAt = at + IFNAMSIZ + IPV4_AT;
    if (!wanted.equals(entries.subarray(addressAt, addressAt + IPV4_BYTES))) continue;
    const label = entries.toString('latin1', at, entries.indexOf(0, at));
    // `eth0:1` is an alias of `eth0`.
    return label.split(':', 1)[0];
  }
  return undefined;
}

/** Each line of the file: 32 hex digits, index, prefix length, scope, flags, name. */
function ipv6Interface(name: Uint8Array): string | undefined {
  const wanted = Buffer.from(name).toString('hex', IPV6_AT, IPV6_AT + 16);
  const line = ipv6Addresses()
    .split('\n')
    .find((each) => each.startsWith(wanted));
  return line?.trim().split(/\s+/).at(-1);
}

function ipv6Addresses(): string {
  try {
    return readFileSync('/proc/net/if_inet6', 'utf8');
  } catch {
    // A kernel without IPv6 has no such file.
    return '';
  }
}
