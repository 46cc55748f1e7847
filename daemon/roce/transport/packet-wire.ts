/**
 * The interface between the wire of one queue pair and its host: packets go in, packets and the failure of
 * the queue pair come out.
 *
 * The host parses and routes packets, so each one names this queue pair and has a valid ICRC. The host polls
 * whenever it has room for a packet, which paces the sender. After a failure or an abort it polls until
 * nothing is left: the last answer is among these packets.
 */
import type { Micros } from '#base/time';
import type { ProgramWire } from '#daemon/rnic/ib-port';
import type { OutboundMessage, WireFailure } from '#daemon/rnic/wire-port';
import type { Packet } from '../wire/packet.ts';

/** Why a wire failed; `by` says which end found the error. For `QP.terminated`. */
export interface TransportFailure {
  readonly by: 'us' | 'peer';
  readonly failure: WireFailure;
}

export interface PacketWire extends ProgramWire {
  /**
   * Limits unacknowledged packets to `first`, to fewer after losses, and without to more, up to `most`: for a
   * network that drops packets. Call before the first packet. Wires without acknowledgments do not implement it.
   */
  pace?(first: number, most: number): void;
  // Inputs
  /**
   * Handles a packet for this queue pair. Its payload is in `bytes`, which must not change until
   * `handleInputEnd`. `grh`: the 40 bytes at the start of a datagram's receive.
   */
  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array, now: Micros, grh: Uint8Array): void;
  /** Ends a batch of packets; the host polls answers only afterwards. */
  handleInputEnd(now: Micros): void;
  /**
   * An injected fault: answers the request that is due with a NAK of this syndrome instead of
   * executing it. The wire fails if a NAK for that reason ends a connection. A wire that answers
   * nothing does not implement it.
   */
  refuse?(syndrome: number): void;
  // Outputs
  /**
   * Writes the next packet, from base header to padding, at `start`, which must have room for
   * `PACKET_BYTES_MAX`. Returns its length, or 0 if there is none now. The payload may be missing until
   * `endPolling`. `wholeBytes`: within a host, a packet may stand for several with this much payload in
   * all; then there is room for as much and `HEADERS_BYTES_MAX`, and `polledSpan` says for how many. `lends`: their payload may stay
   * in its memory, see `DeferringUser.lend`.
   */
  pollPacket(
    target: Uint8Array,
    start: number,
    now: Micros,
    wholeBytes?: number,
    lends?: boolean,
  ): number;
  /** `Packet.span` of the packet polled last. */
  readonly polledSpan: number;
  /**
   * Completes the payload of all packets polled since the last call. False if some of it is gone: the host
   * then drops all these packets.
   */
  endPolling(): boolean;
  /** Returns the failure of the wire once. */
  pollFailure(): TransportFailure | undefined;
  /** Destination of the last polled datagram; undefined if the path of the queue pair determines it. */
  readonly destination: OutboundMessage['address'];
  /** Throws `InvariantError`. Call at the end of a turn. */
  assertInvariants?(): void;
  /** How often packets were retransmitted after a timeout. */
  readonly timeouts: number;
  /** Datagrams dropped for their Q_Key; undefined for connections, which have none. */
  readonly badQkeys?: number;
}

/** More than the headers and padding of any packet: the longest have 60 bytes. */
export const HEADERS_BYTES_MAX = 64;
/** Length of the longest packet of a network. */
export const PACKET_BYTES_MAX = 4096 + HEADERS_BYTES_MAX;
