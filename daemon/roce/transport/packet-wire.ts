/**
 * The interface between the wire of one queue pair and its host: packets come in, packets and the
 * failure of the queue pair go out.
 *
 * The host parses and routes packets: what comes here names this queue pair and is undamaged. It
 * polls packets whenever it has room for one, which is how it paces a sender, and polls the rest
 * after a failure or an abort: the last answer is among them.
 */
import type { ProgramWire } from '../../rnic/ib-port.ts';
import type { Micros, OutboundMessage, WireFailure } from '../../rnic/wire-port.ts';
import type { Packet } from '../wire/packet.ts';

/** Why a wire failed; `by` says who found the fault. For `QP.terminated`. */
export interface TransportFailure {
  readonly by: 'us' | 'peer';
  readonly failure: WireFailure;
}

/** The wire of one queue pair. */
export interface PacketWire extends ProgramWire {
  /**
   * Packets go through a network that may lose them: from now on at most `windowPackets` are
   * unacknowledged, and fewer while packets get lost. Before the first packet only; a wire without
   * acknowledgments has none.
   */
  pace?(windowPackets: number): void;
  // Inputs
  /**
   * A packet for this queue pair; its payload is in `bytes`, which stay unchanged until
   * `handleInputEnd`. `grh` is the 40 bytes that the receive of a datagram begins with.
   */
  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array, now: Micros, grh: Uint8Array): void;
  /** No more packets for now; the host polls the answers to those that came only afterwards. */
  handleInputEnd(now: Micros): void;
  /**
   * Answers the request that is due with this syndrome of a NAK instead of carrying it out: an
   * injected fault. It fails where a NAK for that reason ends a connection. A wire that answers
   * nothing has none.
   */
  refuse?(syndrome: number): void;
  // Outputs
  /**
   * Writes the next packet, from its base header to its padding, at `start`, where there must be
   * room for `PACKET_BYTES_MAX`. Returns its length, or 0 when there is none now. Its payload may
   * be missing until `endPolling`.
   */
  pollPacket(target: Uint8Array, start: number, now: Micros): number;
  /**
   * The payload of all packets polled since the last call is there now. False when some of it is
   * gone: the host drops all these packets.
   */
  endPolling(): boolean;
  /** The failure of the wire, once. */
  pollFailure(): TransportFailure | undefined;
  /** Where the datagram polled last goes; undefined where the queue pair's own path says it. */
  readonly destination: OutboundMessage['address'];
  /** For the end of a turn. Throws `InvariantError` when the counts of a wire do not agree. */
  assertInvariants?(): void;
  /** How often packets were sent again because no answer came in time. */
  readonly timeouts: number;
  /** Datagrams dropped for their Q_Key; undefined for connections, which have none. */
  readonly badQkeys?: number;
}

/** Room for the longest packet: 4096 bytes of payload, 60 of headers. */
export const PACKET_BYTES_MAX = 4096 + 64;
