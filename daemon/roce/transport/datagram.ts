/**
 * The wire of datagrams (UD, IBTA 9.8.3): one packet per message, each with its own destination. Packets that
 * do not fit their receive or are not meant for the queue pair are dropped silently.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { QPState } from '#contract/verbs/enums';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import {
  AccessRefusal,
  type DeferringUser,
  OutboundKind,
  type OutboundMessage,
} from '#daemon/rnic/wire-port';
import { opcodeTraits, Service, serviceOf, Trait } from '../wire/opcode.ts';
import type { Packet } from '../wire/packet.ts';
import { addPsn } from '../wire/psn.ts';
import type { PacketWire } from './packet-wire.ts';
import { describeSegment, writeSegment } from './segment.ts';
import { UnacknowledgedWire } from './unacknowledged.ts';

/** A received datagram begins with its global route header, or with its IPv4 header in its place. */
const GRH_BYTES = 40;
/**
 * How many datagrams one poll may complete without a packet, such as ones that are too long: a queue of
 * nothing else must not delay the host.
 */
const DROPS_MAX = 64;
/** A Q_Key with this bit selects the queue pair's own (IBTA 10.2.5). */
const OWN_QKEY = 0x8000_0000;

export class DatagramWire extends UnacknowledgedWire implements PacketWire {
  badQkeys = 0;
  destination: OutboundMessage['address'] = undefined;
  readonly rqPsn = 0;
  readonly #mtuBytes: number;
  #qkey = 0;
  /** `message` is taken, and may wait for its payload. */
  #taken = false;
  #overBudget = false;

  /** `mtuBytes`: largest payload of the port. `qpn`: the sender's number that receivers see. */
  constructor(user: DeferringUser, qpn: number, mtuBytes: number) {
    super(user);
    this.#mtuBytes = mtuBytes;
    this.packet.sourceQpn = qpn;
  }

  /** At once if the last poll reached its limit. */
  nextDeadline(): Micros {
    return this.#overBudget && this.sendable ? 0 : NEVER;
  }

  assertInvariants(): void {
    if (this.outcome.stopped) return;
    assert(!this.#taken || this.ready, 'datagram taken before the queue pair is ready');
    assert(!this.waits || this.#taken, 'waits for payload without a message');
  }

  // Commands

  override modified(path: QPPath, state: QPState): void {
    this.#qkey = path.qkey >>> 0;
    super.modified(path, state);
  }

  handleDeadline(): void {
    this.#overBudget = false;
  }

  // Output

  pollPacket(target: Uint8Array, start: number): number {
    for (let drops = 0; drops < DROPS_MAX; drops += 1) {
      if (!this.sendable || this.waits) return 0;
      if (!this.#taken && !this.user.nextMessage(this.message)) return 0;
      this.#taken = true;
      const { kind, lengthBytes, address } = this.message;
      if (kind !== OutboundKind.send && kind !== OutboundKind.sendWithImmediate) {
        this.failHere('opcode not supported on UD queue pairs');
        return 0;
      }
      if (lengthBytes <= this.#mtuBytes && address !== undefined) {
        return this.#send(target, start);
      }
      this.#end();
    }
    this.#overBudget = true;
    return 0;
  }

  #send(target: Uint8Array, start: number): number {
    const message = this.message;
    const { slot, lengthBytes, qkey } = message;
    if (lengthBytes > 0 && !this.user.prepareGather(slot, 0, lengthBytes)) {
      this.waits = true;
      return 0;
    }
    const packet = this.packet;
    const outgoing = this.outgoing;
    outgoing.describe(message, this.sqPsn, this.#mtuBytes);
    describeSegment(packet, outgoing, 0, this.#mtuBytes, Service.ud);
    packet.destQpn = message.remoteQpn;
    packet.psn = this.sqPsn;
    packet.qkey = (qkey & OWN_QKEY) === 0 ? qkey : this.#qkey;
    const bytes = writeSegment(this.user, packet, slot, 0, target, start);
    if (bytes < 0) {
      this.failHere('local memory of a work request is gone');
      return 0;
    }
    this.destination = message.address;
    this.sqPsn = addPsn(this.sqPsn, 1);
    this.#taken = false;
    this.ended += 1;
    return bytes;
  }

  #end(): void {
    this.#taken = false;
    this.user.messageDone();
  }

  // Input

  /** Nothing to do: each packet is settled when it is handled. */
  handleInputEnd(): void {}

  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array, _now: Micros, grh: Uint8Array): void {
    const { opcode, qkey, payloadStart, payloadLength } = packet;
    if (!this.ready || this.outcome.stopped || serviceOf(opcode) !== Service.ud) return;
    if (qkey !== this.#qkey) {
      this.badQkeys += 1;
      return;
    }
    if (payloadLength > this.#mtuBytes) return;
    const user = this.user;
    let refusal = user.beginReceive();
    if (refusal === AccessRefusal.noBuffer) return;
    if (refusal === AccessRefusal.none) refusal = user.placeReceive(0, grh, 0, GRH_BYTES);
    if (refusal === AccessRefusal.none && payloadLength > 0) {
      refusal = user.placeReceive(GRH_BYTES, bytes, payloadStart, payloadLength);
    }
    if (refusal === AccessRefusal.none) refusal = user.inputEnded();
    if (refusal === AccessRefusal.none) refusal = this.#deliver(packet);
    if (refusal !== AccessRefusal.none) this.failHere('a datagram does not fit its receive');
  }

  #deliver(packet: Readonly<Packet>): AccessRefusal {
    const inbound = this.inbound;
    inbound.lengthBytes = GRH_BYTES + packet.payloadLength;
    inbound.sourceQpn = packet.sourceQpn;
    inbound.solicited = packet.solicited;
    inbound.hasImmediate = (opcodeTraits(packet.opcode) & Trait.immediate) !== 0;
    inbound.immediateLo = inbound.hasImmediate ? packet.immediate : 0;
    return this.user.completeReceive(inbound);
  }
}
