/**
 * Everything that one process emulates: devices, the connection manager, sockets and one timer.
 *
 * The owner of the host sets the three callbacks, calls commands of `cm` and of the objects of each
 * device's NIC, and after the latter `drain`. Nothing here throws out of a socket or timer event;
 * errors of peers are reported as events and notices.
 */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { AsyncEventType, CMEventType, QPType } from '#contract/verbs/enums';
import { isErrnoCode, VerbsError } from '#contract/verbs/errors';
import { gidText } from '#contract/verbs/gid';
import type { SocketAddress } from '#contract/verbs/provider';
import type { ConnectionFacts, Fault } from '../faults/fault.ts';
import type { CmEffect } from '../iwarp/cm/cm-host.ts';
import type { CmId } from '../iwarp/cm/cm-id.ts';
import type { CmDevice, CmLimits, SocketFacts } from '../iwarp/cm/cm-types.ts';
import { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { LowerLayer } from '../iwarp/engine/lower-layer.ts';
import { MpaLayer } from '../iwarp/engine/mpa-layer.ts';
import { Stream } from '../iwarp/engine/stream.ts';
import type { StreamOptions } from '../iwarp/engine/stream-api.ts';
import type { FrameReader } from '../iwarp/faults/frame.ts';
import type { NicEffect } from '../rnic/effect.ts';
import type { FailedWork } from '../rnic/failure-cause.ts';
import {
  failureSentence,
  flushSentence,
  foundText,
  type PeerFacts,
} from '../rnic/failure-sentence.ts';
import type { ProgramWire } from '../rnic/ib-port.ts';
import { QP } from '../rnic/queue-pair.ts';
import type { CQ } from '../rnic/queues/completion-queue.ts';
import type { SRQ } from '../rnic/queues/shared-receive-queue.ts';
import type { Conduit } from './conduit.ts';
import { Conduits, type ConduitsHost } from './conduits.ts';
import {
  type ConnectionChoice,
  type ConnectionCount,
  ConnectionCounts,
  type ConnectionStatus,
  roceConnection,
} from './connection-status.ts';
import { type CrcEngine, chooseCrcEngine } from './crc-engine.ts';
import { Adapter, type RoceHost } from './device-adapter.ts';
import type { DeviceHost } from './device-backend.ts';
import {
  checkedDevices,
  DEFAULT_DEVICE,
  type DeviceConfig,
  namedByOthers,
} from './device-config.ts';
import { EventLoop, type LoopUser } from './event-loop.ts';
import { gidAddress, type HostAddress, hostAddresses, listedAddresses } from './host-addresses.ts';
import { HostCm, type HostCmUser } from './host-cm.ts';
import { type FaultHost, HostFaults } from './host-faults.ts';
import type { HostCmEvent, HostId } from './host-id.ts';
import { IdNetwork, type NetworkUser } from './host-network.ts';
import { LaterTurns } from './later-turns.ts';
import { isolatedText } from './links/isolated-text.ts';
import type { Link } from './links/link.ts';
import { type Alarm, type HostClock, type HostSystem, TransportError } from './links/network.ts';
import type { HostNotice, HostObserver } from './observer.ts';
import { peerFacts, type UserCheck } from './peer-facts.ts';
import { isLinkLocalGid, MulticastGroups } from './roce/multicast-groups.ts';
import type { PacketNetwork, PacketNetworkHost } from './roce/packet-network.ts';
import type { RoceCm, RoceCmHost } from './roce/roce-cm.ts';
import type { RoceNetworkParts } from './roce/roce-network-parts.ts';
import type { RoceParts } from './roce/roce-parts.ts';
import type { RocePort } from './roce/roce-port.ts';
import type { SctpNetwork } from './sctp/sctp-network.ts';
import type { SctpParts } from './sctp/sctp-parts.ts';
import { inSlices } from './slices.ts';
import { TurnShares } from './turn-share.ts';

/** Options of a host. */
export interface RnicHostOptions {
  /** Clock, network and randomness; `hostSystem()` for those of this process. */
  readonly system: HostSystem;
  /** Default: one device, `iwarp0`, for every address. */
  readonly devices?: readonly DeviceConfig[];
  /**
   * `ROCE_PARTS`; required if a device is a RoCE device. Without its `network`, `addRoceNetwork` must
   * be called before any verb of such a device.
   */
  readonly roce?: RoceParts | undefined;
  /** `SCTP_PARTS`; required if a device is a device of SCTP. */
  readonly sctp?: SctpParts | undefined;
  readonly observer?: HostObserver;
  /** Bounds of the connection manager; see `DEFAULT_CM_LIMITS`. */
  readonly limits?: Partial<CmLimits>;
  /** Default: the best of those installed. */
  readonly crcEngine?: CrcEngine;
  /** Buffers of its connections. Default: its own pool. */
  readonly pool?: ChunkPool;
  /** What one peer address may use of a turn; see `TURN_SHARE_BYTES`. */
  readonly turnShareBytes?: number;
}

/** An asynchronous event of a device. */
export interface HostAsyncEvent {
  readonly event: AsyncEventType;
  readonly element: QP | CQ | SRQ | undefined;
  readonly text: string;
}

/** Failed work of a queue pair, with facts from the other end. */
interface HostFailure {
  readonly qp: QP;
  /** The work request; undefined for all flushed ones together. */
  readonly work: FailedWork | undefined;
  readonly sentence: string;
}

/** The destination of a RoCE device's queue pair, as `status` shows it. */
export interface PacketDestination {
  /** The device that has the GID, if it belongs to this host. */
  readonly peerDevice: string | undefined;
  readonly destQpn: number;
  readonly gid: string;
}

/** Asynchronous events that report no failure: requested, or the result of closing a connection. */
const NORMAL_EVENTS: readonly AsyncEventType[] = [
  AsyncEventType.commEst,
  AsyncEventType.sqDrained,
  AsyncEventType.srqLimitReached,
  AsyncEventType.qpLastWqeReached,
  AsyncEventType.portActive,
  AsyncEventType.gidChange,
];

/** Interval at which receives posted to QPs in error are flushed: programs drain their queues this way. */
const FLUSH_INTERVAL_MICROS = 5_000;
/** QPs in error per interval: checking thousands takes milliseconds. */
const FLUSH_QPS = 1024;

/** Turns of the event loop that a reset waits for sockets to close; a reset socket takes one. */
const RESET_TURNS_MAX = 100;
/** Ids and connections ended in one turn of a reset, or of closing the host. */
const ENDS_PER_TURN = 64;

export class RnicHost
  implements
    ConduitsHost,
    DeviceHost,
    FaultHost,
    HostCmUser,
    LoopUser,
    NetworkUser,
    PacketNetworkHost,
    RoceCmHost,
    RoceHost
{
  readonly devices: readonly Adapter[];
  readonly cm: HostCm;
  readonly crcEngine: CrcEngine;
  /** Injected faults. */
  readonly faults: HostFaults = new HostFaults(this);
  /** An armed CQ fired; its tag identifies the owner. */
  onCompletion: (cq: CQ) => void = () => {};
  onAsync: (device: Adapter, event: HostAsyncEvent) => void = () => {};
  onCmEvent: (id: HostId, event: HostCmEvent) => void = () => {};
  onFailure: (device: Adapter, failure: HostFailure) => void = () => {};
  /** Set by a daemon, whose programs may belong to several users. */
  isSameUser: UserCheck = () => true;
  readonly #observer: HostObserver;
  readonly #manager: ConnectionManager;
  readonly clock: HostClock;
  readonly #network: IdNetwork;
  readonly #loop: EventLoop;
  readonly #conduits: Conduits;
  readonly #pool: ChunkPool;
  readonly #kernelUdp: HostSystem['kernelUdp'];
  readonly isolated: boolean;
  readonly #sctpParts: SctpParts | undefined;
  readonly #sctpNetwork: SctpNetwork | undefined;
  readonly #roceParts: RoceParts | undefined;
  #roceNetwork: RoceNetworkParts | undefined;
  #rocePorts: readonly RocePort[] | undefined;
  #addresses: readonly HostAddress[] | undefined;
  /** Undefined without RoCE devices, and until `addRoceNetwork`. */
  #packets: PacketNetwork | undefined;
  #roceCm: RoceCm | undefined;
  readonly #noGroups = new MulticastGroups();
  readonly #later: LaterTurns;
  #flushTimer: Alarm | undefined;
  #closed: Promise<void> | undefined;
  #onLastGone: () => void = () => {};

  /** Throws `VerbsError` if an SCTP device cannot have its UDP port, or its library is missing. */
  constructor(options: RnicHostOptions) {
    const configs = checkedDevices(options.devices ?? [DEFAULT_DEVICE]);
    const { clock, network } = options.system;
    this.clock = clock;
    this.#roceParts = options.roce;
    this.#kernelUdp = options.system.kernelUdp;
    this.isolated = options.system.isolated === true;
    this.devices = configs.map((config) => {
      return new Adapter(config, clock.random32, this, namedByOthers(config, configs));
    });
    this.crcEngine = options.crcEngine ?? chooseCrcEngine();
    this.#pool = options.pool ?? new ChunkPool();
    this.#observer = options.observer ?? {};
    this.#sctpParts = options.sctp;
    this.#sctpNetwork = this.#makeSctpNetwork(options.system);
    this.#network = new IdNetwork(this.#sctpNetwork ?? network, this, this.isolated);
    this.#loop = new EventLoop(this, clock);
    this.#later = new LaterTurns(
      (run) => clock.soon(run),
      (qp) => this.doorbell(qp),
    );
    const cmDevices = this.devices
      .filter(({ transport }) => transport === 'iwarp')
      .map(({ cmDevice }) => cmDevice);
    this.#manager = new ConnectionManager({
      devices: () => cmDevices,
      network: this.#network,
      createStream: (device, streamOptions) => this.#createStream(device, streamOptions),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    });
    const shares = new TurnShares((run) => clock.soon(run), options.turnShareBytes);
    this.#conduits = new Conduits(
      this,
      this.#manager,
      this.#network,
      this.#loop,
      this.#observer,
      shares,
    );
    this.cm = new HostCm(this.#manager, cmDevices.length > 0, this);
    if (options.roce?.network !== undefined) this.addRoceNetwork(options.roce.network);
  }

  /** Connects the RoCE devices, if there are any. Call once. */
  addRoceNetwork(parts: RoceNetworkParts): void {
    if (!this.devices.some(({ transport }) => transport === 'roce')) return;
    assert(this.#packets === undefined, 'RoCE network added twice');
    this.#roceNetwork = parts;
    this.#packets = new parts.PacketNetwork(this, this.#observer.tap?.packets, this.#kernelUdp);
    this.#packets.setFaults(this.faults.injector.packets);
    this.#roceCm = new parts.RoceCm(this, this.#packets);
    this.cm.addRoce(this.#roceCm);
    if (this.#kernelUdp === true) this.#roceCm.openNamedPorts();
  }

  // Commands

  /** The QP's send queue has new elements. Sends them within this call, up to what TCP accepts. */
  doorbell(qp: QP): void {
    qp.doorbell(this.now());
    this.#conduits.enqueue(qp);
    this.#loop.drain();
  }

  /** Nothing to do: emulated queue pairs look for receives when a message arrives. */
  receiveDoorbell(): void {}

  /** Must be called after any direct call into an object of a NIC. */
  drain(): void {
    this.#loop.drain();
    this.watchErrored();
  }

  /**
   * Checks the addresses of this machine. RoCE devices for every address gain new ones, lose removed ones,
   * and raise an event. If the system cannot list the addresses, for lack of a free descriptor, nothing
   * changes.
   */
  checkAddresses(): void {
    const found = listedAddresses();
    if (found === undefined) return;
    this.#addresses = found;
    const changed = this.devices.filter(({ rocePort }) => {
      return rocePort?.gids.follow(found) === true;
    });
    if (changed.length === 0) return;
    this.#packets?.followAddresses();
    const text = 'the addresses of this machine changed, and with them the GID table';
    for (const device of changed) this.raise(device, AsyncEventType.gidChange, undefined, text);
  }

  /**
   * Releases the ports that are held for future listeners of `keeper` (see `CmId`), in later turns if there
   * are many.
   */
  releasePorts(keeper: object): void {
    void this.#releasePorts(keeper);
    this.#sctpNetwork?.shared.forget(keeper);
  }

  #releasePorts(keeper?: object): Promise<void> | undefined {
    return this.#inSlices(this.#manager.portsKeptFor(keeper), (id) =>
      this.#manager.releasePort(id),
    );
  }

  /** Ends every id and resets every connection of all owners. Resolves when the sockets are closed. */
  async reset(): Promise<void> {
    await this.#destroyIds();
    const ended = [...this.#conduits.all()];
    await this.#inSlices(ended, (conduit) => {
      if (this.#conduits.has(conduit.stream)) conduit.reset();
    });
    for (let turn = 0; turn < RESET_TURNS_MAX; turn += 1) {
      if (!ended.some(({ stream }) => this.#conduits.has(stream))) break;
      await new Promise<void>((resolve) => this.clock.soon(resolve));
    }
  }

  /** Ends every connection and listener; resolves when all sockets are closed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const destroying = this.#destroyIds();
    if (destroying !== undefined) await destroying;
    const leaving = this.#inSlices([...this.#conduits.all()], (conduit) => {
      if (this.#conduits.has(conduit.stream)) conduit.leave(this.now());
    });
    if (leaving !== undefined) await leaving;
    this.#flushTimer?.cancel();
    if (!this.#conduits.empty) {
      await new Promise<void>((resolve) => {
        this.#onLastGone = resolve;
      });
    }
    if (this.#sctpNetwork !== undefined) await this.#sctpNetwork.leave();
    this.#packets?.close();
    this.#sctpNetwork?.close();
    this.#loop.close();
  }

  /** Undefined if all were destroyed at once. */
  #destroyIds(): Promise<void> | undefined {
    const destroyRest = (): Promise<void> | undefined => {
      return this.#inSlices(this.#roceCm?.ids() ?? [], (id) => this.cm.destroy(id));
    };
    const end = (): Promise<void> | undefined => {
      const releasing = this.#releasePorts();
      this.#loop.drain();
      return releasing;
    };
    const destroying = this.#inSlices(this.#manager.ids(), (id) => {
      this.#manager.destroy(id, this.now());
    });
    if (destroying !== undefined) return destroying.then(destroyRest).then(end);
    const rest = destroyRest();
    return rest === undefined ? end() : rest.then(end);
  }

  #inSlices<T>(items: readonly T[], end: (item: T) => void): Promise<void> | undefined {
    return inSlices(items, ENDS_PER_TURN, (run) => this.clock.soon(run), end);
  }

  // Getters

  /** SCTP associations, including those without a connection. */
  get associationCount(): number {
    return this.#sctpNetwork?.associationCount ?? 0;
  }

  /** The clock's microseconds; monotonic. */
  now(): Micros {
    return this.#loop.now();
  }

  /**
   * The local address from which the host's routes reach `destination`, from `source` if given;
   * undefined if there is no route.
   */
  routeSource(destination: string, source: string | undefined): string | undefined {
    const answer = this.#network.sourceAddress(destination, source);
    return 'error' in answer ? undefined : answer.address;
  }

  /** Every connection, for `status`. */
  connections(wants: ConnectionChoice = () => true): readonly ConnectionStatus[] {
    const chosen: ConnectionStatus[] = [];
    for (const { device, local, remote, role, phase, qp } of this.#manager.endpoints()) {
      if (!wants(device.name, qp?.qpn)) continue;
      chosen.push({ device: device.name, local, remote, role, phase, qpNum: qp?.qpn });
    }
    for (const id of this.#roceCm?.ids() ?? []) {
      const connection = roceConnection(id, wants);
      if (connection !== undefined) chosen.push(connection);
    }
    return chosen;
  }

  /** Counts them by device and phase. */
  connectionCounts(): ConnectionCount[] {
    const counts = new ConnectionCounts();
    for (const { device, phase } of this.#manager.endpoints()) counts.add(device.name, phase);
    for (const id of this.#roceCm?.ids() ?? []) {
      const connection = roceConnection(id, () => true);
      if (connection !== undefined) counts.add(connection.device, connection.phase);
    }
    return counts.all();
  }

  /** The destination of a connected queue pair of a RoCE device, for `status`. */
  packetDestination(device: string, qpNum: number): PacketDestination | undefined {
    const qp = this.devices.find(({ name }) => name === device)?.nic.findQP(qpNum);
    if (qp === undefined || qp.type === QPType.ud) return undefined;
    const { peer, destQpn, vector } = this.#packets?.connectionOf(qp) ?? {};
    if (vector === undefined || destQpn === undefined) return undefined;
    const peerPort = this.devices.find(({ rocePort }) => peer !== undefined && rocePort === peer);
    return { peerDevice: peerPort?.name, destQpn, gid: gidText(vector.dgid) };
  }

  /** Name of the device that created this QP, if it belongs to this host. */
  deviceOf(qp: QP): string | undefined {
    return this.devices.find(({ nic }) => nic.findQP(qp.qpn) === qp)?.name;
  }

  /** How much waits or is kept between two turns, for simulations and tests. */
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
    const { queued, deferred, timed } = this.#loop.heldCounts();
    const { ids, endpoints, dials, halfOpen, cmEvents, ports } = this.#manager.heldCounts();
    return {
      nicEffects,
      unsettledQPs,
      waitingQPs,
      queued,
      deferred,
      timed,
      ids,
      endpoints,
      dials,
      halfOpen,
      cmEvents,
      ports,
    };
  }

  /** The same for connections between RoCE devices; undefined without such devices. */
  heldByRoce() {
    return this.#roceCm?.heldCounts();
  }

  /** Recounts everything, between two turns, for simulations and tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const { nic } of this.devices) nic.assertDeepInvariants();
    this.#manager.assertDeepInvariants();
    this.#roceCm?.assertDeepInvariants();
    this.#network.assertDeepInvariants((id) => this.#manager.mayHoldPort(id));
    this.#loop.assertDeepInvariants();
    this.#conduits.assertDeepInvariants();
    this.#packets?.assertDeepInvariants();
  }

  // Callbacks of conduits, the network and the loop

  handleInput(conduit: Conduit, _now: Micros): void {
    this.#loop.enqueue(conduit);
    this.#loop.drain();
  }

  get crc32c(): CrcEngine['crc32c'] {
    return this.crcEngine.crc32c;
  }

  soon(run: () => void): void {
    this.clock.soon(run);
  }

  rejectsRequest(conduit: Conduit): boolean {
    return this.faults.rejectsRequest(conduit);
  }

  setPacketFaults(faults: readonly Fault[] | undefined): void {
    this.#packets?.setFaults(faults);
    this.#sctpNetwork?.setFaults(faults);
  }

  fireFault(fault: Fault, device: string, qpn: number | undefined): void {
    this.faults.fire(fault, device, qpn);
  }

  noteFault(text: string): void {
    this.#notice('info', 'fault', undefined, undefined, text);
  }

  conduits(): Iterable<Conduit> {
    return this.#conduits.all();
  }

  conduitOf(qp: QP): Conduit | undefined {
    return this.#conduits.of(qp);
  }

  factsOf(qp: QP): ConnectionFacts | undefined {
    return this.#conduits.of(qp)?.facts ?? this.#packets?.factsOf(qp);
  }

  /** See `FaultHost`. Also raises events of a NIC. */
  raise(
    device: Adapter,
    event: AsyncEventType,
    element: HostAsyncEvent['element'],
    text: string,
  ): void {
    const level = NORMAL_EVENTS.includes(event) ? 'debug' : 'warn';
    const qp = element instanceof QP ? element : undefined;
    const remote = qp && this.#conduits.of(qp)?.endpoint.remote;
    this.#observer.notice?.({
      level,
      kind: 'device',
      device: device.name,
      qpn: qp?.qpn,
      remote,
      text,
    });
    this.onAsync(device, { event, element, text });
  }

  handleGone(conduit: Conduit): void {
    this.#conduits.forget(conduit);
    this.#loop.forget(conduit);
    this.watchErrored();
    if (this.#conduits.empty) this.#onLastGone();
  }

  handleNudged({ endpoint }: Conduit, text: string): void {
    this.#notice('debug', 'connection', endpoint.device.name, endpoint.remote, text);
  }

  handleNoRequest({ endpoint }: Conduit, text: string): void {
    this.#notice('info', 'refused', endpoint.device.name, endpoint.remote, text);
  }

  handleLink(listener: CmId, incoming: Link): void {
    this.#conduits.accept(listener, incoming);
  }

  handleRefused(remote: SocketFacts['remote'], text: string): void {
    this.#notice('warn', 'refused', undefined, remote, text);
  }

  handleJoined(conduit: Conduit): void {
    this.faults.applyTo(conduit);
  }

  handleListenerError(listener: CmId, error: Error): void {
    this.#notice('warn', 'socket', listener.device, undefined, error.message);
  }

  drainEffects(now: Micros): boolean {
    let any = this.#packets?.carry(now) ?? false;
    for (const device of this.devices) {
      for (;;) {
        const effect = device.nic.pollEffect();
        if (effect === undefined) break;
        any = true;
        this.#actOnNic(device, effect);
      }
    }
    for (;;) {
      const effect = this.#manager.pollEffect();
      if (effect === undefined) break;
      any = true;
      this.#actOnCm(effect, now);
    }
    return this.#roceCm?.drainEffects(now) === true || any;
  }

  handleDeadline(now: Micros): void {
    this.#manager.handleDeadline(now);
    this.#roceCm?.handleDeadline(now);
    this.#packets?.handleDeadline(now);
  }

  nextDeadline(): Micros {
    const deadline = this.#manager.nextDeadline();
    if (this.#packets === undefined || this.#roceCm === undefined) return deadline;
    return Math.min(deadline, this.#packets.nextDeadline(), this.#roceCm.nextDeadline());
  }

  cmDeviceOf(name: string): CmDevice | undefined {
    return this.devices.find((device) => device.name === name)?.cmDevice;
  }

  childOf(listener: HostId): HostId {
    return this.cm.childOf(listener);
  }

  random32(): number {
    return this.clock.random32();
  }

  rocePorts(): readonly RocePort[] {
    this.#rocePorts ??= this.devices.flatMap(({ rocePort }) => rocePort ?? []);
    return this.#rocePorts;
  }

  get addresses(): readonly HostAddress[] {
    this.#addresses ??= hostAddresses();
    return this.#addresses;
  }

  get multicastGroups(): MulticastGroups {
    return this.#packets?.groups ?? this.#noGroups;
  }

  outwardMtu(port: RocePort, sgid: Uint8Array, dgid: Uint8Array): number {
    // An address that a link could have is without a neighbour, as in the kernel.
    if (this.isolated && !isLinkLocalGid(dgid)) {
      const text = isolatedText(gidAddress(dgid));
      this.notePackets('info', text);
      throw new VerbsError('ENETUNREACH', text);
    }
    return this.#packets?.outwardMtu(port, sgid, dgid) ?? 0;
  }

  notePackets(level: 'info' | 'warn', text: string): void {
    this.#notice(level, 'device', undefined, undefined, text);
  }

  makeWire(qp: QP, port: RocePort): ProgramWire {
    const { type, qpn } = qp;
    const [network, parts] = [this.#packets, this.#roceNetwork];
    assert(network !== undefined && parts !== undefined, 'queue pair before its network');
    const { makeWire, portMtuBytes } = parts;
    return network.connect(qp, port, makeWire(qp, { type, qpn, portMtuBytes }));
  }

  get roceParts(): RoceParts {
    if (this.#roceParts === undefined) throw new Error('a host of RoCE devices needs ROCE_PARTS');
    return this.#roceParts;
  }

  // Steps

  #createStream(device: CmDevice, options: StreamOptions): Stream {
    return new Stream(options, this.#lowerLayer(device, options));
  }

  #lowerLayer(device: CmDevice, options: StreamOptions): LowerLayer {
    const pool = this.#pool;
    if (device.lowerLayer === 'sctp') {
      const { SctpLayer, DDP_ADAPTATION } = this.#parts;
      // Associations with another indication have been aborted.
      return new SctpLayer(options, { pool, peerAdaptation: DDP_ADAPTATION });
    }
    const { crc32c } = this.crcEngine;
    return new MpaLayer(options, { pool, crc32c, alignSegments: device.wire.segmentAligned });
  }

  get #parts(): SctpParts {
    if (this.#sctpParts === undefined) throw new Error('a host of SCTP devices needs SCTP_PARTS');
    return this.#sctpParts;
  }

  makeSctpFrameReader(): FrameReader {
    return new this.#parts.SctpFrameReader();
  }

  /** Undefined without SCTP devices. */
  #makeSctpNetwork({ network, clock, isolated }: HostSystem): SctpNetwork | undefined {
    const iwarp = this.devices.filter(({ transport }) => transport === 'iwarp');
    const sctp = iwarp.filter(({ cmDevice }) => cmDevice.lowerLayer === 'sctp');
    if (sctp.length === 0) return undefined;
    const devices = sctp.map(({ name, cmDevice, sctpTransport }) => {
      return { name, addresses: cmDevice.addresses, sctp: sctpTransport ?? 'usrsctp' };
    });
    const tap = this.#observer.tap?.packets;
    const { SctpNetwork, makeTransport } = this.#parts;
    try {
      const hasTcp = iwarp.length > sctp.length;
      const transport = makeTransport(clock, devices, isolated);
      return new SctpNetwork({ inner: network, transport, clock, devices, hasTcp, tap });
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      const { code, message } = error;
      const names = sctp.map(({ name }) => name).join(', ');
      throw new VerbsError(
        isErrnoCode(code) ? code : 'EOPNOTSUPP',
        `no SCTP for ${names}: ${message}`,
      );
    }
  }

  #actOnNic(device: Adapter, effect: NicEffect): void {
    switch (effect.type) {
      case 'completion':
        if (this.faults.injector.notifications === undefined) this.onCompletion(effect.cq);
        else this.faults.notify(device, effect.cq);
        return;
      case 'async':
        if (effect.element instanceof QP) this.#tellRoce(effect.element, effect.event, effect.text);
        this.raise(device, effect.event, effect.element, effect.text + this.#peerText(effect));
        return;
      case 'failed': {
        const { qp, work } = effect;
        this.onFailure(device, { qp, work, sentence: failureSentence(work, this.#peerOf(qp)) });
        return;
      }
      case 'flushed': {
        const { qp, work } = effect;
        const sentence = flushSentence(work, qp.qpn, this.#peerOf(qp));
        this.onFailure(device, { qp, work: undefined, sentence });
        return;
      }
      case 'transmit':
        this.#packets?.memoryReady(effect.qp);
        this.#conduits.enqueue(effect.qp);
        return;
      case 'abort':
        this.#roceCm?.handleQPFailed(effect.qp, 'the queue pair was stopped');
        this.#conduits.enqueue(effect.qp);
        return;
      case 'disconnect':
        this.#conduits.enqueue(effect.qp);
        return;
      case 'resume':
        this.#later.add(effect.qp);
        return;
      default:
        effect satisfies never;
    }
  }

  #tellRoce(qp: QP, event: AsyncEventType, text: string): void {
    if (event === AsyncEventType.sqDrained) this.#roceCm?.handleDrained(qp);
    else this.#roceCm?.handleQPFailed(qp, text);
  }

  #peerOf(qp: QP): PeerFacts | undefined {
    return peerFacts(qp, this.devices, this.#conduits, this.isSameUser);
  }

  /** What the other end found, for an event about an access that it refused. */
  #peerText({ element }: Extract<NicEffect, { type: 'async' }>): string {
    if (!(element instanceof QP)) return '';
    const { cause } = element;
    if (cause?.kind !== 'wire' || cause.by === 'us') return '';
    return foundText(cause, this.#peerOf(element));
  }

  #actOnCm(effect: CmEffect, now: Micros): void {
    switch (effect.type) {
      case 'dial':
        this.#conduits.dial(effect.endpoint, effect.remote, now);
        return;
      case 'cancelDial':
        this.#conduits.cancelDial(effect.endpoint);
        return;
      case 'touched':
        this.#conduits.touched(effect.endpoint);
        return;
      case 'deliver': {
        const event = this.cm.eventOf(effect.event);
        if (event !== undefined) this.deliver(event);
        return;
      }
      default:
        effect satisfies never;
    }
  }

  deliver(event: HostCmEvent): void {
    const { id, type, text } = event;
    const failed =
      type === CMEventType.connectError ||
      type === CMEventType.unreachable ||
      (this.isolated && event.error === 'ENETUNREACH');
    this.#notice(failed ? 'info' : 'debug', 'connection', id.device, id.peerAddress, text);
    this.onCmEvent(id, event);
  }

  /** See `PacketNetworkHost`. Starts the slow timer for QPs in error; it stops when there are none. */
  watchErrored(): void {
    if (this.#flushTimer === undefined && this.#closed === undefined) this.#flushSoon(1);
  }

  #flushSoon(errored: number): void {
    const intervals = Math.ceil(errored / FLUSH_QPS);
    this.#flushTimer = this.clock.after(intervals * FLUSH_INTERVAL_MICROS, () => {
      this.#flushTimer = undefined;
      const left = this.#flushErrored();
      if (left > 0 && this.#closed === undefined) this.#flushSoon(left);
      this.#loop.drain();
    });
  }

  #flushErrored(): number {
    const now = this.now();
    let errored = 0;
    for (const { nic } of this.devices) errored += nic.flushErrored(now);
    return errored;
  }

  noteRoceAlone({ address, port }: SocketAddress): void {
    const text =
      `another program has TCP port ${port}: the listener at ${address} port ${port} accepts on RoCE ` +
      'devices only, and iWARP clients cannot reach it';
    this.#notice('warn', 'listening', undefined, undefined, text);
  }

  #notice(
    level: HostNotice['level'],
    kind: string,
    device: string | undefined,
    remote: HostNotice['remote'],
    text: string,
  ): void {
    this.#observer.notice?.({ level, kind, device, remote, text });
  }
}
