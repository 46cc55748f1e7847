/** A socket of the UDP link: one for each address, and one for each received group. */
import type { QP } from '#daemon/rnic/queue-pair';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import { IcrcHeaders } from '#daemon/roce/wire/icrc';
import type { PacketPort } from './packet-port.ts';
import type { UdpSocket } from './udp-network.ts';

export interface LinkSocket {
  readonly udp: UdpSocket;
  /** The address, or the group. */
  readonly gid: Uint8Array;
  /** The ports that have the address, or the one that receives the group. */
  readonly ports: Set<PacketPort>;
  /** The queue pairs of the group, of all ports; undefined for an address. */
  readonly members: ReadonlySet<QP> | undefined;
  readonly headers: IcrcHeaders;
  readonly four: boolean;
}

/** Opens a socket. Throws what `open` throws. */
export function openSocket(
  { gid, port, members }: { gid: Uint8Array; port: PacketPort; members?: ReadonlySet<QP> },
  open: (onReadable: () => void) => UdpSocket,
  read: (socket: LinkSocket) => void,
): LinkSocket {
  const four = isIpv4Gid(gid);
  const socket: LinkSocket = {
    udp: open(() => read(socket)),
    gid: gid.slice(),
    ports: new Set([port]),
    members,
    headers: new IcrcHeaders(four),
    four,
  };
  return socket;
}
