/** Compares the counters of a host's ports with those of the network. */
import type { Fault } from '#daemon/faults/fault';
import type { PacketConnection } from '#daemon/host/roce/packet-connection';
import type { RoceCounters } from '#daemon/host/roce/roce-counters';
import { must } from '../rules.ts';
import type { UdpHost } from './datagram-network.ts';

/** Faults that change how often a packet counts: lost or answered instead, or repeated. */
const LOSING = ['drop', 'nak', 'rnr'] as const;
const REPEATING = ['duplicate'] as const;
const DAMAGING = ['corrupt-icrc'] as const;
/** Further faults of packets, which may meet these. */
const HOLDING = ['delay', 'reorder'] as const;
/** Destination of multicast. */
export const GROUP_QPN = 0xff_ffff;
const OF_PACKETS: readonly string[] = [...LOSING, ...REPEATING, ...DAMAGING, ...HOLDING];

export class PacketAccounts {
  /** The counters cannot be predicted. */
  open = false;
  readonly #faults: Fault[] = [];
  /** Two faults may have met at one packet. */
  #met = false;
  /** Copies of multicast that queue pairs got from their host, and from others. */
  #copiesWithin = 0;
  #copiesArrived = 0;
  /** The most members of one group on one device. */
  #membersMax = 0;

  get faulted(): boolean {
    return this.#faults.length > 0;
  }

  get grouped(): boolean {
    return this.#membersMax > 0;
  }

  /** `active`: the host's faults. */
  noteFault(fault: Fault, active: readonly Fault[]): void {
    this.#faults.push(fault);
    const met = active.filter(({ spec }) => OF_PACKETS.includes(spec.kind));
    this.#met ||= met.length > 1;
  }

  noteMembers(count: number): void {
    this.#membersMax = Math.max(this.#membersMax, count);
  }

  /** Counts the copies of multicast that a queue pair gets. */
  watch(wire: PacketConnection): void {
    const handle = wire.handlePacket.bind(wire);
    wire.handlePacket = (from, packet, ...rest) => {
      if (packet.destQpn === GROUP_QPN) {
        if (from === undefined) this.#copiesArrived += 1;
        else this.#copiesWithin += 1;
      }
      handle(from, packet, ...rest);
    };
  }

  /**
   * Packets that ports sent and the network did not get must have stayed on the host, as did packets that ports
   * received and no socket read.
   */
  check(name: string, ports: readonly Readonly<RoceCounters>[], udp: UdpHost): void {
    if (this.open) return;
    let missing = udp.read - udp.sent;
    let [overShare, icrcErrors] = [0, 0];
    for (const counters of ports) {
      missing += counters.sentPackets - counters.undeliverable;
      missing -= counters.receivedPackets + counters.malformed + counters.icrcErrors;
      missing -= counters.badPkeys + counters.unexpected + counters.overShare;
      overShare += counters.overShare;
      icrcErrors += counters.icrcErrors;
    }
    missing -= udp.echoes - this.#copiesWithin;
    // A datagram of another host counts once for each member that got it.
    const copies = this.#copiesArrived;
    const datagrams = this.#membersMax > 1 ? Math.ceil(copies / this.#membersMax) : copies;
    const [lost, repeated] = [this.#fired(LOSING), this.#fired(REPEATING)];
    const most = this.#met ? lost : lost - repeated;
    let least = (this.#met ? -repeated : most) + datagrams - copies;
    // Echoes, too, may exceed the share of their sender.
    least -= Math.min(overShare, udp.echoes);
    // Faults may take copies from single members, which then get fewer than the datagram counts.
    if (this.#membersMax > 1) least -= lost;
    // A damaged datagram to a group gives no copies, and counts at each port that receives the group.
    if (this.grouped) least -= Math.min(icrcErrors, ports.length * this.#damaged(repeated));
    must(missing >= least && missing <= most, 'counted', () => {
      return `${missing} packets of ${name} are missing, not ${least} to ${most}`;
    });
  }

  /** The most packets that left with a wrong ICRC. */
  #damaged(repeated: number): number {
    const damaged = this.#fired(DAMAGING);
    return this.#met ? damaged + repeated : damaged;
  }

  #fired(kinds: readonly string[]): number {
    const faults = this.#faults.filter(({ spec }) => kinds.includes(spec.kind));
    return faults.reduce((sum, { status }) => sum + status.fired, 0);
  }
}
