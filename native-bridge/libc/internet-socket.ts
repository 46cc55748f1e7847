/** Shared by TCP, UDP and SCTP sockets: opening, kernel addresses, options, interfaces. */
import { closeDescriptor, ioctl } from './descriptor.ts';
import { checked, lastErrno, libc, type NumberCall, SystemCallError } from './libc.ts';

const socket = libc.func('int socket(int domain, int type, int protocol)') as NumberCall;
const inetPton = libc.func('int inet_pton(int family, const char *text, void *bytes)') as (
  family: number,
  text: string,
  bytes: Uint8Array,
) => number;
/** The kernel's index of a network interface of this process's namespace; 0 if there is none. */
export const ifNameToIndex = libc.func('uint32_t if_nametoindex(const char *name)') as (
  name: string,
) => number;
/** `bind` and `connect`: negative on failure. */
export const bind = libc.func('int bind(int fd, void *address, uint32_t length)') as AddressCall;
export const connect = libc.func(
  'int connect(int fd, void *address, uint32_t length)',
) as AddressCall;
const getsockopt = libc.func(
  'int getsockopt(int fd, int level, int option, void *value, void *length)',
) as (fd: number, level: number, option: number, value: Uint8Array, length: Uint8Array) => number;
const setsockopt = libc.func(
  'int setsockopt(int fd, int level, int option, void *value, uint32_t length)',
) as (fd: number, level: number, option: number, value: Uint8Array, length: number) => number;

const getsockname = libc.func('int getsockname(int fd, void *address, void *length)') as (
  fd: number,
  address: Uint8Array,
  length: Uint8Array,
) => number;

type AddressCall = (fd: number, address: Uint8Array, length: number) => number;

export const AF_INET = 2;
const AF_INET6 = 10;
export const SOL_SOCKET = 1;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
export const IPPROTO_IPV6 = 41;
export const IPPROTO_SCTP = 132;
export const IPV6_V6ONLY = 26;
const SOCKADDR_IN_BYTES = 16;
export const SOCKADDR_IN6_BYTES = 28;
const SOCK_CLOEXEC_NONBLOCK = 0x80000 | 0x800;
const EINVAL = 22;

export const SocketType = { stream: 1, datagram: 2, raw: 3 } as const;

/** Opens a socket for the address family of `name`; the caller closes it. Throws `SystemCallError`. */
export function openSocket(name: Uint8Array, type: number, protocol = 0): number {
  return checked('socket', socket(name[0] ?? 0, type | SOCK_CLOEXEC_NONBLOCK, protocol));
}

/** struct sockaddr_in or sockaddr_in6 of an address, with an optional %zone, and a port. */
export function socketAddress(address: string, port: number): Uint8Array {
  const [text = '', zone] = address.split('%', 2);
  const six = text.includes(':');
  const name = new Uint8Array(six ? SOCKADDR_IN6_BYTES : SOCKADDR_IN_BYTES);
  const fields = new DataView(name.buffer);
  fields.setUint16(0, six ? AF_INET6 : AF_INET, true);
  fields.setUint16(2, port);
  if (inetPton(six ? AF_INET6 : AF_INET, text, name.subarray(six ? 8 : 4)) !== 1) {
    throw new SystemCallError('inet_pton', EINVAL, address);
  }
  if (six && zone !== undefined) fields.setUint32(24, ifNameToIndex(zone), true);
  return name;
}

export const SIOCGIFMTU = 0x8921;
/** struct ifreq: the name of an interface, and a union with its MTU or an address. */
export const IFREQ_BYTES = 40;
export const IFNAMSIZ = 16;

/** The MTU of a network interface in bytes. Throws `SystemCallError`: ENODEV, EMFILE. */
export function interfaceMtu(name: string): number {
  const request = new Uint8Array(IFREQ_BYTES);
  new TextEncoder().encodeInto(name, request.subarray(0, IFNAMSIZ - 1));
  const fd = checked('socket', socket(AF_INET, SocketType.datagram | SOCK_CLOEXEC_NONBLOCK, 0));
  try {
    checked('ioctl', ioctl(fd, SIOCGIFMTU, request), name);
    return new DataView(request.buffer).getInt32(IFNAMSIZ, true);
  } finally {
    closeDescriptor(fd);
  }
}

/** The value of an option, shared by the calls below: none outlives its call. */
const optionBytes = new Uint8Array(4);
const optionValue = new DataView(optionBytes.buffer);
/** A socklen_t for it, which the kernel changes to what it wrote. */
const optionLength = new Uint8Array(4);

/** Sets an option to a 32-bit number. Throws `SystemCallError`. */
export function setOption(fd: number, level: number, option: number, value: number): void {
  optionValue.setUint32(0, value, true);
  setOptionBytes(fd, level, option, optionBytes);
}

/** Sets an option to a structure. Throws `SystemCallError`. */
export function setOptionBytes(fd: number, level: number, option: number, value: Uint8Array): void {
  if (setsockopt(fd, level, option, value, value.length) === 0) return;
  throw new SystemCallError('setsockopt', lastErrno(), `option ${option} of level ${level}`);
}

/** The value of a 32-bit option. Throws `SystemCallError`. */
export function getOption(fd: number, level: number, option: number): number {
  optionLength[0] = optionBytes.length;
  if (getsockopt(fd, level, option, optionBytes, optionLength) === 0) {
    return optionValue.getInt32(0, true);
  }
  throw new SystemCallError('getsockopt', lastErrno(), `option ${option} of level ${level}`);
}

/** Fills `value` with an option that is a structure; returns false on failure. */
export function getOptionBytes(
  fd: number,
  level: number,
  option: number,
  value: Uint8Array,
): boolean {
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, value.length, true);
  return getsockopt(fd, level, option, value, length) === 0;
}

/**
 * Sets the size of a buffer, `SO_SNDBUF` or `SO_RCVBUF`. Only an administrator (CAP_NET_ADMIN) may
 * exceed the system's limit. Throws `SystemCallError`.
 */
export function setBuffer(fd: number, option: number, bytes: number): void {
  try {
    setOption(fd, SOL_SOCKET, option === SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, bytes);
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    setOption(fd, SOL_SOCKET, option, bytes);
  }
}

/** The address that a socket is bound to. Throws `SystemCallError`. */
export function boundName(fd: number): DataView {
  const name = new Uint8Array(SOCKADDR_IN6_BYTES);
  const length = Uint8Array.of(SOCKADDR_IN6_BYTES, 0, 0, 0);
  checked('getsockname', getsockname(fd, name, length));
  return new DataView(name.buffer);
}
