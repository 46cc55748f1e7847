/**
 * TCP calls that Node lacks: hold a port without listening, get the maximum segment size and the source
 * address of a route, and end a segment at the end of a message.
 */
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { closeDescriptor } from './descriptor.ts';
import {
  AF_INET,
  bind,
  boundName,
  connect,
  getOption,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  openSocket,
  SOCKADDR_IN6_BYTES,
  SOL_SOCKET,
  SocketType,
  setOption,
  socketAddress,
} from './internet-socket.ts';
import { type BytesCall, checked, errnoName, lastErrno, libc, type NumberCall } from './libc.ts';

const listen = libc.func('int listen(int fd, int backlog)') as NumberCall;
const setsockopt = libc.func(
  'int setsockopt(int fd, int level, int option, void *value, uint32_t length)',
) as (fd: number, level: number, option: number, value: Uint8Array, length: number) => number;
const sendAddress = libc.func(
  'int64_t send(int fd, void *bytes, uint64_t length, int flags)',
) as BytesCall;
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const SO_KEEPALIVE = 9;
const SO_LINGER = 13;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_MAXSEG = 2;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_USER_TIMEOUT = 18;
/** The kernel's own limits (MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL), and that of probes. */
const KEEPALIVE_SECONDS_MAX = 32_767;
const KEEPALIVE_PROBES_MAX = 127;
/** Milliseconds of TCP_USER_TIMEOUT, a signed number. */
const USER_TIMEOUT_MAX = 0x7fffffff;
const MSG_DONTWAIT = 0x40;
const MSG_EOR = 0x80;
const MSG_NOSIGNAL = 0x4000;
/** Any port except 0: the datagram socket is only routed, never used. */
const DISCARD_PORT = 9;
const EADDRINUSE = 98;

/**
 * A TCP socket bound to an address (IPv4, or IPv6 with an optional %zone) and port, 0 for a free one.
 * It neither listens nor connects, and keeps others from using the port while it is open. `v6Only`
 * says whether `::` excludes IPv4; default: the host's. The caller closes `fd`. Throws
 * `SystemCallError`: EADDRINUSE, EADDRNOTAVAIL, EACCES, EINVAL.
 */
export function bindTcp(
  address: string,
  port: number,
  v6Only?: boolean,
): { readonly fd: number; readonly port: number } {
  const name = socketAddress(address, port);
  const fd = openSocket(name, SocketType.stream);
  try {
    if (v6Only !== undefined && name.length === SOCKADDR_IN6_BYTES) {
      setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6Only ? 1 : 0);
    }
    const drawn = port === 0 ? bindFreePort(fd, name) : undefined;
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (drawn !== undefined) return { fd, port: drawn };
    checked('bind', bind(fd, name, name.length), `${address} port ${port}`);
    return { fd, port: port === 0 ? boundName(fd).getUint16(2) : port };
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}

/**
 * Draws before the kernel must search; with 9 of 10 ports in use, one search in 30 gets that far.
 */
const FREE_PORT_TRIES = 32;

/**
 * Binds to a free port drawn from the host's range (RFC 6056 §3.3.2), and returns it. Undefined: none
 * was found, nothing is bound. For port 0, the kernel tries ports one by one, half of them first. If
 * most of that half is in TIME_WAIT, after some 12,000 connections within a minute, its search takes
 * milliseconds; draws take microseconds. Call before setting SO_REUSEADDR: with it the kernel would return a port
 * in TIME_WAIT, from which a connection to the same peer fails.
 */
function bindFreePort(fd: number, name: Uint8Array): number | undefined {
  freePorts ??= freePortRange();
  if (freePorts === 'kernel') return undefined;
  const { low, high } = freePorts;
  const fields = new DataView(name.buffer);
  for (let tries = 0; tries < FREE_PORT_TRIES; tries++) {
    const port = randomInt(low, high + 1);
    fields.setUint16(2, port);
    if (bind(fd, name, name.length) === 0) return port;
    if (lastErrno() !== EADDRINUSE) break;
  }
  fields.setUint16(2, 0);
  return undefined;
}

/** Range of free ports, once known; 'kernel': the kernel must choose. */
let freePorts: { readonly low: number; readonly high: number } | 'kernel' | undefined;

