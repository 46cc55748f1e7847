/**
 * UDP sockets for datagrams with a known IP header: not fragmented and, over IPv4, with identification
 * 0. Linux sends such headers from an unconnected socket that forbids fragments.
 */
import { closeDescriptor } from './descriptor.ts';
import {
  AF_INET,
  bind,
  getOption,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  ifNameToIndex,
  openSocket,
  SO_RCVBUF,
  SO_SNDBUF,
  SOL_SOCKET,
  SocketType,
  setBuffer,
  setOption,
  setOptionBytes,
  socketAddress,
} from './internet-socket.ts';
import { checked, SystemCallError } from './libc.ts';

const SO_REUSEADDR = 2;
const IPPROTO_IP = 0;
const IP_MULTICAST_IF = 32;
const IP_ADD_MEMBERSHIP = 35;
const IP_MULTICAST_ALL = 49;
const IPV6_MULTICAST_IF = 17;
const IPV6_JOIN_GROUP = 20;
const IPV6_MULTICAST_ALL = 29;
/** struct ip_mreqn: group, local address, index of an interface. */
const MREQN_BYTES = 12;
/** struct ipv6_mreq: group, index of an interface. */
const MREQ6_BYTES = 20;
/** Offsets of the address in struct sockaddr_in and sockaddr_in6. */
const ADDRESS_AT = { four: 4, six: 8 } as const;
const [ADDRESS_BYTES, ADDRESS6_BYTES] = [4, 16];
const IP_RECVTTL = 12;
const IP_RECVTOS = 13;
const IP_MTU_DISCOVER = 10;
const IPV6_MTU_DISCOVER = 23;
const IPV6_RECVHOPLIMIT = 51;
const IPV6_RECVTCLASS = 66;
const IPPROTO_UDP = 17;
const UDP_NO_CHECK6_RX = 102;
const UDP_SEGMENT = 103;
const UDP_GRO = 104;
/**
 * Datagrams are never fragmented; sending one that exceeds the interface's MTU fails. Path MTUs from
 * ICMP messages are ignored, since they can be forged.
 */
const PMTUDISC_PROBE = 3;

interface UdpSocket {
  readonly fd: number;
  /** Receive buffer as the kernel counts it, with its own overhead. */
  readonly receiveBufferBytes: number;
}

/**
 * A socket bound to an address and port; received datagrams come with type of service and time to
 * live. The kernel grants buffers of `bufferBytes`, or less: `net.core.rmem_max`. Over IPv6, datagrams
 * without a checksum are accepted, too: RoCE has its own. The caller closes `fd`. Throws
 * `SystemCallError`: EADDRINUSE, EADDRNOTAVAIL, EACCES, EINVAL.
 */
export function openUdp(address: string, port: number, bufferBytes: number): UdpSocket {
  return open(address, port, bufferBytes, () => undefined);
}

/**
 * Lets a socket receive several datagrams of a flow as one message, see `IncomingBatch.segmentBytesOf`. Returns
 * true if it can also send them so, see `OutgoingBatch.join`. Linux can since 5.0.
 */
export function useSegments(fd: number): boolean {
  try {
    setOption(fd, IPPROTO_UDP, UDP_GRO, 1);
    return getOption(fd, IPPROTO_UDP, UDP_SEGMENT) === 0;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    return false;
  }
}

interface LocalAddress {
  readonly address: string;
  readonly interfaceName: string;
}

/**
 * A socket that receives only datagrams to `port` of a multicast group on the interfaces of these
 * addresses; several sockets may receive the same group. Otherwise like `openUdp`. Throws
 * `SystemCallError` also if no interface can join: ENODEV, EADDRNOTAVAIL, ENOBUFS.
 */
export function openUdpGroup(
  group: string,
  port: number,
  on: readonly LocalAddress[],
  bufferBytes: number,
): UdpSocket {
  return open(group, port, bufferBytes, (fd, name) => {
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (name[0] === AF_INET) setOption(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    else setOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    let joined = 0;
    let failure: unknown;
    for (const local of on) {
      try {
        join(fd, name, local);
        joined += 1;
      } catch (error) {
        // The socket has already joined on this interface, for another address.
        if (error instanceof SystemCallError && error.code === 'EADDRINUSE') continue;
        failure = error;
      }
    }
    if (joined === 0) throw failure;
  });
}

function join(fd: number, group: Uint8Array, { address, interfaceName }: LocalAddress): void {
  if (group[0] === AF_INET) {
    const request = new Uint8Array(MREQN_BYTES);
    request.set(group.subarray(ADDRESS_AT.four, ADDRESS_AT.four + ADDRESS_BYTES));
    const local = socketAddress(address, 0);
    request.set(local.subarray(ADDRESS_AT.four, ADDRESS_AT.four + ADDRESS_BYTES), ADDRESS_BYTES);
    setOptionBytes(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, request);
    return;
  }
  const request = new Uint8Array(MREQ6_BYTES);
  request.set(group.subarray(ADDRESS_AT.six, ADDRESS_AT.six + ADDRESS6_BYTES));
  const index = ifNameToIndex(interfaceName);
  new DataView(request.buffer).setUint32(ADDRESS6_BYTES, index, true);
  setOptionBytes(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, request);
}

/**
 * Makes the socket's datagrams to multicast groups leave through the interface of this address, with
 * one hop by default, and loop back to sockets of this host. Throws `SystemCallError`.
 */
export function sendGroupsBy(fd: number, { address, interfaceName }: LocalAddress): void {
  const name = socketAddress(address, 0);
  if (name[0] === AF_INET) {
    const own = name.slice(ADDRESS_AT.four, ADDRESS_AT.four + ADDRESS_BYTES);
    setOptionBytes(fd, IPPROTO_IP, IP_MULTICAST_IF, own);
  } else {
    setOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, ifNameToIndex(interfaceName));
  }
}

function open(
  address: string,
  port: number,
  bufferBytes: number,
  prepare: (fd: number, name: Uint8Array) => void,
): UdpSocket {
  const name = socketAddress(address, port);
  const fd = openSocket(name, SocketType.datagram);
  try {
    prepare(fd, name);
    if (name[0] === AF_INET) {
      setOption(fd, IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE);
      setOption(fd, IPPROTO_IP, IP_RECVTOS, 1);
      setOption(fd, IPPROTO_IP, IP_RECVTTL, 1);
    } else {
      setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
      setOption(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE);
      setOption(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
      setOption(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
      setOption(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
    }
    setBuffer(fd, SO_RCVBUF, bufferBytes);
    setBuffer(fd, SO_SNDBUF, bufferBytes);
    checked('bind', bind(fd, name, name.length), `${address} port ${port}`);
    return { fd, receiveBufferBytes: getOption(fd, SOL_SOCKET, SO_RCVBUF) };
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}
