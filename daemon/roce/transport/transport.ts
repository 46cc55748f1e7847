/** Creates a wire by the type of its queue pair. */
import { QPType } from '#contract/verbs/enums';
import type { DeferringUser } from '#daemon/rnic/wire-port';
import { DatagramWire } from './datagram.ts';
import type { PacketWire } from './packet-wire.ts';
import { ReliableWire } from './reliable.ts';
import { UnreliableWire } from './unreliable.ts';

/** Options of a wire, besides the attributes of its queue pair. */
export interface PacketWireOptions {
  readonly type: QPType;
  readonly qpn: number;
  /** Largest payload of the port in bytes: the limit of a datagram. */
  readonly portMtuBytes: number;
  /** RC: limit of unacknowledged packets, 64 by default. Use few on a lossy network. */
  readonly windowPackets?: number;
}

/** Creates the wire of a queue pair that enters RTR. */
export function makeWire(user: DeferringUser, options: PacketWireOptions): PacketWire {
  const { type, qpn, portMtuBytes, windowPackets } = options;
  if (type === QPType.rc) return new ReliableWire(user, windowPackets);
  return type === QPType.uc ? new UnreliableWire(user) : new DatagramWire(user, qpn, portMtuBytes);
}