function freePortRange(): { readonly low: number; readonly high: number } | 'kernel' {
  const folder = '/proc/sys/net/ipv4';
  try {
    // Only the kernel knows which ports an administrator has reserved.
    const reserved = readFileSync(`${folder}/ip_local_reserved_ports`, 'utf8').trim();
    const range = readFileSync(`${folder}/ip_local_port_range`, 'utf8');
    const [, low, high] = /^(\d+)\s+(\d+)$/.exec(range.trim()) ?? [];
    if (reserved !== '' || low === undefined || high === undefined) return 'kernel';
    return { low: Number(low), high: Number(high) };
  } catch {
    return 'kernel';
  }
}

/**
 * Makes a bound socket listen; accepted sockets have TCP_NODELAY. Throws `SystemCallError` (EADDRINUSE:
 * another socket listens there).
 */
export function listenTcp(fd: number, backlog: number): void {
  // Inherited by accepted sockets on Linux.
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  checked('listen', listen(fd, backlog));
}

/**
 * The local address, as text, from which the host reaches `destination`; with `source`, tries only that
 * one. Sends nothing. Throws `SystemCallError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
 */
export function routeSource(destination: string, source: string | undefined): string {
  const name = socketAddress(destination, DISCARD_PORT);
  const fd = openSocket(name, SocketType.datagram);
  try {
    if (source !== undefined) {
      const own = socketAddress(source, 0);
      checked('bind', bind(fd, own, own.length), source);
    }
    checked('connect', connect(fd, name, name.length), destination);
    return source ?? addressText(boundName(fd));
  } finally {
    closeDescriptor(fd);
  }
}

/**
 * Bytes that one segment of a connected TCP socket holds (TCP_MAXSEG: without options, as agreed by
 * both ends). Throws `SystemCallError`.
 */
export function maximumSegmentBytes(fd: number): number {
  return getOption(fd, IPPROTO_TCP, TCP_MAXSEG);
}

/**
 * The errno name of a pending error of `fd` (SO_ERROR); reading it clears it. Undefined if there is
 * none. Throws `SystemCallError`.
 */
export function pendingError(fd: number): string | undefined {
  const errno = getOption(fd, SOL_SOCKET, SO_ERROR);
  return errno === 0 ? undefined : errnoName(errno);
}

/**
 * Makes closing `fd` reset its connection: bytes not yet sent are dropped and the peer sees an
 * RST. Throws `SystemCallError`.
 */
export function resetOnClose(fd: number): void {
  // struct linger { int on = 1; int seconds = 0; }
  const linger = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);
  checked('setsockopt SO_LINGER', setsockopt(fd, SOL_SOCKET, SO_LINGER, linger, linger.length));
}

/**
 * Makes the kernel check that the peer of a connected socket is alive: after `idleSeconds` of silence
 * it sends up to `probes` probes, `intervalSeconds` apart. Keepalive sends none while data is
 * unacknowledged, for which the kernel's default timeout is a quarter of an hour; that data gets as
 * long as all probes together. That timeout ends the probes, too, whatever TCP_KEEPCNT says. Values beyond the
 * kernel's limits are clamped. Throws `SystemCallError`.
 */
export function keepAlive(
  fd: number,
  idleSeconds: number,
  intervalSeconds: number,
  probes: number,
): void {
  const idle = bounded(idleSeconds, KEEPALIVE_SECONDS_MAX);
  const interval = bounded(intervalSeconds, KEEPALIVE_SECONDS_MAX);
  const count = bounded(probes, KEEPALIVE_PROBES_MAX);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  const timeoutMs = (idle + interval * count) * 1000;
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, Math.min(timeoutMs, USER_TIMEOUT_MAX));
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

function bounded(value: number, max: number): number {
  return Math.min(Math.max(Math.ceil(value), 1), max);
}

/**
 * Writes bytes at once and ends the segment after them (MSG_EOR): nothing written later joins it.
 * Returns the number of bytes accepted, perhaps fewer, or a negative errno.
 */
export function sendSegment(fd: number, bytes: Uint8Array): number {
  const sent = sendAddress(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR);
  return sent < 0 ? -lastErrno() : sent;
}

/** The address in a struct sockaddr as text, IPv6 with all its groups. */
function addressText(name: DataView): string {
  if (name.getUint16(0, true) === AF_INET) {
    return [4, 5, 6, 7].map((at) => name.getUint8(at)).join('.');
  }
  const groups = [0, 2, 4, 6, 8, 10, 12, 14].map((at) => name.getUint16(8 + at).toString(16));
  return groups.join(':');
}
