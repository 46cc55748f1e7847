/** UDP as RoCE devices use it: the kernel's, or in a simulation another one. */
import type { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';

/** A socket at UDP port 4791 of an address, or of a group. Never blocks. */
export interface UdpSocket {
  /** True if it sends several datagrams as one message: `OutgoingBatch.join`. */
  readonly segments: boolean;
  /**
   * Sends datagrams from slot `first` on. Returns how many were accepted, or a negative errno if the first
   * message was not.
   */
  send(batch: OutgoingBatch, first: number): number;
  /** Receives pending messages. Returns their number, or a negative errno. */
  receive(batch: IncomingBatch): number;
  close(): void;
}

/** All methods throw `SystemCallError`. */
export interface UdpNetwork {
  /** Limit of a received message, which may have many datagrams. At least the longest datagram. */
  readonly messageBytes: number;
  /** `onReadable` is called in a separate turn whenever datagrams are pending. */
  open(address: string, onReadable: () => void): UdpSocket;
  /** A socket that receives only datagrams to a group, on the interfaces of the addresses `on`. */
  openGroup(group: string, on: readonly string[], onReadable: () => void): UdpSocket;
  /** The MTU in bytes of the route between two addresses. */
  routeMtu(source: string, destination: string): number;
}
