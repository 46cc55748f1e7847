/**
 * The connection manager for the owners of ids: commands take effect at once, errors are `VerbsError`s,
 * outcomes arrive as events. It decides on which wire an id is (README.md says how).
 */
import { addressFamily, IPV4_ANY, IPV6_ANY, isLoopback, wildcardAsLoopback } from '#base/address';
import type { Micros } from '#base/time';
import type { CMParameters } from '#contract/protocol/commands';
import type { DeviceTransport } from '#contract/verbs/attributes';
import { CMEventType, type QPState, QPType } from '#contract/verbs/enums';
import { invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { parseSocketAddress } from '#contract/verbs/socket-address';
import type { CmEvent } from '../iwarp/cm/cm-host.ts';
import type { CmId } from '../iwarp/cm/cm-id.ts';
import type { CmDevice } from '../iwarp/cm/cm-types.ts';
import type { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import { requestedDepths } from '../iwarp/cm/stream-options.ts';
import type { QPModification } from '../rnic/qp-attributes.ts';
import type { QP } from '../rnic/queue-pair.ts';
import { type HostCmEvent, HostId, PortSpace, type ProgramParameters } from './host-id.ts';
import type { RoceCm } from './roce/roce-cm.ts';

/** The facade's interface to its host. */
export interface HostCmUser {
  now(): Micros;
  drain(): void;
  /** Name of the device that created this QP, if it belongs to the host. */
  deviceOf(qp: QP): string | undefined;
  /** The limits of a device. */
  cmDeviceOf(name: string): CmDevice | undefined;
  deliver(event: HostCmEvent): void;
  /** A listener accepts on RoCE only: another program has its TCP port. */
  noteRoceAlone(local: SocketAddress): void;
}

/** The wires that an id may use. */
type Wires = ReadonlySet<DeviceTransport>;

/** The REJ reason of a rejection by the program. */
const CONSUMER_DEFINED = 28;
/** Retry counts for queue pairs that the host connects: the maximum; 7 means unlimited for RNR. */
const RETRIES = 7;
const NO_BYTES = new Uint8Array(0);
const IPOIB_TEXT = 'RDMA_PS_IPOIB is for devices of InfiniBand: use RDMA_PS_UDP';
/** Attempts to find a port that is free on both wires. */
const FREE_PORT_TRIES = 16;

/**
 * The errno codes are those of `ConnectionManager`'s methods.
 *
 * On iWARP, and for programs that give their `QP`, the connection manager moves the queue pair.
 * Programs that move it themselves, as on InfiniBand's verbs, use `request`, `qpAttributes`,
 * `answer` and `establish` with its number; EINVAL on an id that is not RoCE's.
 */
export class HostCm {
  readonly #manager: ConnectionManager;
  /** Undefined without RoCE devices. */
  #roce: RoceCm | undefined;
  readonly #hasIwarp: boolean;
  readonly #user: HostCmUser;
  /** Ids bound on RoCE only, at an address of both wires: another program has the TCP port. */
  readonly #roceAlone = new Set<HostId>();
  #nextNumber = 0;

  /** `hasIwarp`: whether there are iWARP devices. */
  constructor(manager: ConnectionManager, hasIwarp: boolean, user: HostCmUser) {
    this.#manager = manager;
    this.#hasIwarp = hasIwarp;
    this.#user = user;
  }

  /** Adds RoCE, before the first id. */
  addRoce(roce: RoceCm): void {
    this.#roce = roce;
  }

  /**
   * Makes an id. Its events, and the connect requests of its listener, carry `tag`. `portSpace` is a
   * `PortSpace`; `datagram` is true for ids of UD queue pairs. Throws ENOMEM.
   */
  createId(tag: unknown, portSpace: number = PortSpace.tcp, datagram = false): HostId {
    const id = this.#newId(tag, portSpace, datagram);
    if (this.#wires(id).has('iwarp')) {
      id.iwarp = this.#manager.createId(id);
      id.iwarp.portSpace = portSpace;
    }
    return id;
  }

  /** Binds to a local address, port 0 for a free one; `id.localAddress` then has the port. */
  bindAddr(id: HostId, address: SocketAddress): void {
    const parsed = parseSocketAddress(address);
    if (id.portSpace === PortSpace.ipoib && this.#determinesDevice(parsed.address)) {
      throw invalid(IPOIB_TEXT);
    }
    this.#bind(id, parsed);
    id.namedPort = parsed.port !== 0;
  }

  #bind(id: HostId, address: SocketAddress): void {
    const wires = this.#wiresOf(id, address.address);
    if (id.iwarp !== undefined && wires.has('iwarp')) {
      if (wires.has('roce')) this.#bindBoth(id, address);
      else this.#manager.bindAddr(id.iwarp, address);
      if (id.device !== undefined) this.#leave(id, 'roce');
      return;
    }
    id.iwarp?.expect('idle');
    this.#expectRoce(id).bind(id, address);
    this.#leave(id, 'iwarp');
  }

  /**
   * Binds the same port on both wires. If another program has it on TCP, binds on RoCE only: a program may
   * serve TCP and RDMA on one port.
   */
  #bindBoth(id: HostId, address: SocketAddress): void {
    const roce = this.#expectRoce(id);
    for (let left = FREE_PORT_TRIES; ; left -= 1) {
      const iwarp = ofIwarp(id);
      const free = this.#bindIwarp(iwarp, address);
      try {
        roce.bind(id, iwarp.localAddress ?? address);
        if (!free) this.#leaveToTcp(id);
        return;
      } catch (error) {
        // A bound id cannot be bound again, so replace it.
        this.#manager.destroy(iwarp, this.#user.now());
        id.iwarp = this.#replaced(iwarp);
        if (!isVerbsError(error) || address.port !== 0 || left === 0) throw error;
      }
    }
  }

  /** False if a program outside this host has the port. */
  #bindIwarp(iwarp: CmId, address: SocketAddress): boolean {
    try {
      this.#manager.bindAddr(iwarp, address);
    } catch (error) {
      if (this.#isTakenByTcp(error, iwarp, address)) return false;
      throw error;
    }
    return !this.#manager.isTaken(iwarp);
  }

  /** True if a program outside this host has the port. */
  #isTakenByTcp(error: unknown, iwarp: CmId, address: SocketAddress): boolean {
    if (!isVerbsError(error) || error.code !== 'EADDRINUSE') return false;
    return !this.#manager.clashes(iwarp, address);
  }

  #leaveToTcp(id: HostId): void {
    this.#leave(id, 'iwarp');
    this.#roceAlone.add(id);
  }

  #replaced(id: CmId): CmId {
    const { tag, refusalPatienceMs, portKeeper, program, account } = id;
    const { portSpace, afOnly, reuseAddress } = id;
    const options = { portSpace, afOnly, reuseAddress };
    const kept = { refusalPatienceMs, portKeeper, program, account, ...options };
    return Object.assign(this.#manager.createId(tag), kept);
  }

  /**
   * Whether `::` leaves the IPv4 addresses of its port to others (RDMA_OPTION_ID_AFONLY), also for a bound
   * id. EINVAL in later states.
   */
  setAfOnly(id: HostId, afOnly: boolean): void {
    const { state } = id;
    if (state !== 'idle' && state !== 'bound') {
      throw invalid(`RDMA_OPTION_ID_AFONLY is for an id that is idle or bound; it is ${state}`);
    }
    if (id.iwarp !== undefined) this.#manager.setAfOnly(id.iwarp, afOnly);
    id.afOnly = afOnly;
  }

  /**
   * Whether the id may share its port with other such ids, until one of them listens
   * (RDMA_OPTION_ID_REUSEADDR). EINVAL to set it on a listening id, or to clear it on a bound one.
   */
  setReuseAddress(id: HostId, reuse: boolean): void {
    const { state } = id;
    if (reuse ? state === 'listening' : state !== 'idle') {
      throw invalid(`RDMA_OPTION_ID_REUSEADDR is for an id before it is bound; it is ${state}`);
    }
    id.reuseAddress = reuse;
  }

  /**
   * Determines device and source address. The outcome arrives as an event before this returns. A destination
   * that only a RoCE device of this host has uses RoCE; otherwise an iWARP device with the source address
   * comes first.
   */
  resolveAddr(id: HostId, destination: SocketAddress, source: SocketAddress | undefined): void {
    const to = parseSocketAddress(destination);
    const from = source === undefined ? undefined : parseSocketAddress(source);
    if (id.portSpace === PortSpace.ipoib && (id.state === 'idle' || id.state === 'bound')) {
      this.#user.deliver(ipoibError(id));
      return;
    }
    const wires = this.#wiresTowards(id, to, from?.address);
    if (id.iwarp !== undefined && wires.has('iwarp')) {
      this.#manager.resolveAddr(id.iwarp, destination, source);
      if (id.iwarp.device !== undefined) this.#leave(id, 'roce');
    } else {
      const roce = this.#expectRoce(id);
      id.iwarp?.expect('idle', 'bound');
      if (from !== undefined && id.localAddress === undefined) roce.bind(id, from);
      const address = wildcardAsLoopback(to.address);
      if (roce.resolveAddr(id, { address, port: to.port })) this.#leave(id, 'iwarp');
    }
    this.#user.drain();
  }

  /** For symmetry with rdma_cm; the event follows at once. `id.roce.path` is known then. */
  resolveRoute(id: HostId): void {
    const roce = this.#roceOf(id);
    if (roce === undefined) this.#manager.resolveRoute(ofIwarp(id));
    else roce.resolveRoute(id);
    this.#user.drain();
  }

  /** Listens; connect requests arrive as events with new ids. A wildcard listener accepts iWARP and RoCE. */
  listen(id: HostId, backlog: number): void {
    if (id.state === 'idle' && this.#roce !== undefined) {
      this.bindAddr(id, { address: IPV4_ANY, port: 0 });
    }
    const roce = id.roce === undefined ? undefined : this.#roce;
    roce?.listen(id, backlog);
    const { iwarp, localAddress } = id;
    try {
      if (iwarp !== undefined) this.#manager.listen(iwarp, backlog);
    } catch (error) {
      const taken = iwarp && localAddress && this.#isTakenByTcp(error, iwarp, localAddress);
      if (roce === undefined || taken !== true) {
        roce?.unlisten(id);
        throw error;
      }
      this.#leaveToTcp(id);
    }
    if (this.#roceAlone.has(id) && localAddress !== undefined) {
      this.#user.noteRoceAlone(localAddress);
    }
    // A listener does not share its port with later ids.
    id.reuseAddress = false;
  }

  /** Starts to connect; the outcome arrives as an event. EINVAL for a QP of another device. */
  connect(id: HostId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    const roce = this.#roceOf(id);
    if (roce === undefined) {
      this.#manager.connect(ofIwarp(id), qp, parameters, this.#user.now());
    } else roce.connect(id, this.#programParameters(id, qp, parameters), qp);
    this.#user.drain();
  }

  /**
   * Accepts a connect request; 'established' arrives as an event. EINVAL for a QP of another
   * device.
   */
  accept(id: HostId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    const roce = this.#roceOf(id);
    if (roce === undefined) {
      this.#manager.accept(ofIwarp(id), qp, parameters, this.#user.now());
    } else roce.accept(id, this.#programParameters(id, qp, parameters), qp);
    this.#user.drain();
  }

  /**
   * Rejects a connect request. `reason` is InfiniBand's; default: 28, the program's own. A program that moves
   * its queue pair also uses it to reject a connect response.
   */
  reject(id: HostId, privateData: Uint8Array, reason: number = CONSUMER_DEFINED): void {
    const roce = this.#roceOf(id);
    if (roce === undefined) this.#manager.reject(ofIwarp(id), privateData, this.#user.now());
    else roce.reject(id, reason, privateData);
    this.#user.drain();
  }

  /**
   * Closes gracefully; 'disconnected' arrives as an event. For a program that moves its queue pair itself,
   * the event follows once its peer has disconnected, too.
   */
  disconnect(id: HostId): void {
    const roce = this.#roceOf(id);
    if (roce === undefined) this.#manager.disconnect(ofIwarp(id), this.#user.now());
    else roce.disconnect(id);
    this.#user.drain();
  }

  /** Destroys an id in any state; it gets no further events. */
  destroy(id: HostId): void {
    this.#roceAlone.delete(id);
    if (id.iwarp !== undefined) this.#manager.destroy(id.iwarp, this.#user.now());
    this.#roce?.destroy(id);
    this.#user.drain();
  }

  /**
   * The device that an id reports to its program: its own. A loopback address determines no device, but
   * servers at 127.0.0.1 and a port expect one, so report the one that connections to it most likely use.
   * Undefined for port 0: libfabric binds that to list all devices, and would find none.
   */
  reportedDevice(id: HostId): string | undefined {
    if (id.device !== undefined) return id.device;
    const { localAddress } = id;
    if (localAddress === undefined || !id.namedPort) return undefined;
    if (!isLoopback(localAddress.address)) return undefined;
    if (id.iwarp !== undefined) return this.#manager.likelyDevice(localAddress.address);
    return this.#roce?.likelyDevice;
  }

  /** Local addresses of listeners that accept on RoCE only, because another program has their TCP port. */
  roceAloneAddresses(): readonly SocketAddress[] {
    const listeners = [...this.#roceAlone].filter(({ state }) => state === 'listening');
    return listeners.flatMap(({ localAddress }) => localAddress ?? []);
  }

  // For programs that move their queue pair themselves

  /**
   * Starts to connect queue pair `parameters.qpn`; 'connectResponse' arrives as an event, or 'established'
   * for datagrams.
   */
  request(id: HostId, parameters: ProgramParameters): void {
    this.#expectRoce(id).connect(id, parameters);
    this.#user.drain();
  }

  /** Accepts a connect request; 'established' arrives as an event, except for datagrams. */
  answer(id: HostId, parameters: ProgramParameters): void {
    this.#expectRoce(id).accept(id, parameters);
    this.#user.drain();
  }

  /** Completes a connect response: the queue pair is in RTS. No event follows. */
  establish(id: HostId): void {
    this.#expectRoce(id).establish(id);
    this.#user.drain();
  }

  /** Data arrived at the queue pair before the peer's RTU (RDMA_USER_CM_CMD_NOTIFY). */
  noteCommunication(id: HostId): void {
    this.#expectRoce(id).noteCommunication(id);
    this.#user.drain();
  }

  /**
   * The attributes with which the id's queue pair enters `state` (RDMA_USER_CM_CMD_INIT_QP_ATTR). Before the
   * id connects, every state gets those of INIT.
   */
  qpAttributes(id: HostId, state: QPState): QPModification {
    return this.#expectRoce(id).qpAttributes(id, state);
  }

  // For the host

  /** Translates an event of iWARP's manager for the owner of its id. */
  eventOf(event: CmEvent): HostCmEvent | undefined {
    const { tag } = event.id;
    if (!(tag instanceof HostId)) return undefined;
    if (event.listener === undefined) return { ...event, id: tag, listener: undefined };
    const id = this.childOf(tag);
    id.iwarp = event.id;
    event.id.tag = id;
    return { ...event, id, listener: tag };
  }

  /** Makes the id of a request to `listener`. */
  childOf({ tag, portSpace, datagram }: HostId): HostId {
    return this.#newId(tag, portSpace, datagram);
  }

  // Choice of the wire

  /** True if an id has a device once it is bound to the address. */
  #determinesDevice(address: string): boolean {
    const manager = this.#manager;
    if (!manager.leavesDeviceOpen(address) && manager.answersFor(address)) return true;
    if (this.#roce?.leavesPortOpen(address) !== false) return false;
    return this.#roce.routes.portNow(address) !== undefined;
  }

  /** The wires that this host has for such an id; iWARP, with its errors, if there is none. */
  #wires({ datagram }: HostId): Wires {
    const wires = new Set<DeviceTransport>();
    const roce = this.#roce !== undefined;
    if (this.#hasIwarp && !(datagram && roce)) wires.add('iwarp');
    if (roce) wires.add('roce');
    if (wires.size === 0) wires.add('iwarp');
    return wires;
  }

  /** The wires of an id with this local address. */
  #wiresOf(id: HostId, address: string): Wires {
    const wires = this.#wires(id);
    if (wires.size === 1) return wires;
    const iwarpOpen = this.#manager.leavesDeviceOpen(address);
    if (iwarpOpen && this.#roce?.leavesPortOpen(address) === true) return wires;
    if (this.#manager.answersFor(address)) return IWARP;
    return this.#roce?.routes.portNow(address) === undefined ? IWARP : ROCE;
  }

  /** The wires of an id that dials. */
  #wiresTowards(id: HostId, destination: SocketAddress, source: string | undefined): Wires {
    const bound = id.localAddress?.address ?? source;
    const wires = bound === undefined ? this.#wires(id) : this.#wiresOf(id, bound);
    if (wires.size === 1 || this.#roce === undefined) return wires;
    const to = wildcardAsLoopback(destination.address);
    const isOfRoce = this.#roce.routes.portOf(to) !== undefined;
    const ownRoce =
      (isOfRoce && !this.#manager.answersFor(to)) ||
      ((isOfRoce || isLoopback(to)) && this.#listensOnRoceAlone(to, destination.port));
    if (!ownRoce && this.#manager.reaches(to)) return IWARP;
    return ownRoce || !('error' in this.#roce.routes.find(to, undefined)) ? ROCE : IWARP;
  }

  /** True if iWARP would connect to another program's TCP listener at this address of the host. */
  #listensOnRoceAlone(address: string, port: number): boolean {
    for (const { state, localAddress, afOnly } of this.#roceAlone) {
      if (state !== 'listening' || localAddress?.port !== port) continue;
      const at = localAddress.address;
      const isAny =
        at === IPV6_ANY
          ? addressFamily(address) === 6 || afOnly !== true
          : at === IPV4_ANY && addressFamily(address) === 4;
      if (isAny || at === address) return true;
    }
    return false;
  }

  /** Removes the id from this wire. */
  #leave(id: HostId, wire: DeviceTransport): void {
    if (wire === 'roce') this.#roce?.drop(id);
    else if (id.iwarp !== undefined) {
      const { iwarp } = id;
      id.iwarp = undefined;
      iwarp.tag = undefined;
      this.#manager.destroy(iwarp, this.#user.now());
    }
  }

  /** RoCE's manager, if the id is on RoCE only. */
  #roceOf(id: HostId): RoceCm | undefined {
    return id.iwarp === undefined ? this.#roce : undefined;
  }

  #expectRoce(id: HostId): RoceCm {
    if (this.#roce === undefined) throw invalid(`${id.device ?? 'the id'} is not a RoCE device`);
    return this.#roce;
  }

  #programParameters(id: HostId, qp: QP, parameters: CMParameters): ProgramParameters {
    if (qp.type === QPType.ud) {
      throw invalid('queue pairs of datagrams do not connect: use address handles');
    }
    if (Object.values(parameters.wire ?? {}).some((value) => value !== undefined)) {
      throw new VerbsError('EOPNOTSUPP', 'wire options are those of iWARP devices');
    }
    const device = this.#user.cmDeviceOf(id.device ?? '');
    if (device === undefined) throw invalid('the id has no device');
    const { ird, ord } = requestedDepths(device, parameters);
    return {
      qpn: qp.qpn,
      srq: qp.srq !== undefined,
      privateData: parameters.privateData,
      responderResources: ird,
      initiatorDepth: ord,
      flowControl: true,
      retryCount: RETRIES,
      rnrRetry: RETRIES,
      qkey: 0,
    };
  }

  #newId(tag: unknown, portSpace: number, datagram: boolean): HostId {
    return new HostId(this.#nextNumber++, tag, portSpace, datagram);
  }

  #sameDevice(id: HostId, qp: QP): void {
    if (id.device !== undefined && this.#user.deviceOf(qp) !== id.device) {
      throw invalid(
        `the queue pair belongs to another device than the id, which uses ${id.device}`,
      );
    }
  }
}

const IWARP: Wires = new Set<DeviceTransport>(['iwarp']);
const ROCE: Wires = new Set<DeviceTransport>(['roce']);

function ofIwarp({ iwarp }: HostId): CmId {
  if (iwarp === undefined) throw invalid('the id does not use an iWARP device');
  return iwarp;
}

/** The outcome of resolving an address, as in the kernel: no device here is InfiniBand. */
function ipoibError(id: HostId): HostCmEvent {
  return {
    type: CMEventType.addrError,
    id,
    listener: undefined,
    error: 'EINVAL',
    privateData: NO_BYTES,
    initiatorDepth: undefined,
    responderResources: undefined,
    text: IPOIB_TEXT,
  };
}
