/** The RoCE side of a host: ports, the network of their packets, and the connection manager. */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { AsyncEventType, QPType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { gidText } from '#contract/verbs/gid';
import type { PacketTap } from '#daemon/capture/capture-tap';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import type { ProgramWire } from '#daemon/rnic/ib-port';
import { LentPayload } from '#daemon/rnic/memory/lent-payload';
import type { QP } from '#daemon/rnic/queue-pair';
import {
  type ConnectionChoice,
  type ConnectionStatus,
  roceConnection,
} from '../connection-status.ts';
import type { EmulatedDevice } from '../emulated-device.ts';
import { gidAddress, type HostAddress, hostAddresses, listedAddresses } from '../host-addresses.ts';
import type { HostCm } from '../host-cm.ts';
import type { HostFaults } from '../host-faults.ts';
import type { HostCmEvent, HostId } from '../host-id.ts';
import type { HostSide, SideHost } from '../host-side.ts';
import { isolatedText } from '../links/isolated-text.ts';
import { isLinkLocalGid, MulticastGroups } from './multicast-groups.ts';
import type { PacketNetwork, PacketNetworkHost } from './packet-network.ts';
import type { RoceCm, RoceCmHost } from './roce-cm.ts';
import type { RoceNetwork } from './roce-network.ts';
import type { PortHost, RocePort } from './roce-port.ts';

/** The destination of a RoCE device's queue pair, as `status` shows it. */
export interface PacketDestination {
  /** The device that has the GID, if it belongs to this host. */
  readonly peerDevice: string | undefined;
  readonly destQpn: number;
  readonly gid: string;
}

/** The RoCE side's interface to its host. */
interface RoceSideHost extends SideHost {
  readonly cm: HostCm;
  readonly faults: HostFaults;
  raise(device: EmulatedDevice, event: AsyncEventType, object: undefined, text: string): void;
  /** The local address from which the host's routes reach `destination`, from `source` if given. */
  routeSource(destination: string, source: string | undefined): string | undefined;
}

interface RoceSideOptions {
  readonly tap: PacketTap | undefined;
  /** Packets may leave the host. */
  readonly outward: boolean;
  /** Lists the addresses of the machine. Default: the kernel's. */
  readonly addresses: (() => readonly HostAddress[]) | undefined;
}

export class RoceSide implements HostSide, PortHost, PacketNetworkHost, RoceCmHost {
  readonly #host: RoceSideHost;
  readonly #options: RoceSideOptions;
  readonly lentPayload = new LentPayload();
  readonly #noGroups = new MulticastGroups();
  /** Undefined without RoCE devices, and until `connect`. */
  #network: RoceNetwork | undefined;
  #packets: PacketNetwork | undefined;
  #cm: RoceCm | undefined;
  #ports: readonly RocePort[] | undefined;
  #addresses: readonly HostAddress[] | undefined;

  constructor(host: RoceSideHost, options: RoceSideOptions) {
    this.#host = host;
    this.#options = options;
  }

  /** Connects the devices, before the first verb. Call once. */
  connect(network: RoceNetwork): void {
    assert(this.#packets === undefined, 'RoCE network added twice');
    const { tap, outward } = this.#options;
    this.#network = network;
    this.#packets = new network.PacketNetwork(this, tap, outward ? network.udp : undefined);
    this.#packets.setFaults(this.#host.faults.injector.packets);
    this.#cm = new network.RoceCm(this, this.#packets);
    this.#host.cm.addRoce(this.#cm);
    if (outward) this.#cm.openNamedPorts();
  }

  // Calls of the host

  drainEffects(now: Micros): boolean {
    const carried = this.#packets?.carry(now) === true;
    return this.#cm?.drainEffects(now) === true || carried;
  }

  handleDeadline(now: Micros): void {
    this.#cm?.handleDeadline(now);
    this.#packets?.handleDeadline(now);
  }

  nextDeadline(): Micros {
    if (this.#packets === undefined || this.#cm === undefined) return NEVER;
    return Math.min(this.#packets.nextDeadline(), this.#cm.nextDeadline());
  }

  handleOutput(qp: QP): void {
    this.#packets?.memoryReady(qp);
  }

  handleDisconnect(): void {}

  handleStopped(qp: QP, why = 'the queue pair was stopped'): void {
    this.#cm?.handleQPFailed(qp, why);
  }

  handleEvent(qp: QP, event: AsyncEventType, text: string): void {
    if (event === AsyncEventType.sqDrained) this.#cm?.handleDrained(qp);
    else this.#cm?.handleQPFailed(qp, text);
  }

  setPacketFaults(faults: readonly Fault[] | undefined): void {
    this.#packets?.setFaults(faults);
  }

  *connections(wants: ConnectionChoice): Iterable<ConnectionStatus> {
    for (const id of this.ids()) {
      const connection = roceConnection(id, wants);
      if (connection !== undefined) yield connection;
    }
  }

  ids(): readonly HostId[] {
    return this.#cm?.ids() ?? [];
  }

  /** The destination of a connected queue pair, for `status`. */
  destinationOf(qp: QP): PacketDestination | undefined {
    if (qp.type === QPType.ud) return undefined;
    const { peer, destQpn, vector } = this.#packets?.connectionOf(qp) ?? {};
    if (vector === undefined || destQpn === undefined) return undefined;
    const { devices } = this.#host;
    const peerPort = devices.find(({ rocePort }) => peer !== undefined && rocePort === peer);
    return { peerDevice: peerPort?.name, destQpn, gid: gidText(vector.dgid) };
  }

  /** The ends of a connected queue pair. */
  factsOf(qp: QP): ConnectionFacts | undefined {
    return this.#packets?.factsOf(qp);
  }

  /** How much waits or is kept between two turns; undefined without RoCE devices. */
  heldCounts() {
    return this.#cm?.heldCounts();
  }

  assertDeepInvariants(): void {
    this.#cm?.assertDeepInvariants();
    this.#packets?.assertDeepInvariants();
  }

  close(): void {
    this.#packets?.close();
  }

  /**
   * Checks the addresses of this machine. Devices for every address gain new ones, lose removed ones, and
   * raise an event. If the system cannot list the addresses, for lack of a free descriptor, nothing changes.
   */
  checkAddresses(): void {
    const found = this.#options.addresses?.() ?? listedAddresses();
    if (found === undefined) return;
    this.#addresses = found;
    const changed = this.#host.devices.filter(({ rocePort }) => {
      return rocePort?.gids.follow(found) === true;
    });
    if (changed.length === 0) return;
    this.#packets?.followAddresses();
    const text = 'the addresses of this machine changed, and with them the GID table';
    for (const device of changed) {
      this.#host.raise(device, AsyncEventType.gidChange, undefined, text);
    }
  }

  // Callbacks of ports, packets and the connection manager

  rocePorts(): readonly RocePort[] {
    this.#ports ??= this.#host.devices.flatMap(({ rocePort }) => rocePort ?? []);
    return this.#ports;
  }

  get addresses(): readonly HostAddress[] {
    this.#addresses ??= this.#options.addresses?.() ?? hostAddresses();
    return this.#addresses;
  }

  get multicastGroups(): MulticastGroups {
    return this.#packets?.groups ?? this.#noGroups;
  }

  outwardMtu(port: RocePort, sgid: Uint8Array, dgid: Uint8Array): number {
    // As in the kernel, a link-local address only lacks a neighbour; all others have no route.
    if (this.isolated && !isLinkLocalGid(dgid)) {
      const text = isolatedText(gidAddress(dgid));
      this.notePackets('info', text);
      throw new VerbsError('ENETUNREACH', text);
    }
    return this.#packets?.outwardMtu(port, sgid, dgid) ?? 0;
  }

  makeWire(qp: QP, port: RocePort): ProgramWire {
    const { type, qpn } = qp;
    const [packets, network] = [this.#packets, this.#network];
    assert(packets !== undefined && network !== undefined, 'queue pair before its network');
    const { makeWire, portMtuBytes } = network;
    return packets.connect(qp, port, makeWire(qp, { type, qpn, portMtuBytes }));
  }

  get isolated(): boolean {
    return this.#host.isolated;
  }

  now(): Micros {
    return this.#host.now();
  }

  soon(run: () => void): void {
    this.#host.clock.soon(run);
  }

  random32(): number {
    return this.#host.clock.random32();
  }

  drain(): void {
    this.#host.drain();
  }

  watchErrored(): void {
    this.#host.watchErrored();
  }

  fireFault(fault: Fault, device: string, qpn: number | undefined): void {
    this.#host.faults.fire(fault, device, qpn);
  }

  notePackets(level: 'info' | 'warn', text: string): void {
    this.#host.notice({ level, kind: 'device', device: undefined, remote: undefined, text });
  }

  routeSource(destination: string, source: string | undefined): string | undefined {
    return this.#host.routeSource(destination, source);
  }

  childOf(listener: HostId): HostId {
    return this.#host.cm.childOf(listener);
  }

  deliver(event: HostCmEvent): void {
    this.#host.deliver(event);
  }
}
