/** The kernel's UDP sockets, for packets to and from other hosts. */
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import type { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { unreserved } from '#native-bridge/libc/descriptor-limit';
import { SystemCallError } from '#native-bridge/libc/libc';
import { routeMtu } from '#native-bridge/libc/route-mtu';
import { openUdp, openUdpGroup, sendGroupsBy, useSegments } from '#native-bridge/libc/udp-socket';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import { interfaceOf } from '../host-addresses.ts';
import type { UdpNetwork, UdpSocket } from './udp-network.ts';

/** Requested size; the kernel limits it to net.core.rmem_max. */
const BUFFER_BYTES = 4_194_304;
const EBADF = 9;

export const KERNEL_UDP: UdpNetwork = {
  messageBytes: 65_536,
  open(address, onReadable) {
    const { fd } = openUdp(address, ROCE_PORT, BUFFER_BYTES);
    sendGroups(fd, address);
    return new KernelSocket(fd, onReadable);
  },
  openGroup(group, on, onReadable) {
    const locals = on.map((address) => ({ address, interfaceName: interfaceOf(address) }));
    return new KernelSocket(openUdpGroup(group, ROCE_PORT, locals, BUFFER_BYTES).fd, onReadable);
  },
  routeMtu,
};

class KernelSocket implements UdpSocket {
  readonly segments: boolean;
  readonly #fd: number;
  readonly #watch: DescriptorWatch;
  /** If true, another file may have the descriptor. */
  #closed = false;

  /** Throws `SystemCallError` EMFILE, and closes the socket, if there are no free descriptors. */
  constructor(opened: number, onReadable: () => void) {
    this.#fd = unreserved('socket', opened);
    this.segments = useSegments(this.#fd);
    this.#watch = watchDescriptor(this.#fd, onReadable);
    // Other sockets and clients keep the host alive; this one does not.
    this.#watch.hold(false);
  }

  send(batch: OutgoingBatch, first: number): number {
    return this.#closed ? -EBADF : batch.send(this.#fd, first);
  }

  receive(batch: IncomingBatch): number {
    return batch.receive(this.#fd);
  }

  close(): void {
    this.#closed = true;
    this.#watch.close();
    closeDescriptor(this.#fd);
  }
}

/** Sends multicast through the interface of the socket's address, in spite of routes. */
function sendGroups(fd: number, address: string): void {
  try {
    sendGroupsBy(fd, { address, interfaceName: interfaceOf(address) });
  } catch (error) {
    // An address without an interface: the kernel chooses one when it sends.
    if (!(error instanceof SystemCallError)) throw error;
  }
}
