/**
 * Applies the faults of a host to its packets. The network asks for the fate of each packet and executes it.
 * Held packets are kept here, as copies.
 */
import { type Micros, NEVER } from '#base/time';
import type { FaultOpcode, FaultSyndrome } from '#contract/protocol/faults';
import { QPType } from '#contract/verbs/enums';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import type { Packet } from '#daemon/roce/wire/packet';
import { NakCode, nakSyndrome, rnrSyndrome } from '#daemon/roce/wire/syndrome';
import type { PacketConnection } from './packet-connection.ts';
import type { PacketArrival } from './udp-link.ts';

/** Limit of held packets; more are lost, as in a network with full queues. */
const HELD_MAX_BYTES = 16 * 1024 * 1024;
/** How long a packet to reorder waits for one that overtakes it. */
const REORDER_MICROS = 10_000;
/** Value of `PacketFate.answer`: deliver the packet. */
export const NO_ANSWER = -1;

const NAK_CODES: Readonly<Record<FaultSyndrome, NakCode>> = {
  'psn-sequence': NakCode.psnSequence,
  'invalid-request': NakCode.invalidRequest,
  'remote-access': NakCode.remoteAccess,
  'remote-operation': NakCode.remoteOperation,
};

/** The ends of a packet, as scopes of faults name them. */
export interface PacketFacts {
  /** The sender's view of the connection; undefined if the sender is on another host. */
  readonly out: ConnectionFacts | undefined;
  /** The receiver's view of the connection; undefined if the receiver is on another host. */
  readonly in: ConnectionFacts | undefined;
  /** The other end of a connection, if there is one. */
  readonly receiver: PacketConnection | undefined;
}

/** The effect of the faults on a packet. */
class PacketFate {
  dropped = false;
  /** Its ICRC is wrong. */
  damaged = false;
  /** How often it arrives. */
  copies = 1;
  /** Syndrome of the answer that its sender gets instead, or `NO_ANSWER`. */
  answer: number = NO_ANSWER;
  /** When it is delivered; 0 for now. */
  due: Micros = 0;
  /** It is delivered earlier if another packet of the flow overtakes it. */
  reordered = false;
}

/** The connection of this host that a packet belongs to, and its direction. */
interface PacketFlow {
  /** The sender, or the receiver of a packet from another host. */
  readonly connection: PacketConnection;
  /** Undefined for a packet of another host, which has an arrival instead. */
  readonly vector: AddressVector | undefined;
  readonly arrival: PacketArrival | undefined;
}

/** A held packet. */
export interface HeldPacket extends PacketFlow {
  readonly bytes: Uint8Array;
  readonly faults: readonly Fault[];
  readonly copies: number;
  readonly damaged: boolean;
  readonly reordered: boolean;
  due: Micros;
}

/** Executes a fault of a device or queue pair that a packet triggered. */
type FireFault = (fault: Fault, device: string, qpn: number | undefined) => void;

export class PacketFaults {
  readonly #fire: FireFault;
  #faults: readonly Fault[] | undefined;
  #held: HeldPacket[] = [];
  #heldBytes = 0;
  readonly #fate = new PacketFate();
  /** The faults that hold the packet whose fate is `#fate`. */
  #holders: Fault[] = [];

  constructor(fire: FireFault) {
    this.#fire = fire;
  }

  /** False if packets pass unchanged. */
  get active(): boolean {
    return this.#faults !== undefined || this.#held.length > 0;
  }

  /** Replaces the faults; packets that removed ones hold become due. True if there are any. */
  setFaults(faults: readonly Fault[] | undefined): boolean {
    this.#faults = faults;
    let due = false;
    for (const held of this.#held) {
      if (held.faults.every((fault) => faults?.includes(fault))) continue;
      held.due = 0;
      due = true;
    }
    return due;
  }

