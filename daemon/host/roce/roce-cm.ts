/**
 * Connection ids on RoCE devices: maps rdma_cm's addresses and ports to the communication manager's service
 * ids and GIDs, and translates events.
 *
 * `HostCm` calls it for ids that are, or may become, RoCE's. If the host moves the queue pair (`RoceId.qp`),
 * queue-pair-driver.ts does it.
 */
import {
  addressBytes,
  addressFamily,
  IPV4_ANY,
  IPV6_ANY,
  isLoopback,
  isWildcard,
} from '#base/address';
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { CMEventType, QPState, QPType } from '#contract/verbs/enums';
import { type ErrnoCode, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { stepMask } from '#daemon/rnic/ib-transitions';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { IbCmEvent } from '#daemon/roce/cm/cm-events';
import { lifeTimeOf } from '#daemon/roce/cm/cm-times';
import type { CmEndFacts, CmPeerFacts } from '#daemon/roce/cm/cm-types';
import { CommunicationManager } from '#daemon/roce/cm/communication-manager';
import { RejectReason, SidrStatus } from '#daemon/roce/wire/cm-message';
import { IP_REQUEST_BYTES, parseIpRequest, writeIpRequest } from '#daemon/roce/wire/ip-request';
import { gidAddress, gidBytes } from '../host-addresses.ts';
import type { HostCmEvent, HostId, IbEventFacts, ProgramParameters } from '../host-id.ts';
import { isolatedText } from '../links/isolated-text.ts';
import { GeneralServices } from './general-services.ts';
import type { PacketNetwork } from './packet-network.ts';
import { QueuePairDriver } from './queue-pair-driver.ts';
import { RefusedRequests } from './refused-requests.ts';
import { RoceId } from './roce-id.ts';
import { RoceRoutes, type RouteHost } from './roce-routes.ts';
import { type PortHolder, ServicePorts } from './service-ports.ts';

/** The manager's interface to its host. */
export interface RoceCmHost extends RouteHost {
  readonly isolated?: boolean;
  now(): Micros;
  /** Makes the id of a request to `listener`. */
  childOf(listener: HostId): HostId;
  deliver(event: HostCmEvent): void;
}

/** The key of rdma_cm's datagram queue pairs. */
const DATAGRAM_QKEY = 0x0123_4567;
const PORT = 1;
/** Limits of the program's private data, after rdma_cm's own header. */
const REQUEST_DATA_MAX = 92 - IP_REQUEST_BYTES;
const SERVICE_DATA_MAX = 216 - IP_REQUEST_BYTES;
const ANSWER_DATA_MAX = 196;
const SERVICE_ANSWER_MAX = 136;
const RETRY_MAX = 7;
const DEPTH_MAX = 255;
const NO_BYTES = new Uint8Array(0);
const SERVICE_REFUSALS: Readonly<Partial<Record<number, string>>> = {
  [SidrStatus.noService]: 'no datagram service at that port',
  [SidrStatus.rejected]: 'the service rejected the request',
};
const NO_FACTS: IbEventFacts = {
  status: 0,
  qpn: 0,
  flowControl: false,
  retryCount: 0,
  rnrRetry: 0,
  srq: false,
  qkey: 0,
};

/** True if the service has no listener. */
function foundNoListener(event: IbCmEvent): boolean {
  if (event.type === 'rejected') return event.reason === RejectReason.invalidServiceId;
  return event.type === 'service-reply' && event.service.status === SidrStatus.noService;
}

export class RoceCm {
  readonly routes: RoceRoutes;
  readonly #host: RoceCmHost;
  readonly #manager: CommunicationManager;
  readonly #services: GeneralServices;
  readonly #ports: ServicePorts;
  readonly #driver: QueuePairDriver;
  readonly #ids = new Set<HostId>();
  readonly #refused = new RefusedRequests();

  constructor(host: RoceCmHost, network: PacketNetwork) {
    this.#host = host;
    this.routes = new RoceRoutes(host);
    this.#manager = new CommunicationManager({
      random32: () => host.random32(),
      accountOf: (tag) => (tag as HostId).account,
    });
    this.#ports = new ServicePorts(() => host.random32());
    this.#services = new GeneralServices(network, (mad, port, sourceGid, destGid) => {
      this.#manager.handleMad(mad, port, sourceGid, destGid, host.now());
    });
    this.#driver = new QueuePairDriver(this.#manager, (id, roce, error, text) => {
      this.#end(id, roce, error, text);
    });
  }

  // Commands

  /** Binds to a local address; port 0 for a free one. Throws EINVAL, EADDRINUSE, EADDRNOTAVAIL. */
  bind(id: HostId, { address, port }: SocketAddress): void {
    const roce = id.roce ?? new RoceId();
    roce.expect('idle');
    const open = this.leavesPortOpen(address);
    const device = open ? undefined : this.routes.portNow(address);
    if (!open && device === undefined) {
      throw new VerbsError('EADDRNOTAVAIL', `no RoCE device has the address ${address}`);
    }
    // A loopback address stands for all addresses of the devices, so reserve the port there, too.
    const reach = open ? wildcardOf(address) : address;
    const held = this.#ports.hold(holderOf(id), { address, port, reach });
    id.roce = roce;
    this.#ids.add(id);
    roce.port = device;
    roce.localAddress = { address, port: held };
    roce.enter('bound');
  }

  /** The device that an id at a loopback address reports to its program: the only one. */
  get likelyDevice(): string | undefined {
    const [first, ...others] = this.#host.rocePorts().filter((port) => port !== undefined);
    return others.length === 0 ? first?.name : undefined;
  }

  /** True for an address that determines no port. */
  leavesPortOpen(address: string): boolean {
    if (isWildcard(address)) return true;
    return isLoopback(address) && this.routes.portOf(address) === undefined;
  }

  /**
   * Determines port, source and path. The outcome is an event; returns true for success. After a failure the
   * id is unchanged.
   */
  resolveAddr(id: HostId, destination: SocketAddress): boolean {
    const roce = id.roce ?? new RoceId();
    roce.expect('idle', 'bound');
    id.roce = roce;
    this.#ids.add(id);
    const bound = roce.localAddress;
    const source = bound !== undefined && !this.leavesPortOpen(bound.address) ? bound : undefined;
    const route = this.routes.find(destination.address, source?.address);
    if ('error' in route) {
      const { address } = destination;
      const leaves = this.#host.isolated === true && route.error === 'ENETUNREACH';
      const text = leaves ? isolatedText(address) : `no RoCE device reaches ${address}`;
      this.#report(id, CMEventType.addrError, { error: route.error, text });
      return false;
    }
    const path = this.routes.path(route, id.typeOfService);
    if ('error' in path) {
      this.#report(id, CMEventType.addrError, path);
      return false;
    }
    const address = route.source;
    try {
      const port = bound?.port ?? this.#ports.hold(holderOf(id), { address, port: 0 });
      this.#ports.move(holderOf(id), address);
      roce.localAddress = { address, port };
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      const { code, message } = error;
      this.#report(id, CMEventType.addrError, { error: code, text: message });
      return false;
    }
    roce.port = route.port;
    roce.peerAddress = { address: route.destination, port: destination.port };
    const lifeTime =
      id.ackTimeout === undefined ? {} : { packetLifeTime: lifeTimeOf(id.ackTimeout) };
    roce.path = { ...path, ...lifeTime };
    roce.enter('resolved');
    this.#report(id, CMEventType.addrResolved, {
      text: `through device ${route.port.name}`,
    });
    return true;
  }

  resolveRoute(id: HostId): void {
    const roce = roceOf(id);
    roce.expect('resolved');
    roce.enter('routed');
    this.#report(id, CMEventType.routeResolved, { text: 'the path is known' });
  }

  /**
   * Opens ports with configured addresses to other hosts, before the first listener. Ports for all addresses
   * open with the first listener or dial, so that several such daemons can coexist until then.
   */
  openNamedPorts(): void {
    for (const own of this.#host.rocePorts()) if (own.named) this.#services.open(own);
  }

  /** Listens at the bound port. Throws EINVAL, EADDRINUSE, EADDRNOTAVAIL. */
  listen(id: HostId, backlog: number): void {
    const roce = roceOf(id);
    roce.expect('bound');
    if (id.reuseAddress) this.#ports.assertAlone(holderOf(id));
    const { address, port } = roce.localAddress ?? { address: '', port: 0 };
    const open = this.leavesPortOpen(address);
    const narrow = addressFamily(address) === 4 || id.afOnly === true;
    const scope = {
      port: roce.port,
      gid: open ? undefined : gidBytes(address),
      family: open && narrow ? addressFamily(address) : undefined,
    };
    roce.listener = this.#manager.listen(serviceIdOf(id.portSpace, port), scope, backlog, id);
    roce.enter('listening');
    for (const own of this.#host.rocePorts()) {
      if ((roce.port ?? own) === own) this.#services.open(own);
    }
  }

  /** Stops listening and restores the state before `listen`. */
  unlisten(id: HostId): void {
    const { roce } = id;
    if (roce?.listener === undefined) return;
    this.#manager.destroy(roce.listener, this.#host.now());
    roce.listener = undefined;
    roce.enter('bound');
  }

  /** Sends a request. With `qp`, the host moves that queue pair. Throws EINVAL, EISCONN, ENOMEM. */
  connect(id: HostId, parameters: ProgramParameters, qp?: QP): void {
    const roce = roceOf(id);
    roce.expect('resolved', 'routed');
    const { path, localAddress, peerAddress } = roce;
    if (roce.port === undefined || path === undefined || localAddress === undefined) {
      throw invalid('the address or the route of the id is not resolved yet');
    }
    if (peerAddress === undefined || peerAddress.port === 0) {
      throw invalid('a connection needs a port at its destination');
    }
    checkLength(parameters.privateData, id.datagram ? SERVICE_DATA_MAX : REQUEST_DATA_MAX);
    const privateData = writeIpRequest(
      {
        sourcePort: localAddress.port,
        source: addressBytes(localAddress.address),
        destination: addressBytes(peerAddress.address),
      },
      parameters.privateData,
    );
    const serviceId = serviceIdOf(id.portSpace, peerAddress.port);
    const now = this.#host.now();
    if (qp !== undefined) this.#driver.expectFree(qp);
    this.#services.open(roce.port);
    if (id.datagram) {
      roce.connection = this.#manager.askService(serviceId, path, privateData, id, now);
    } else {
      const facts = { ...factsOf(parameters), privateData };
      const retryCount = Math.min(parameters.retryCount, RETRY_MAX);
      const type = qp?.type === QPType.uc ? QPType.uc : QPType.rc;
      const { ackTimeout } = id;
      const request = { ...facts, serviceId, type, path, retryCount, ackTimeout };
      roce.connection = this.#manager.connect(request, id, now);
    }
    if (qp === undefined) this.#refused.begin(id, parameters, now);
    else this.#driver.take(id, roce, qp);
    roce.enter('connection');
  }

  /** Repeats a request that found no listener. */
  #askAgain(id: HostId, parameters: ProgramParameters, now: Micros): void {
    const roce = roceOf(id);
    if (roce.connection !== undefined) this.#manager.destroy(roce.connection, now);
    roce.enter('routed');
    try {
      this.connect(id, parameters);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      this.#refused.end(id);
      roce.enter('closed');
      const { code, message } = error;
      this.#report(id, CMEventType.unreachable, { error: code, text: message });
    }
  }

  /** Accepts a request. With `qp`, the host moves that queue pair. Throws EINVAL, EISCONN. */
  accept(id: HostId, parameters: ProgramParameters, qp?: QP): void {
    const roce = roceOf(id);
    const connection = connectionOf(roce);
    const now = this.#host.now();
    if (id.datagram) {
      const qkey = parameters.qkey === 0 ? DATAGRAM_QKEY : parameters.qkey;
      const { qpn, privateData } = parameters;
      checkLength(privateData, SERVICE_ANSWER_MAX);
      const service = { status: SidrStatus.valid, qpn, qkey, privateData };
      this.#manager.answerService(connection, service, now);
      return;
    }
    if (connection.state === 'idle') {
      throw new VerbsError('ECONNRESET', 'the peer gave up before its request was accepted');
    }
    if (connection.state !== 'req-rcvd') {
      throw invalid(
        id.passive
          ? `the request was answered already: the connection is ${connection.state}`
          : 'the id connects itself: the id of a CONNECT_REQUEST event accepts',
      );
    }
    const facts = factsOf(parameters);
    checkLength(facts.privateData, ANSWER_DATA_MAX);
    if (qp !== undefined) {
      this.#driver.expectFree(qp);
      this.#driver.ready(connection, qp, facts, now);
    }
    this.#manager.accept(connection, facts, now);
    if (qp !== undefined) this.#driver.take(id, roce, qp);
  }

  /** The program's queue pair is in RTS. */
  establish(id: HostId): void {
    this.#manager.establish(connectionOf(roceOf(id)));
  }

  noteCommunication(id: HostId): void {
    this.#manager.noteCommunication(connectionOf(roceOf(id)));
  }

  /** Rejects a request, or the answer to one. Throws EINVAL also for too much private data. */
  reject(id: HostId, reason: number, privateData: Uint8Array): void {
    const roce = roceOf(id);
    const connection = connectionOf(roce);
    const now = this.#host.now();
    if (id.datagram) {
      const refusal = { status: SidrStatus.rejected, qpn: 0, qkey: 0, privateData };
      this.#manager.answerService(connection, refusal, now);
    } else this.#manager.reject(connection, reason, privateData, now);
    roce.enter('closed');
  }

  disconnect(id: HostId): void {
    const roce = roceOf(id);
    if (id.datagram || roce.state === 'closed') return;
    const connection = connectionOf(roce);
    const now = this.#host.now();
    if (roce.qp !== undefined) this.#driver.disconnect(id, roce, now);
    else this.#manager.disconnect(connection, now);
  }

  /** Destroys an id in any state. */
  destroy(id: HostId): void {
    const { roce } = id;
    if (roce === undefined || !this.#ids.delete(id)) return;
    const now = this.#host.now();
    this.#refused.end(id);
    this.#release(id);
    this.#driver.release(roce, now);
    if (roce.listener !== undefined) this.#manager.destroy(roce.listener, now);
    if (roce.connection !== undefined) this.#manager.destroy(roce.connection, now);
    roce.enter('destroyed');
  }

  /** The id uses the other wire. */
  drop(id: HostId): void {
    this.destroy(id);
    id.roce = undefined;
  }

  qpAttributes(id: HostId, state: QPState): QPModification {
    const roce = roceOf(id);
    if (id.datagram) {
      const mask = stepMask(QPType.ud, QPState.INIT);
      return { mask, state, pkeyIndex: 0, portNum: PORT, qkey: DATAGRAM_QKEY };
    }
    if (roce.connection === undefined) {
      const mask = stepMask(QPType.rc, QPState.INIT);
      return { mask, state, accessFlags: 0, pkeyIndex: 0, portNum: PORT };
    }
    const move = this.#manager.qpAttributes(roce.connection, state);
    return { ...move, timeout: id.ackTimeout ?? move.timeout ?? 0 };
  }

  // For the host

  /** Executes the manager's effects; true if there were any. */
  drainEffects(now: Micros): boolean {
    let any = false;
    for (;;) {
      const effect = this.#manager.pollEffect();
      if (effect === undefined) return any;
      any = true;
      if (effect.type === 'send') this.#services.send(effect.path, effect.mad, now);
      else this.#handle(effect.event, now);
    }
  }

  /** A queue pair has sent all work that was posted before it stopped. */
  handleDrained(qp: QP): void {
    this.#driver.handleDrained(qp, this.#host.now());
  }

  /** A queue pair failed. */
  handleQPFailed(qp: QP, text: string): void {
    this.#driver.handleFailed(qp, text, this.#host.now());
  }

  nextDeadline(): Micros {
    return Math.min(
      this.#manager.nextDeadline(),
      this.#driver.nextDeadline(),
      this.#refused.nextDeadline(),
    );
  }

  handleDeadline(now: Micros): void {
    this.#manager.handleDeadline(now);
    this.#driver.handleDeadline(now);
    for (const [id, parameters] of this.#refused.takeDue(now)) this.#askAgain(id, parameters, now);
  }

  /** Ids not destroyed. */
  ids(): readonly HostId[] {
    return [...this.#ids];
  }

  /** How much it keeps, for simulations and tests. */
  heldCounts() {
    return {
      ...this.#manager.heldCounts(),
      roceIds: this.#ids.size,
      rocePorts: this.#ports.size,
      roceMads: this.#services.waiting,
      roceQPs: this.#driver.size,
    };
  }

  /** Call between two turns, in simulations and tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#manager.assertInvariants();
    this.#driver.assertInvariants();
    this.#refused.assertInvariants((id) => this.#ids.has(id));
    for (const { roce } of this.#ids) {
      assert(roce !== undefined && roce.state !== 'destroyed', 'destroyed id is still known');
      if (roce.state === 'listening')
        assert(roce.listener !== undefined, 'listening id without a listener');
      if (roce.state === 'resolved') assert(roce.path !== undefined, 'resolved id without a path');
    }
  }

  // Events

  #handle(event: IbCmEvent, now: Micros): void {
    const { connection } = event;
    if (event.type === 'request' || event.type === 'service-request') {
      this.#handleRequest(event, now);
      return;
    }
    const id = connection.tag as HostId;
    const { roce } = id;
    if (roce === undefined || roce.state === 'destroyed') return;
    if (foundNoListener(event) && this.#refused.refused(id, now)) return;
    this.#refused.end(id);
    switch (event.type) {
      case 'reply':
        this.#handleReply(id, roce, event.reply, now);
        return;
      case 'service-reply': {
        const { status, qpn, qkey, privateData } = event.service;
        const ib = { ...NO_FACTS, status, qpn, qkey };
        if (status === SidrStatus.valid) {
          this.#report(id, CMEventType.established, { ib, privateData, text: 'answered' });
          return;
        }
        roce.enter('closed');
        const text = SERVICE_REFUSALS[status] ?? `the service refused with status ${status}`;
        const error = 'ECONNREFUSED';
        this.#report(id, CMEventType.unreachable, { error, ib, privateData, text });
        return;
      }
      case 'established': {
        const depths = roce.qp && this.#driver.depths(connection);
        roce.established = true;
        this.#report(id, CMEventType.established, { ...depths, text: 'established' });
        return;
      }
      case 'rejected':
        this.#handleRejected(id, roce, event.reason, event.privateData, now);
        return;
      case 'unreachable':
        this.#driver.release(roce, now);
        roce.enter('closed');
        this.#report(id, CMEventType.unreachable, {
          error: 'ETIMEDOUT',
          text: 'no response from the peer',
        });
        return;
      case 'disconnect-requested':
        if (roce.qp !== undefined) this.#driver.handlePeerLeft(roce, now);
        this.#end(id, roce, undefined, 'disconnected');
        return;
      case 'disconnected':
        this.#driver.release(roce, now);
        roce.enter('closed');
        this.#end(id, roce, event.timedOut ? 'ETIMEDOUT' : undefined, 'disconnected');
        return;
      case 'timewait-exit':
        roce.enter('closed');
        // Programs that leave their queue pair to the host do not wait for this.
        if (roce.qp !== undefined) return;
        this.#report(id, CMEventType.timewaitExit, { text: 'the queue pair is free' });
        return;
      default:
        event satisfies never;
    }
  }

  #handleRequest(
    event: Extract<IbCmEvent, { readonly type: 'request' | 'service-request' }>,
    now: Micros,
  ): void {
    const { connection, listener } = event;
    const listening = listener.tag as HostId;
    const whole = event.type === 'request' ? event.request.privateData : event.privateData;
    const addresses = parseIpRequest(whole);
    if (addresses === undefined) {
      // Requests of rdma_cm have this header, and the service is rdma_cm's.
      this.#manager.destroy(connection, now);
      return;
    }
    const { path } = connection;
    const id = this.#host.childOf(listening);
    const roce = new RoceId();
    id.roce = roce;
    this.#ids.add(id);
    connection.tag = id;
    roce.enter('connection');
    roce.passive = true;
    roce.connection = connection;
    roce.path = path;
    roce.port = this.#host.rocePorts().find((port) => port === path.port);
    const port = listening.roce?.localAddress?.port ?? 0;
    roce.localAddress = { address: gidAddress(path.sgid), port };
    roce.peerAddress = { address: gidAddress(path.dgid), port: addresses.sourcePort };
    const facts = event.type === 'request' ? requestFacts(event.request, connection) : {};
    this.#report(id, CMEventType.connectRequest, {
      ...facts,
      listener: listening,
      privateData: whole.subarray(IP_REQUEST_BYTES),
      text: `a request from ${roce.peerAddress.address}`,
    });
  }

  #handleReply(id: HostId, roce: RoceId, reply: CmPeerFacts, now: Micros): void {
    const { privateData } = reply;
    const connection = connectionOf(roce);
    const { qp } = roce;
    if (qp === undefined) {
      this.#report(id, CMEventType.connectResponse, {
        ...peerFacts(reply),
        privateData,
        text: 'the peer accepted',
      });
      return;
    }
    // The peer has withdrawn its answer: another event follows.
    if (connection.state !== 'rep-rcvd') return;
    const error = this.#driver.complete(connection, qp, now);
    if (error !== undefined) {
      this.#manager.reject(connection, RejectReason.consumerDefined, NO_BYTES, now);
      this.#driver.release(roce, now);
      roce.enter('closed');
      this.#report(id, CMEventType.connectError, { error: error.code, text: error.message });
      return;
    }
    const depths = this.#driver.depths(connection);
    const { ib } = peerFacts(reply);
    roce.established = true;
    this.#report(id, CMEventType.established, {
      ...depths,
      ib,
      privateData,
      text: 'established',
    });
  }

  #handleRejected(
    id: HostId,
    roce: RoceId,
    reason: number,
    privateData: Uint8Array,
    now: Micros,
  ): void {
    const { qp } = roce;
    this.#driver.release(roce, now);
    roce.enter('closed');
    if (qp !== undefined && roce.established) {
      this.#end(id, roce, 'ECONNRESET', `the peer abandoned the connection (reason ${reason})`);
      return;
    }
    const refused = reason === RejectReason.invalidServiceId;
    this.#report(id, CMEventType.rejected, {
      error: refused ? 'ECONNREFUSED' : 'ECONNRESET',
      ib: { ...NO_FACTS, status: reason },
      privateData,
      text: refused ? 'nothing listens there' : `the peer rejected (reason ${reason})`,
    });
  }

  /** Closes the connection and notifies its owner, once. */
  #end(id: HostId, roce: RoceId, error: ErrnoCode | undefined, text: string): void {
    if (roce.qp !== undefined) roce.enter('closed');
    if (roce.endReported) return;
    roce.endReported = true;
    this.#report(id, CMEventType.disconnected, { error, text });
  }

  #report(
    id: HostId,
    type: CMEventType,
    given: Partial<HostCmEvent> & { readonly text: string },
  ): void {
    this.#host.deliver({
      listener: undefined,
      error: undefined,
      privateData: NO_BYTES,
      initiatorDepth: undefined,
      responderResources: undefined,
      ib: NO_FACTS,
      ...given,
      id,
      type,
    });
  }

  #release(id: HostId): void {
    this.#ports.release(holderOf(id));
  }
}

