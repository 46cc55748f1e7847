/** `makeWire`: the wire of a queue pair by its type. */

import { QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import type { DeferringUser } from '../../rnic/wire-port.ts';
import { DatagramWire } from './datagram.ts';
import type { PacketWire } from './packet-wire.ts';
import { ReliableWire } from './reliable.ts';
import { UnreliableWire } from './unreliable.ts';

/** What a wire needs to know beside the attributes of its queue pair. */
export interface WireOptions {
  readonly type: QPType;
  readonly qpn: number;
  /** Payload that the port takes, bytes: the limit of a datagram. */
  readonly portMtuBytes: number;
  /** RC: packets that may be unacknowledged, 64 by default. A network that drops them wants few. */
  readonly windowPackets?: number;
}

/** The wire of a queue pair that enters RTR. */
export function makeWire(user: DeferringUser, options: WireOptions): PacketWire {
  const { type, qpn, portMtuBytes, windowPackets } = options;
  if (type === QPType.rc) return new ReliableWire(user, windowPackets);
  return type === QPType.uc ? new UnreliableWire(user) : new DatagramWire(user, qpn, portMtuBytes);
}