  /** When `poll` has a packet next. */
  nextDeadline(): Micros {
    let due: Micros = NEVER;
    for (const held of this.#held) due = Math.min(due, held.due);
    return due;
  }

  /** The fate of a packet; valid until the next call. */
  fateOf(
    facts: PacketFacts,
    flow: PacketFlow,
    packet: Readonly<Packet>,
    now: Micros,
  ): Readonly<PacketFate> {
    const fate = this.#fate;
    fate.dropped = false;
    fate.damaged = false;
    fate.copies = 1;
    fate.answer = NO_ANSWER;
    fate.due = 0;
    fate.reordered = false;
    this.#holders = [];
    const opcode = faultOpcode(packet);
    for (const fault of this.#faults ?? []) {
      const sent = facts.out !== undefined && fault.coversTraffic(facts.out, 'out', opcode);
      const received = facts.in !== undefined && fault.coversTraffic(facts.in, 'in', opcode);
      if (!sent && !received) continue;
      if (!this.#matches(fault, facts, packet) || !fault.fires()) continue;
      this.#apply(fault, facts, { flow, sent, now });
    }
    return fate;
  }

  /** Keeps a copy of the packet of the last `fateOf`. False if there is no room. */
  hold(flow: PacketFlow, packet: Uint8Array): boolean {
    if (this.#heldBytes + packet.length > HELD_MAX_BYTES) return false;
    const { copies, damaged, reordered, due } = this.#fate;
    const faults = this.#holders;
    const bytes = packet.slice();
    this.#held.push({ ...flow, bytes, faults, copies, damaged, reordered, due });
    this.#heldBytes += bytes.length;
    return true;
  }

  /** A packet passed: reordered packets of its flow are due. */
  passed(flow: PacketFlow, now: Micros): void {
    for (const held of this.#held) {
      if (held.reordered && isSameFlow(held, flow)) held.due = Math.min(held.due, now);
    }
  }

  /** The next packet that is due; undefined if there is none. */
  poll(now: Micros): HeldPacket | undefined {
    const index = this.#held.findIndex(({ due }) => due <= now);
    if (index < 0) return undefined;
    const [held] = this.#held.splice(index, 1);
    this.#heldBytes -= held?.bytes.length ?? 0;
    return held;
  }

  #matches(fault: Fault, facts: PacketFacts, packet: Readonly<Packet>): boolean {
    if (fault.place !== 'packet-request') return true;
    const { receiver } = facts;
    if (receiver?.qp.type !== QPType.rc || packet.psn !== receiver.rqPsn) return false;
    const traits = opcodeTraits(packet.opcode);
    const wanted = fault.spec.kind === 'rnr' ? Trait.request | Trait.starts : Trait.request;
    return (traits & wanted) === wanted;
  }

  #apply(
    fault: Fault,
    facts: PacketFacts,
    {
      flow,
      sent,
      now,
    }: { readonly flow: PacketFlow; readonly sent: boolean; readonly now: Micros },
  ): void {
    const fate = this.#fate;
    const { kind, ms = 0, syndrome = 'psn-sequence' } = fault.spec;
    switch (kind) {
      case 'drop':
        fate.dropped = true;
        return;
      case 'duplicate':
        fate.copies += 1;
        return;
      case 'corrupt-icrc':
        fate.damaged = true;
        return;
      case 'nak':
        fate.answer = nakSyndrome(NAK_CODES[syndrome]);
        return;
      case 'rnr':
        fate.answer = rnrSyndrome(facts.receiver?.minRnrTimer ?? 0);
        return;
      case 'delay':
        this.#hold(fault, now + ms * 1000);
        return;
      case 'reorder':
        // The overtaking packet is not held itself.
        if (this.#held.some((held) => held.reordered && isSameFlow(held, flow))) return;
        fate.reordered = true;
        this.#hold(fault, now + REORDER_MICROS);
        return;
      default: {
        const end = sent ? facts.out : facts.in;
        if (end !== undefined) this.#fire(fault, end.device, end.qpNum);
      }
    }
  }

  #hold(fault: Fault, due: Micros): void {
    this.#fate.due = Math.max(this.#fate.due, due);
    this.#holders.push(fault);
  }
}

function isSameFlow(a: PacketFlow, b: PacketFlow): boolean {
  return a.connection === b.connection && (a.arrival === undefined) === (b.arrival === undefined);
}

/** The opcode of the packet's message. */
function faultOpcode({ opcode }: Readonly<Packet>): FaultOpcode {
  const traits = opcodeTraits(opcode);
  if ((traits & Trait.send) !== 0) return (traits & Trait.ieth) === 0 ? 'send' : 'send-invalidate';
  if ((traits & Trait.write) !== 0) return 'write';
  if ((traits & Trait.readResponse) !== 0) return 'read-response';
  if ((traits & Trait.reth) !== 0) return 'read-request';
  if ((traits & Trait.atomicEth) !== 0) return 'atomic-request';
  return (traits & Trait.atomicAckEth) === 0 ? 'acknowledge' : 'atomic-response';
}