/** The service id of a port (`rdma_get_service_id`). */
function serviceIdOf(portSpace: number, port: number): number {
  return portSpace * 0x1_0000 + port;
}

/** The wildcard of an address's family. */
function wildcardOf(address: string): string {
  return addressFamily(address) === 4 ? IPV4_ANY : IPV6_ANY;
}

/** The port holder of an id, which has at most one port. */
function holderOf(id: HostId): PortHolder {
  return id;
}

function roceOf(id: HostId): RoceId {
  const { roce } = id;
  if (roce === undefined) throw invalid('the id has no RoCE device');
  roce.expectExists();
  return roce;
}

function connectionOf({ connection, stateText }: RoceId): CmConnection {
  if (connection !== undefined) return connection;
  throw invalid(`the id has no connection: it is ${stateText}`);
}

function checkLength({ length }: Uint8Array, max: number): void {
  if (length > max) throw invalid(`private data has ${length} bytes; for RoCE the limit is ${max}`);
}

function factsOf(parameters: ProgramParameters): CmEndFacts {
  const { qpn, srq, privateData, flowControl } = parameters;
  return {
    qpn,
    srq,
    privateData,
    flowControl,
    responderResources: Math.min(parameters.responderResources, DEPTH_MAX),
    initiatorDepth: Math.min(parameters.initiatorDepth, DEPTH_MAX),
    rnrRetry: Math.min(parameters.rnrRetry, RETRY_MAX),
  };
}

/** Facts for a program about its peer, with depths from its own side. */
function peerFacts(peer: CmPeerFacts) {
  const { qpn, flowControl, rnrRetry, srq } = peer;
  return {
    initiatorDepth: peer.responderResources,
    responderResources: peer.initiatorDepth,
    ib: { ...NO_FACTS, qpn, flowControl, rnrRetry, srq },
  };
}

function requestFacts(request: CmPeerFacts, { retryCount }: CmConnection) {
  const facts = peerFacts(request);
  return { ...facts, ib: { ...facts.ib, retryCount } };
}
