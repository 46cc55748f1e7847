/** A socket of the UDP link: one for each address, and one for each group that a port hears. */
import type { QP } from '#daemon/rnic/queue-pair';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import { IcrcHeaders } from '#daemon/roce/wire/icrc';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { unreserved } from '#native-bridge/libc/descriptor-limit';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import type { PacketPort } from './packet-port.ts';

/** Asked for; the kernel grants what an administrator allows (net.core.rmem_max). */
export const BUFFER_BYTES = 4_194_304;

export interface LinkSocket {
  readonly fd: number;
  /** Its descriptor may be another file's. */
  closed: boolean;
  readonly watch: DescriptorWatch;
  /** Of the address, or of the group. */
  readonly gid: Uint8Array;
  /** The ports that have the address, or the one that hears the group. */
  readonly ports: Set<PacketPort>;
  /** The queue pairs of the group, of all ports; undefined for an address. */
  readonly members: ReadonlySet<QP> | undefined;
  readonly headers: IcrcHeaders;
  readonly four: boolean;
}

/** Watches a socket. Throws `SystemCallError` EMFILE, and closes it, if descriptors are short. */
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
  // A host lives as long as its sockets and clients; this does not keep it alive.
  socket.watch.hold(false);
  return socket;
}

/** Of no use any more. */
export function closeSocket(socket: LinkSocket): void {
  socket.closed = true;
  socket.watch.close();
  closeDescriptor(socket.fd);
}
