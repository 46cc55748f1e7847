/**
 * The MTU of the route between two addresses: that of the outgoing interface.
 *
 * Not IP_MTU: that includes path MTUs learned from ICMP messages, which anyone on the network can
 * forge.
 */
import { closeDescriptor, ioctl, sendNow } from './descriptor.ts';
import {
  AF_INET,
  IFNAMSIZ,
  IFREQ_BYTES,
  openSocket,
  SIOCGIFMTU,
  SocketType,
  socketAddress,
} from './internet-socket.ts';
import { type BytesCall, checked, libc, SystemCallError } from './libc.ts';

const recv = libc.func(
  'int64_t recv(int fd, void *bytes, uint64_t length, int flags)',
) as BytesCall;

const AF_NETLINK = 16;
const SIOCGIFNAME = 0x8910;
/** A request and its reply (rtnetlink(7)). */
const RTM_GETROUTE = 26;
const NLM_F_REQUEST = 1;
const NLMSG_ERROR = 2;
/** struct nlmsghdr, followed by struct rtmsg with the type of the route, or by an errno. */
const [RTMSG_AT, TYPE_AT, ATTRIBUTES_AT, ERROR_AT] = [16, 23, 28, 16];
const ATTRIBUTE_HEADER_BYTES = 4;
const Attribute = { destination: 1, source: 2, outInterface: 4 } as const;
/** Types of usable routes: to other hosts, to this one. */
const RouteType = { unicast: 1, local: 2 } as const;
const REPLY_BYTES = 4096;
const ENETUNREACH = 101;
/** Offsets of the address in struct sockaddr_in and sockaddr_in6. */
const [ADDRESS_AT, ADDRESS6_AT] = [4, 8];
const [ADDRESS_BYTES, ADDRESS6_BYTES] = [4, 16];

/**
 * The MTU in bytes, including IP headers. Sends nothing to the network. Throws `SystemCallError`:
 * ENETUNREACH, also for a source that this host lacks; EHOSTUNREACH, EINVAL, EMFILE.
 */
export function routeMtu(source: string, destination: string): number {
  const fd = openSocket(Uint8Array.of(AF_NETLINK), SocketType.raw);
  try {
    const request = routeRequest(source, destination);
    const sent = sendNow(fd, request);
    if (sent < 0) throw new SystemCallError('send', -sent, 'NETLINK_ROUTE');
    const reply = new Uint8Array(REPLY_BYTES);
    const length = checked('recv', recv(fd, reply, reply.length, 0), 'NETLINK_ROUTE');
    return mtuOf(fd, outInterface(new DataView(reply.buffer, 0, length), destination));
  } finally {
    closeDescriptor(fd);
  }
}

function routeRequest(source: string, destination: string): Uint8Array {
  const ends = [destination, source].map(addressOf);
  const [{ family = 0, bytes = new Uint8Array(0) } = {}] = ends;
  const attributeBytes = ATTRIBUTE_HEADER_BYTES + bytes.length;
  const request = new Uint8Array(ATTRIBUTES_AT + ends.length * attributeBytes);
  const fields = new DataView(request.buffer);
  fields.setUint32(0, request.length, true);
  fields.setUint16(4, RTM_GETROUTE, true);
  fields.setUint16(6, NLM_F_REQUEST, true);
  const bits = 8 * bytes.length;
  request.set([family, bits, bits], RTMSG_AT);
  [Attribute.destination, Attribute.source].forEach((type, index) => {
    const at = ATTRIBUTES_AT + index * attributeBytes;
    fields.setUint16(at, attributeBytes, true);
    fields.setUint16(at + 2, type, true);
    request.set(ends[index]?.bytes ?? [], at + ATTRIBUTE_HEADER_BYTES);
  });
  return request;
}

function addressOf(address: string): { readonly family: number; readonly bytes: Uint8Array } {
  const name = socketAddress(address, 0);
  const four = name[0] === AF_INET;
  const at = four ? ADDRESS_AT : ADDRESS6_AT;
  const bytes = name.subarray(at, at + (four ? ADDRESS_BYTES : ADDRESS6_BYTES));
  return { family: name[0] ?? 0, bytes };
}

/** The index of the interface in a reply. */
function outInterface(reply: DataView, destination: string): number {
  if (reply.getUint16(4, true) === NLMSG_ERROR) {
    throw new SystemCallError('route', -reply.getInt32(ERROR_AT, true), destination);
  }
  const type = reply.getUint8(TYPE_AT);
  const leads = type === RouteType.unicast || type === RouteType.local;
  for (let at = ATTRIBUTES_AT; leads && at + ATTRIBUTE_HEADER_BYTES < reply.byteLength; ) {
    const attribute = reply.getUint16(at + 2, true);
    if (attribute === Attribute.outInterface) {
      return reply.getUint32(at + ATTRIBUTE_HEADER_BYTES, true);
    }
    at += (Math.max(reply.getUint16(at, true), ATTRIBUTE_HEADER_BYTES) + 3) & ~3;
  }
  throw new SystemCallError('route', ENETUNREACH, destination);
}

function mtuOf(fd: number, index: number): number {
  const request = new Uint8Array(IFREQ_BYTES);
  const fields = new DataView(request.buffer);
  fields.setInt32(IFNAMSIZ, index, true);
  checked('ioctl', ioctl(fd, SIOCGIFNAME, request), 'SIOCGIFNAME');
  checked('ioctl', ioctl(fd, SIOCGIFMTU, request), 'SIOCGIFMTU');
  return fields.getInt32(IFNAMSIZ, true);
}
