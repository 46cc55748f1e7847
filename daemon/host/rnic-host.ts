/**
 * Everything that one process emulates: devices, the connection manager, sockets and one timer.
 *
 * The owner sets the three callbacks, then calls `cm` and the objects of each device's NIC, with
 * `drain` after each call into a NIC. Socket and timer events never throw: errors of peers are
 * reported as events and notices.
 */
import type { Micros } from '#base/time';
import type { PhaseCount } from '#contract/protocol/control';
import { CMEventType } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import type { ConnectionFacts, Fault } from '../faults/fault.ts';
import type { CmEvent } from '../iwarp/cm/cm-host.ts';
import type { CmDevice, CmLimits } from '../iwarp/cm/cm-types.ts';
import { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { FrameReader } from '../iwarp/faults/frame.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { CQ } from '../rnic/queues/completion-queue.ts';
import type { Conduit } from './conduit.ts';
import {
  type ConnectionChoice,
  ConnectionCounts,
  type ConnectionStatus,
} from './connection-status.ts';
import { type CrcEngine, chooseCrcEngine } from './crc-engine.ts';
import {
  checkedDevices,
  DEFAULT_DEVICE,
  type DeviceConfig,
  namedByOthers,
} from './device-config.ts';
import { EmulatedDevice } from './emulated-device.ts';
import { ErroredQueuePairs } from './errored-queue-pairs.ts';
import { EventLoop, type LoopUser } from './event-loop.ts';
import { HostCm, type HostCmUser } from './host-cm.ts';
import { type FaultHost, HostFaults } from './host-faults.ts';
import type { HostCmEvent, HostId } from './host-id.ts';
import type { HostSide } from './host-side.ts';
import { ENDS_PER_TURN, IwarpSide, type IwarpSideHost } from './iwarp-side.ts';
import type { HostClock, HostSystem } from './links/network.ts';
import { type HostAsyncEvent, type HostFailure, NicEffects } from './nic-effects.ts';
import type { HostNotice, HostObserver } from './observer.ts';
import type { UserCheck } from './peer-facts.ts';
import type { MulticastGroups } from './roce/multicast-groups.ts';
import type { RoceNetwork } from './roce/roce-network.ts';
import { type PacketDestination, RoceSide } from './roce/roce-side.ts';
import type { DeviceHost } from './served-device.ts';
import { inSlices } from './slices.ts';
import type { CarrierModule, StreamCarrier } from './stream-carrier.ts';
import { TcpCarrier } from './tcp-carrier.ts';

/** Options of a host. */
export interface RnicHostOptions {
  /** Clock, network and randomness; `hostSystem()` for those of this process. */
  readonly system: HostSystem;
  /** Default: one device, `iwarp0`, for every address. */
  readonly devices?: readonly DeviceConfig[];
  /**
   * `ROCE_NETWORK`, for RoCE devices. Without it, `addRoceNetwork` must be called before any verb of such a
   * device.
   */
  readonly roce?: RoceNetwork | undefined;
  /** `loadCarriers()` of its devices. Default: only TCP. */
  readonly carriers?: readonly CarrierModule[];
  readonly observer?: HostObserver;
  /** Bounds of the connection manager; see `DEFAULT_CM_LIMITS`. */
  readonly limits?: Partial<CmLimits>;
  /** Default: the best of those installed. */
  readonly crcEngine?: CrcEngine;
  /** Buffers of its connections. Default: its own pool. */
  readonly pool?: ChunkPool;
  /** Bytes per turn for one peer address; see `TURN_SHARE_BYTES`. */
  readonly turnShareBytes?: number;
}

export class RnicHost implements DeviceHost, FaultHost, HostCmUser, LoopUser, IwarpSideHost {
  readonly devices: readonly EmulatedDevice[];
  readonly cm: HostCm;
  readonly crcEngine: CrcEngine;
  /** Injected faults. */
  readonly faults: HostFaults = new HostFaults(this);
  onCompletion: (cq: CQ) => void = () => {};
  onAsync: (device: EmulatedDevice, event: HostAsyncEvent) => void = () => {};
  onCmEvent: (id: HostId, event: HostCmEvent) => void = () => {};
  onFailure: (device: EmulatedDevice, failure: HostFailure) => void = () => {};
  /** Set by a daemon, whose clients may belong to several users. */
  isSameUser: UserCheck = () => true;
  readonly clock: HostClock;
  readonly isolated: boolean;
  readonly #observer: HostObserver;
  readonly #loop: EventLoop;
  readonly #iwarp: IwarpSide;
  readonly #roce: RoceSide;
  readonly #sides: readonly HostSide[];
  readonly #errored: ErroredQueuePairs;
  readonly #effects: NicEffects;
  #closed: Promise<void> | undefined;

  /** Throws `VerbsError` if a carrier lacks what its devices need. */
  constructor(options: RnicHostOptions) {
    const configs = checkedDevices(options.devices ?? [DEFAULT_DEVICE]);
    const { clock, outward, addresses, isolated } = options.system;
    this.clock = clock;
    this.isolated = isolated === true;
    this.crcEngine = options.crcEngine ?? chooseCrcEngine();
    this.#observer = options.observer ?? {};
    this.#roce = new RoceSide(this, {
      tap: this.#observer.tap?.packets,
      outward: outward === true,
      addresses,
    });
    this.devices = configs.map((config) => {
      return new EmulatedDevice(config, clock.random32, this.#roce, namedByOthers(config, configs));
    });
    this.#loop = new EventLoop(this, clock);
    this.#errored = new ErroredQueuePairs(this, this.#loop);
    this.#iwarp = new IwarpSide(this, {
      loop: this.#loop,
      observer: this.#observer,
      carriers: this.#carriers(options),
      limits: options.limits,
      turnShareBytes: options.turnShareBytes,
    });
    this.#sides = [this.#roce, this.#iwarp];
    this.#effects = new NicEffects(this, this.#sides, this.#iwarp.conduits);
    const hasIwarp = this.devices.some(({ transport }) => transport === 'iwarp');
    this.cm = new HostCm(this.#iwarp.manager, hasIwarp, this);
    if (options.roce !== undefined) this.addRoceNetwork(options.roce);
  }

  /** Carriers around the system's network, each for the addresses of its devices. */
  #carriers({ system, carriers = [], pool = new ChunkPool() }: RnicHostOptions): StreamCarrier[] {
    const tap = this.#observer.tap?.packets;
    const devices = this.devices.filter(({ transport }) => transport === 'iwarp');
    const options = { system, devices, pool, crc32c: this.crc32c, tap };
    let inner = system.network;
    const made: StreamCarrier[] = [new TcpCarrier({ ...options, inner })];
    for (const { lowerLayer, make } of carriers) {
      if (!devices.some(({ cmDevice }) => cmDevice.lowerLayer === lowerLayer)) continue;
      const carrier = make({ ...options, inner });
      inner = carrier.network;
      made.push(carrier);
    }
    return made;
  }

  /** Connects the RoCE devices, if there are any. Call once. */
  addRoceNetwork(network: RoceNetwork): void {
    if (this.devices.some(({ transport }) => transport === 'roce')) this.#roce.connect(network);
  }

  // Commands

  /**
   * The QP's send queue has new elements. Sends them within this call, up to what TCP accepts. `now`: the
   * time, if the caller knows it.
   */
  doorbell(qp: QP, now = this.now()): void {
    qp.doorbell(now);
    this.#iwarp.handleOutput(qp);
    this.#loop.drain(now);
  }

  /** Nothing to do: emulated queue pairs look for receives when a message arrives. */
  receiveDoorbell(): void {}

  /** Must be called after any direct call into an object of a NIC. */
  drain(): void {
    this.#loop.drain();
    this.watchErrored();
  }

  /** Checks the addresses of this machine, which RoCE devices may use as GIDs. */
  checkAddresses(): void {
    this.#roce.checkAddresses();
  }

  /**
   * Releases the ports held for future listeners of `keeper` (see `CmId`), in later turns if there are many.
   */
  releasePorts(keeper: object): void {
    void this.#iwarp.releasePorts(keeper);
  }

  /** Ends every id and resets every connection of all owners. Resolves when the sockets are closed. */
  async reset(): Promise<void> {
    await this.#destroyIds();
    await this.#iwarp.resetConnections();
  }

  /** Ends every connection and listener; resolves when all sockets are closed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const destroying = this.#destroyIds();
    if (destroying !== undefined) await destroying;
    const ending = this.#iwarp.endConnections();
    if (ending !== undefined) await ending;
    this.#errored.stop();
    const leaving = this.#iwarp.gone();
    if (leaving !== undefined) await leaving;
    for (const side of this.#sides) side.close();
    this.#loop.close();
  }

  /** Undefined if all were destroyed within this call. */
  #destroyIds(): Promise<void> | undefined {
    const destroyRest = (): Promise<void> | undefined => {
      const destroy = (id: HostId): void => this.cm.destroy(id);
      return inSlices(this.#roce.ids(), ENDS_PER_TURN, (run) => this.soon(run), destroy);
    };
    const end = (): Promise<void> | undefined => {
      const releasing = this.#iwarp.releasePorts();
      this.#loop.drain();
      return releasing;
    };
    const destroying = this.#iwarp.destroyIds();
    if (destroying !== undefined) return destroying.then(destroyRest).then(end);
    const rest = destroyRest();
    return rest === undefined ? end() : rest.then(end);
  }

  // Getters

  /** SCTP associations, including those without a connection. */
  get associationCount(): number {
    return this.#iwarp.associationCount;
  }

  now(): Micros {
    return this.#loop.now();
  }

  /** The last result of `now`: see `HostClock`. */
  recent(): Micros {
    return this.clock.recent();
  }

  soon(run: () => void): void {
    this.clock.soon(run);
  }

  routeSource(destination: string, source: string | undefined): string | undefined {
    const answer = this.#iwarp.network.sourceAddress(destination, source);
    return 'error' in answer ? undefined : answer.address;
  }

  /** The connections that `wants` selects, for `status`. */
  connections(wants: ConnectionChoice = () => true): readonly ConnectionStatus[] {
    return [...this.#iwarp.connections(wants), ...this.#roce.connections(wants)];
  }

  /** The number of connections by device and phase. */
  connectionCounts(): PhaseCount[] {
    const counts = new ConnectionCounts();
    for (const side of this.#sides) {
      for (const { device, phase } of side.connections(() => true)) counts.add(device, phase);
    }
    return counts.all();
  }

  /** The destination of a connected queue pair of a RoCE device, for `status`. */
  packetDestination(device: string, qpNum: number): PacketDestination | undefined {
    const qp = this.devices.find(({ name }) => name === device)?.nic.findQP(qpNum);
    return qp && this.#roce.destinationOf(qp);
  }

  /** Membership of queue pairs in multicast groups. */
  get multicastGroups(): MulticastGroups {
    return this.#roce.multicastGroups;
  }

  deviceOf(qp: QP): string | undefined {
    return this.devices.find(({ nic }) => nic.findQP(qp.qpn) === qp)?.name;
  }

  /** Counts of objects and pending work between two turns, for simulations and tests. */
  heldCounts() {
    let nicEffects = 0;
    let unsettledQPs = 0;
    let waitingQPs = 0;
    for (const { nic } of this.devices) {
      const { effects, unsettled, waiting } = nic.heldCounts();
      nicEffects += effects;
      unsettledQPs += unsettled;
      waitingQPs += waiting;
    }
    const { ids, endpoints, dials, starting, cmEvents, ports } = this.#iwarp.manager.heldCounts();
    return {
      nicEffects,
      unsettledQPs,
      waitingQPs,
      ...this.#loop.heldCounts(),
      ids,
      endpoints,
      dials,
      starting,
      cmEvents,
      ports,
    };
  }

  /** These counts for connections between RoCE devices; undefined without such devices. */
  heldByRoce() {
    return this.#roce.heldCounts();
  }

  /** Recounts everything; for simulations and tests, between two turns. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const { nic } of this.devices) nic.assertDeepInvariants();
    for (const side of this.#sides) side.assertDeepInvariants();
    this.#loop.assertDeepInvariants();
  }

  // Callbacks of the loop, the sides, the faults and the connection manager

  drainEffects(now: Micros): boolean {
    const received = this.#roce.drainEffects(now);
    const reported = this.#effects.drain();
    return this.#iwarp.drainEffects(now) || received || reported;
  }

  handleDeadline(now: Micros): void {
    for (const side of this.#sides) side.handleDeadline(now);
  }

  nextDeadline(): Micros {
    return Math.min(this.#iwarp.nextDeadline(), this.#roce.nextDeadline());
  }

  watchErrored(): void {
    this.#errored.watch();
  }

  get crc32c(): CrcEngine['crc32c'] {
    return this.crcEngine.crc32c;
  }

  setPacketFaults(faults: readonly Fault[] | undefined): void {
    for (const side of this.#sides) side.setPacketFaults(faults);
  }

  makeFrameReader(conduit: Conduit): FrameReader {
    return this.#iwarp.makeFrameReader(conduit);
  }

  noteFault(text: string): void {
    this.notice({ level: 'info', kind: 'fault', device: undefined, remote: undefined, text });
  }

  conduits(): Iterable<Conduit> {
    return this.#iwarp.conduits.all();
  }

  conduitOf(qp: QP): Conduit | undefined {
    return this.#iwarp.conduits.of(qp);
  }

  factsOf(qp: QP): ConnectionFacts | undefined {
    return this.conduitOf(qp)?.facts ?? this.#roce.factsOf(qp);
  }

  raise(...event: Parameters<NicEffects['raise']>): void {
    this.#effects.raise(...event);
  }

  cmDeviceOf(name: string): CmDevice | undefined {
    return this.devices.find((device) => device.name === name)?.cmDevice;
  }

  handleCmEvent(event: CmEvent): void {
    const known = this.cm.eventOf(event);
    if (known !== undefined) this.deliver(known);
  }

  deliver(event: HostCmEvent): void {
    const { id, type, text } = event;
    const failed =
      type === CMEventType.connectError ||
      type === CMEventType.unreachable ||
      (this.isolated && event.error === 'ENETUNREACH');
    const level = failed ? 'info' : 'debug';
    this.notice({ level, kind: 'connection', device: id.device, remote: id.peerAddress, text });
    this.onCmEvent(id, event);
  }

  noteRoceAlone({ address, port }: SocketAddress): void {
    const text =
      `another program has TCP port ${port}: the listener at ${address} port ${port} accepts on RoCE ` +
      'devices only, and iWARP clients cannot reach it';
    this.notice({ level: 'warn', kind: 'listening', device: undefined, remote: undefined, text });
  }

  notice(notice: HostNotice): void {
    this.#observer.notice?.(notice);
  }
}
