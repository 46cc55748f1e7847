/** A socket of the UDP link: one for each address, and one for each received group. */
import type { QP } from '#daemon/rnic/queue-pair';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import { IcrcHeaders } from '#daemon/roce/wire/icrc';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { unreserved } from '#native-bridge/libc/descriptor-limit';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import type { PacketPort } from './packet-port.ts';

/** Requested size; the kernel limits it to net.core.rmem_max. */
export const BUFFER_BYTES = 4_194_304;

export interface LinkSocket {
  readonly fd: number;
  /** If true, another file may have the descriptor. */
  closed: boolean;
  readonly watch: DescriptorWatch;
  /** The address, or the group. */
  readonly gid: Uint8Array;
  /** The ports that have the address, or the one that receives the group. */
  readonly ports: Set<PacketPort>;
  /** The queue pairs of the group, of all ports; undefined for an address. */
  readonly members: ReadonlySet<QP> | undefined;
  readonly headers: IcrcHeaders;
  readonly four: boolean;
}

/** Watches a socket. Throws `SystemCallError` EMFILE, and closes it, if there are no free descriptors. */
export function watchSocket(
  opened: number,
  { gid, port, members }: { gid: Uint8Array; port: PacketPort; members?: ReadonlySet<QP> },
  read: (socket: LinkSocket) => void,
): LinkSocket {
  const fd = unreserved('socket', opened);
  const four = isIpv4Gid(gid);
  const socket: LinkSocket = {
    fd,
    closed: false,
    watch: watchDescriptor(fd, () => read(socket)),
    gid: gid.slice(),
    ports: new Set([port]),
    members,
    headers: new IcrcHeaders(four),
    four,
  };
  // Other sockets and clients keep the host alive; this one does not.
  socket.watch.hold(false);
  return socket;
}

export function closeSocket(socket: LinkSocket): void {
  socket.closed = true;
  socket.watch.close();
  closeDescriptor(socket.fd);
}
