/**
 * UDP sockets for datagrams whose IP header the program knows: without a fragment and, over IPv4, with
 * identification 0. Linux sends that from a socket that is not connected and forbids fragments.
 */
import { closeDescriptor } from './descriptor.ts';
import {
  AF_INET,
  bind,
  connect,
  getOption,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  openSocket,
  SOL_SOCKET,
  SocketType,
  setOption,
  socketAddress,
} from './internet-socket.ts';
import { checked, SystemCallError } from './libc.ts';

const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const IPPROTO_IP = 0;
const IP_RECVTTL = 12;
const IP_RECVTOS = 13;
const IP_MTU_DISCOVER = 10;
const IP_MTU = 14;
const IPV6_MTU_DISCOVER = 23;
const IPV6_MTU = 24;
const IPV6_RECVHOPLIMIT = 51;
const IPV6_RECVTCLASS = 66;
const IPPROTO_UDP = 17;
const UDP_NO_CHECK6_RX = 102;
/** Datagrams are never fragmented; ones that are too long are refused. */
const PMTUDISC_DO = 2;

/** A bound socket. */
interface UdpSocket {
  readonly fd: number;
  /** Room for datagrams that wait to be read, as the kernel counts it, with its own overhead. */
  readonly receiveBufferBytes: number;
}

/**
 * A socket bound to an address and port; what is received has type of service and time to live beside
 * it. The kernel grants buffers of `bufferBytes`, or less: `net.core.rmem_max`. Over IPv6, a datagram
 * without a checksum is taken too: its reader has one of its own. The caller closes `fd`. Throws
 * `SystemCallError`: EADDRINUSE, EADDRNOTAVAIL, EACCES, EINVAL.
 */
export function openUdp(address: string, port: number, bufferBytes: number): UdpSocket {
  const name = socketAddress(address, port);
  const fd = openSocket(name, SocketType.datagram);
  try {
    if (name[0] === AF_INET) {
      setOption(fd, IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_DO);
      setOption(fd, IPPROTO_IP, IP_RECVTOS, 1);
      setOption(fd, IPPROTO_IP, IP_RECVTTL, 1);
    } else {
      setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
      setOption(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_DO);
      setOption(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
      setOption(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
      setOption(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
    }
    setBuffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, bufferBytes);
    setBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, bufferBytes);
    checked('bind', bind(fd, name, name.length), `${address} port ${port}`);
    return { fd, receiveBufferBytes: getOption(fd, SOL_SOCKET, SO_RCVBUF) };
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}

/** Only an administrator may have more than the limit for all (CAP_NET_ADMIN). */
function setBuffer(fd: number, forced: number, asked: number, bytes: number): void {
  try {
    setOption(fd, SOL_SOCKET, forced, bytes);
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    setOption(fd, SOL_SOCKET, asked, bytes);
  }
}

/**
 * The MTU of the path from a local address to `destination` as the kernel knows it, in bytes with IP
 * headers. Sends nothing. Throws `SystemCallError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
 */
export function pathMtuOf(source: string, destination: string, port: number): number {
  const name = socketAddress(destination, port);
  const fd = openSocket(name, SocketType.datagram);
  try {
    const own = socketAddress(source, 0);
    checked('bind', bind(fd, own, own.length), source);
    checked('connect', connect(fd, name, name.length), destination);
    return name[0] === AF_INET
      ? getOption(fd, IPPROTO_IP, IP_MTU)
      : getOption(fd, IPPROTO_IPV6, IPV6_MTU);
  } finally {
    closeDescriptor(fd);
  }
}
