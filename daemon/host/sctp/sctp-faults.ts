/**
 * Applies the faults of a host to SCTP packets of its devices: loss, duplication, delay and reordering, which
 * SCTP must recover from. The carrier asks before a packet is sent, and when one was received.
 */
import type { TapLinkEnds } from '#contract/protocol/tap-records';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import { gidAddress } from '../host-addresses.ts';
import type { Alarm, HostClock } from '../links/network.ts';
import { firstStream } from './packet-gate.ts';
import type { CarriedPacket, PacketCarrier, PacketFilter } from './udp-carrier.ts';

/** Limit of held packets; more are lost, as in a network with full queues. */
const HELD_MAX_BYTES = 16 * 1024 * 1024;
/** How long a packet to reorder waits for one that overtakes it. */
const REORDER_MICROS = 10_000;

/** Interface of faults to their host. */
interface SctpFaultHost {
  /** The device that has the address, if it belongs to this host. */
  deviceAt(address: string): string | undefined;
  /** The queue pair of a stream of an association, or of the only stream, from its local end. */
  queuePairOf(
    ends: TapLinkEnds,
    streamId: number | undefined,
  ): { readonly qpn: number } | undefined;
}

interface HeldPacket {
  readonly packet: CarriedPacket;
  readonly copies: number;
  readonly reordered: boolean;
  /** Undefined once it is released. */
  alarm: Alarm | undefined;
}

export class SctpFaults implements PacketFilter {
  readonly #carrier: PacketCarrier;
  readonly #host: SctpFaultHost;
  readonly #clock: HostClock;
  #faults: readonly Fault[] = [];
  readonly #held = new Set<HeldPacket>();
  #heldBytes = 0;

  constructor(carrier: PacketCarrier, host: SctpFaultHost, clock: HostClock) {
    this.#carrier = carrier;
    this.#host = host;
    this.#clock = clock;
  }

  get active(): boolean {
    return this.#faults.length > 0 || this.#held.size > 0;
  }

  /** Replaces the faults; packets that removed ones hold are released. */
  setFaults(faults: readonly Fault[]): void {
    this.#faults = faults;
    for (const held of [...this.#held]) this.#release(held);
  }

  takes(packet: CarriedPacket): boolean {
    const { out, into } = this.#factsOf(packet);
    let dropped = false;
    let copies = 1;
    let delay = 0;
    let reordered = false;
    if (out !== undefined || into !== undefined) {
      for (const fault of this.#faults) {
        const sent = out !== undefined && fault.coversTraffic(out, 'out', undefined);
        const received = into !== undefined && fault.coversTraffic(into, 'in', undefined);
        if ((!sent && !received) || !fault.fires()) continue;
        const { kind, ms = 0 } = fault.spec;
        if (kind === 'drop') dropped = true;
        else if (kind === 'duplicate') copies += 1;
        else if (kind === 'delay') delay = Math.max(delay, ms * 1000);
        else if (kind === 'reorder') reordered = !this.#isOvertaking(packet);
      }
    }
    if (dropped) return true;
    if (delay > 0 || reordered) {
      this.#hold(packet, copies, reordered, reordered ? Math.max(delay, REORDER_MICROS) : delay);
      return true;
    }
    const overtaken = [...this.#held].filter((held) => held.reordered && isSameWay(held, packet));
    if (copies === 1 && overtaken.length === 0) return false;
    const passing = copyOf(packet);
    for (let copy = 0; copy < copies; copy += 1) this.#carrier.carry(passing);
    for (const held of overtaken) this.#release(held);
    return true;
  }

  /** True for the overtaking packet, which is not held itself. */
  #isOvertaking(packet: CarriedPacket): boolean {
    for (const held of this.#held) if (held.reordered && isSameWay(held, packet)) return true;
    return false;
  }

  #hold(packet: CarriedPacket, copies: number, reordered: boolean, delayMicros: number): void {
    const { length } = packet.sctp;
    if (this.#heldBytes + length > HELD_MAX_BYTES) return;
    const held: HeldPacket = { packet: copyOf(packet), copies, reordered, alarm: undefined };
    held.alarm = this.#clock.after(delayMicros, () => this.#release(held));
    this.#held.add(held);
    this.#heldBytes += length;
  }

  #release(held: HeldPacket): void {
    if (!this.#held.delete(held)) return;
    held.alarm?.cancel();
    this.#heldBytes -= held.packet.sctp.length;
    for (let copy = 0; copy < held.copies; copy += 1) this.#carrier.carry(held.packet);
  }

  /** Its ends as scopes of faults name them. A packet between two devices matches once, when it is sent. */
  #factsOf({ way, socket, peer, sctp }: CarriedPacket): {
    readonly out?: ConnectionFacts | undefined;
    readonly into?: ConnectionFacts | undefined;
  } {
    const ports = new DataView(sctp.buffer, sctp.byteOffset);
    const [source, destination] = [ports.getUint16(0), ports.getUint16(2)];
    const remote = gidAddress(peer);
    if (way === 'in') {
      if (this.#host.deviceAt(remote) !== undefined) return {};
      return { into: this.#factsAt(sctp, socket.address, destination, remote, source) };
    }
    return {
      out: this.#factsAt(sctp, socket.address, source, remote, destination),
      into: this.#factsAt(sctp, remote, destination, socket.address, source),
    };
  }

  /** Undefined if no device of this host has the address. */
  #factsAt(
    sctp: Uint8Array,
    localAddress: string,
    localPort: number,
    remoteAddress: string,
    remotePort: number,
  ): ConnectionFacts | undefined {
    const device = this.#host.deviceAt(localAddress);
    if (device === undefined) return undefined;
    const ends = { localAddress, localPort, remoteAddress, remotePort };
    const qpNum = this.#host.queuePairOf(ends, firstStream(sctp))?.qpn;
    return { device, qpNum, remote: { address: remoteAddress, port: remotePort } };
  }
}

function copyOf(packet: CarriedPacket): CarriedPacket {
  return { ...packet, peer: packet.peer.slice(), sctp: packet.sctp.slice() };
}

function isSameWay({ packet }: HeldPacket, { way, socket, peer, sctp }: CarriedPacket): boolean {
  if (packet.way !== way || packet.socket !== socket) return false;
  // Both ports, and the peer.
  for (let at = 0; at < 4; at += 1) if (packet.sctp[at] !== sctp[at]) return false;
  return packet.peer.every((byte, at) => byte === peer[at]);
}
