/**
 * The connection manager of a host: connection ids with the semantics of rdma_cm over iWARP.
 *
 * Commands and `handle*` inputs go in, effects come out of `pollEffect`, and `nextDeadline` returns
 * when `handleDeadline` is due. Misuse of an id throws `VerbsError` with rdma_cm's errno and
 * changes nothing. The phases of a connection are in endpoint.ts.
 */
import { IPV4_ANY, isWildcard, wildcardAsLoopback } from '#base/address';
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { CMOutcome, CMParameters } from '#contract/protocol/commands';
import { lowerLayerText } from '#contract/verbs/attributes';
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO, type ErrnoCode, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { parseSocketAddress } from '#contract/verbs/socket-address';
import type { CmEffect, CmEvent, HostNetwork } from './cm-host.ts';
import { type CmEndpoint, CmId } from './cm-id.ts';
import {
  type CmDevice,
  type CmLimits,
  type ConnectableQP,
  DEFAULT_CM_LIMITS,
  type SocketFacts,
  type StreamFactory,
} from './cm-types.ts';
import { DeviceRoutes } from './device-routes.ts';
import { DialPatience } from './dial-patience.ts';
import { Endpoint, type EndpointOwner, type RequestEvent } from './endpoint.ts';
import { KeptPorts } from './kept-ports.ts';
import { StartingConnections } from './starting-connections.ts';
import {
  checkPrivateData,
  requestedDepths,
  SharedOptions,
  streamOptions,
} from './stream-options.ts';

interface ConnectionManagerOptions {
  readonly devices: () => readonly CmDevice[];
  readonly network: HostNetwork;
  readonly createStream: StreamFactory;
  readonly limits?: Partial<CmLimits>;
}

const NO_BYTES = new Uint8Array(0);

/** Dials that time out or are retried in one turn: thousands may have been made together. */
const DIALS_DUE_MAX = 128;

export class ConnectionManager implements EndpointOwner<CmId> {
  readonly #options: ConnectionManagerOptions;
  readonly #sharedOptions = new SharedOptions();
  readonly #limits: CmLimits;
  readonly #routes: DeviceRoutes;
  readonly #ports: KeptPorts;
  readonly #effects: CmEffect[] = [];
  readonly #ids = new Set<CmId>();
  readonly #endpoints = new Set<CmEndpoint>();
  /** Endpoints with a deadline: those that dial. */
  readonly #timed = new Set<CmEndpoint>();
  /** Lower bound of their deadlines; recomputed by `handleDeadline`. */
  #timedDue: Micros = NEVER;
  /** Incoming connections whose MPA Request has not arrived yet. */
  readonly #counted: StartingConnections<CmEndpoint>;
  /** QPs between connect and the attachment to their stream. */
  readonly #dialingQPs = new Set<ConnectableQP>();
  #nextNumber = 0;

  constructor(options: ConnectionManagerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_CM_LIMITS, ...options.limits };
    this.#routes = new DeviceRoutes(options.devices, options.network);
    this.#ports = new KeptPorts(options.network);
    this.#counted = new StartingConnections(this.#limits.startupsMax);
  }

  // Commands

  /** A new id for `tag`'s owner. ENOMEM if the host has reached its limit. */
  createId(tag: unknown): CmId {
    if (this.#ids.size >= this.#limits.idsMax) {
      throw new VerbsError('ENOMEM', `no more than ${this.#limits.idsMax} connection ids`);
    }
    const id = new CmId(this.#nextNumber++, tag);
    this.#ids.add(id);
    return id;
  }

  /**
   * Binds to a local address, port 0 for a free one. A wildcard, or a loopback address that no
   * device lists, leaves the device undecided. EINVAL in a wrong state or for text that is not an
   * address; EADDRNOTAVAIL if the host does not have the address, ENODEV if no device answers for
   * it; EADDRINUSE, EACCES.
   */
  bindAddr(id: CmId, address: SocketAddress): void {
    id.expect('idle');
    this.#bind(id, parseSocketAddress(address));
  }

  /**
   * RDMA_OPTION_ID_AFONLY, also for a bound id. As in the kernel, a bound id keeps its port even if another
   * id has the same one. EINVAL in later states.
   */
  setAfOnly(id: CmId, afOnly: boolean): void {
    id.expect('idle', 'bound');
    id.afOnly = afOnly;
  }

  /**
   * Determines device and source address for a destination. The outcome is an event: address
   * resolved, or address error, which leaves the id unchanged. EINVAL for misuse. As with rdma_cm
   * the destination needs no port: programs resolve without one to find the device.
   */
  resolveAddr(id: CmId, destination: SocketAddress, source: SocketAddress | undefined): void {
    id.expect('idle', 'bound');
    const remote = parseSocketAddress(destination);
    const wanted = source === undefined ? undefined : parseSocketAddress(source);
    if (wanted !== undefined && id.state === 'idle') this.#bind(id, wanted);
    const bound = id.localAddress;
    const route = this.#routes.find(wildcardAsLoopback(remote.address), bound?.address);
    if ('error' in route) {
      const { error, text = `no device reaches ${remote.address}` } = route;
      this.#report(id, CMEventType.addrError, error, text);
      return;
    }
    if (bound === undefined) {
      const reserved = this.#ports.reserve(id, { address: route.address, port: 0 });
      if ('error' in reserved) {
        this.#report(id, CMEventType.addrError, reserved.error, 'no free source port');
        return;
      }
      id.localAddress = { address: route.address, port: reserved.port };
    } else {
      id.localAddress = { address: route.address, port: bound.port };
    }
    id.cmDevice = route.device;
    id.peerAddress = { address: wildcardAsLoopback(remote.address), port: remote.port };
    id.enter('resolved');
    this.#report(id, CMEventType.addrResolved, undefined, `through device ${route.device.name}`);
  }

  /** iWARP has no routes to resolve, so the event follows at once. EINVAL before resolveAddr. */
  resolveRoute(id: CmId): void {
    id.expect('resolved');
    id.enter('routed');
    this.#report(id, CMEventType.routeResolved, undefined, 'iWARP has no routes to resolve');
  }

  /**
   * Starts to listen; an unbound id listens on any address and a free port. `backlog` of 0 or less,
   * or above the limit, becomes the limit. EINVAL, EADDRINUSE; ENODEV for a loopback address that
   * no device can ever answer for.
   */
  listen(id: CmId, backlog: number): void {
    id.expect('idle', 'bound');
    if (id.state === 'idle') this.#bind(id, { address: IPV4_ANY, port: 0 });
    const address = id.localAddress?.address ?? IPV4_ANY;
    if (!isWildcard(address) && this.#routes.deviceFor(address) === undefined) {
      throw new VerbsError(
        'ENODEV',
        `no device answers for ${address}: listen at an address of a device`,
      );
    }
    const error = this.#options.network.listen(id);
    if (error !== undefined) {
      const text = this.#portText(id, error, id.localAddress, false);
      throw new VerbsError(error, `cannot listen at ${address}: ${text}`);
    }
    const max = this.#limits.backlogMax;
    id.listen({
      backlog: backlog > 0 && backlog <= max ? Math.trunc(backlog) : max,
      starting: new StartingConnections(this.#limits.startupsPerListenerMax),
      pending: new Set(),
    });
  }

  /**
   * Connects with `qp`; the outcome is an event. EINVAL: not resolved, no port at the destination, bad
   * depths, private data too long, or a QP of another device (the caller checks that); EISCONN: the
   * QP has a connection.
   */
  connect(id: CmId, qp: ConnectableQP, parameters: CMParameters, now: Micros): void {
    id.expect('resolved', 'routed');
    const { cmDevice: device, localAddress: local, peerAddress: remote } = id;
    if (device === undefined || local === undefined || remote === undefined) {
      throw invalid('the destination of the id is not resolved yet');
    }
    if (remote.port === 0) throw invalid(`cannot connect to port 0 of ${remote.address}`);
    const enhanced = (parameters.wire?.mpaRevision ?? device.wire.mpaRevision) === 2;
    checkPrivateData(parameters.privateData, enhanced);
    const depths = requestedDepths(device, parameters);
    this.#expectFree(qp);
    const endpoint = new Endpoint<CmId>('initiator', device, { local, remote }, this);
    endpoint.id = id;
    endpoint.qp = qp;
    endpoint.depths = depths;
    const { privateData } = parameters;
    endpoint.parameters = {
      ...parameters,
      privateData: privateData.length === 0 ? NO_BYTES : privateData.slice(),
    };
    endpoint.deadline = now + this.#limits.dialTimeoutMicros;
    endpoint.patience = new DialPatience(now + id.refusalPatienceMs * 1000);
    this.#dialingQPs.add(qp);
    this.#endpoints.add(endpoint);
    this.#timed.add(endpoint);
    this.#timedDue = Math.min(this.#timedDue, endpoint.nextDeadline());
    id.join(endpoint);
    this.#effects.push({ type: 'dial', endpoint, local, remote });
    this.assertInvariants();
  }

  /**
   * Accepts a connect request. EINVAL: no request is pending, bad depths, private data too long;
   * ECONNRESET: the peer disconnected in the meantime; EISCONN: the QP has a connection.
   */
  accept(id: CmId, qp: ConnectableQP, parameters: CMParameters, now: Micros): void {
    const endpoint = this.#openRequest(id);
    checkPrivateData(parameters.privateData, endpoint.enhanced);
    const depths = requestedDepths(endpoint.device, parameters);
    if (endpoint.lost) {
      this.#answered(endpoint);
      throw new VerbsError('ECONNRESET', 'the peer closed the connection before it was accepted');
    }
    this.#expectFree(qp);
    endpoint.accept(qp, parameters.privateData, depths, now);
    this.#answered(endpoint);
    this.assertInvariants();
  }

  /**
   * Rejects a connect request with private data. EINVAL: none is pending, or the data is too long.
   */
  reject(id: CmId, privateData: Uint8Array, now: Micros): void {
    const endpoint = this.#openRequest(id);
    checkPrivateData(privateData, endpoint.enhanced);
    this.#answered(endpoint);
    endpoint.reject(privateData, now);
    if (id.endpoint !== undefined) id.part(false);
  }

  /** Closes gracefully. Does nothing on a connection that has ended; EINVAL without one. */
  disconnect(id: CmId, now: Micros): void {
    if (id.state === 'closed' && id.wasConnected) return;
    id.expect('connection');
    const { endpoint } = id;
    if (endpoint?.phase === 'closing') return;
    if (endpoint?.phase !== 'established') {
      throw invalid(`the connection is not established: it is ${endpoint?.phase}`);
    }
    endpoint.disconnect(now);
  }

  /** Destroys an id in any state; rejects an unanswered request. A second call does nothing. */
  destroy(id: CmId, now: Micros): void {
    const { listening, endpoint } = id;
    if (id.state === 'destroyed') return;
    this.#ports.release(id, now);
    this.#ids.delete(id);
    if (listening !== undefined) {
      for (const starting of listening.starting.all()) starting.drop(now);
      for (const pending of listening.pending) {
        if (pending.endpoint !== undefined) pending.endpoint.listener = undefined;
      }
      listening.pending.clear();
    } else if (endpoint !== undefined) {
      this.#answered(endpoint);
      endpoint.drop(now);
    }
    id.destroy();
    this.assertInvariants();
  }

  /**
   * The destroyed ids whose ports are held for future listeners of `keeper` (see `CmId`), or all of them.
   */
  portsKeptFor(keeper?: object): readonly CmId[] {
    return this.#ports.keptFor(keeper);
  }

  /** Releases the port of a destroyed id if it is still held. */
  releasePort(id: CmId): void {
    this.#ports.giveUp(id);
  }

  // Inputs

  /**
   * A TCP connection arrived at listening id `listener`. Returns its endpoint, whose stream awaits
   * the Request, or a word with the reason to reset it.
   */
  handleIncoming(listener: CmId, facts: SocketFacts, now: Micros): CmEndpoint | string {
    if (listener.listening === undefined) return 'the listener is gone';
    const { starting } = listener.listening;
    const device = this.#routes.deviceFor(facts.local.address);
    if (device === undefined) return `no device has the address ${facts.local.address}`;
    if (device.lowerLayer !== facts.lowerLayer) return otherLayerText(device, facts);
    const { address } = facts.remote;
    if (!makeRoom(starting, address, now))
      return 'too many connections are starting at this listener';
    if (!makeRoom(this.#counted, address, now))
      return 'too many connections are starting at this host';
    const endpoint = new Endpoint<CmId>('responder', device, facts, this);
    endpoint.listener = listener;
    starting.add(endpoint);
    this.#counted.add(endpoint);
    this.#endpoints.add(endpoint);
    const depths = { ird: device.irdMax, ord: device.ordMax };
    const options = streamOptions(device, undefined, depths, facts.emssBytes);
    const stream = this.#options.createStream(device, this.#sharedOptions.of(options));
    endpoint.awaitRequest(stream, now);
    this.assertInvariants();
    return endpoint;
  }

  /** TCP of a 'dial' effect is connected. False if the dial was cancelled: reset the connection. */
  handleDialed(endpoint: CmEndpoint, facts: SocketFacts, now: Micros): boolean {
    const { qp, depths, parameters } = endpoint;
    if (endpoint.phase !== 'dialing' || qp === undefined || depths === undefined) return false;
    const { device } = endpoint;
    const options = streamOptions(device, parameters?.wire, depths, facts.emssBytes);
    this.#dialingQPs.delete(qp);
    this.#timed.delete(endpoint);
    try {
      const stream = this.#options.createStream(device, this.#sharedOptions.of(options));
      endpoint.initiate(stream, now);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      endpoint.handleQPRefused(now);
      return false;
    }
    this.assertInvariants();
    return true;
  }

  /** TCP of a 'dial' effect failed with this errno name. */
  handleDialFailed(endpoint: CmEndpoint, code: string, now: Micros): void {
    endpoint.handleDialFailed(code, now);
    if (this.#timed.has(endpoint)) {
      this.#timedDue = Math.min(this.#timedDue, endpoint.nextDeadline());
    }
  }

  /** Handles expired deadlines, a limited number per call; the others stay due. */
  handleDeadline(now: Micros): void {
    if (now >= this.#timedDue) this.#handleDials(now);
    this.#ports.handleDeadline(now);
  }

  #handleDials(now: Micros): void {
    this.#timedDue = NEVER;
    let left = DIALS_DUE_MAX;
    for (const endpoint of this.#timed) {
      if (left > 0 && endpoint.nextDeadline() <= now) {
        left -= 1;
        endpoint.handleDeadline(now);
      }
      if (!this.#timed.has(endpoint)) continue;
      this.#timedDue = Math.min(this.#timedDue, endpoint.nextDeadline());
    }
  }

  // Outputs

  pollEffect(): CmEffect | undefined {
    return this.#effects.shift();
  }

  /**
   * When `handleDeadline` is due next, or earlier; NEVER if there is no deadline. The host asks after every
   * input, so this must not visit each connection.
   */
  nextDeadline(): Micros {
    const timedDue = this.#timed.size === 0 ? NEVER : this.#timedDue;
    return Math.min(this.#ports.nextDeadline(), timedDue);
  }

  // Getters

  /** True if a device has this address, or serves every address. */
  answersFor(address: string): boolean {
    return this.#routes.deviceFor(address) !== undefined;
  }

  /** True for an address that determines no device: see `DeviceRoutes`. */
  leavesDeviceOpen(address: string): boolean {
    return this.#routes.leavesDeviceOpen(address);
  }

  /**
   * The device to report for an id at a loopback address that belongs to no device: the device for every
   * address, or the only one.
   */
  likelyDevice(address: string): string | undefined {
    const devices = this.#options.devices();
    const only = devices.length === 1 ? devices[0] : undefined;
    return (this.#routes.deviceFor(address) ?? only)?.name;
  }

  /** True if another id, rather than another program's socket, has the port that `id` wants. */
  clashes(id: CmId, address: SocketAddress): boolean {
    return this.#options.network.clash(id, address) !== undefined;
  }

  isTaken(id: CmId): boolean {
    return this.#options.network.isTaken(id);
  }

  reaches(destination: string): boolean {
    return !('error' in this.#routes.find(wildcardAsLoopback(destination), undefined));
  }

  /** True for an id that may hold a port: it exists, or its port is still held. */
  mayHoldPort(id: CmId): boolean {
    return this.#ids.has(id) || this.#ports.has(id);
  }

  /** Ids not destroyed. */
  ids(): readonly CmId[] {
    return [...this.#ids];
  }

  /** Connections that are not over. */
  endpoints(): readonly CmEndpoint[] {
    return [...this.#endpoints];
  }

  /** Number of objects held, for simulations and tests. */
  heldCounts(): Readonly<
    Record<'ids' | 'endpoints' | 'dials' | 'starting' | 'cmEvents' | 'ports', number>
  > {
    return {
      ids: this.#ids.size,
      endpoints: this.#endpoints.size,
      dials: this.#timed.size,
      starting: this.#counted.size,
      cmEvents: this.#effects.length,
      ports: this.#ports.size,
    };
  }

  /** Call after commands and inputs. Throws `InvariantError`. */
  assertInvariants(): void {
    const connections = this.#endpoints.size;
    assert(this.#ids.size <= this.#limits.idsMax, 'too many ids');
    assert(this.#counted.size <= connections, 'more starting connections than connections');
    assert(this.#timed.size <= connections, 'more dialing connections than connections');
    assert(this.#timed.size === this.#dialingQPs.size, 'dialing connections and QPs differ');
  }

  /**
   * Checks every id and connection, for simulations and tests, between commands. Throws
   * `InvariantError`.
   */
  assertDeepInvariants(): void {
    this.assertInvariants();
    this.#counted.assertInvariants();
    this.#ports.assertInvariants();
    const counted = new Set(this.#counted.all());
    for (const endpoint of counted) {
      assert(this.#endpoints.has(endpoint), 'starting connection is unknown');
      const starting = endpoint.phase === 'awaiting-request' || endpoint.rejecting;
      assert(starting, 'connection still starting after its Request');
    }
    for (const endpoint of this.#timed) {
      assert(this.#endpoints.has(endpoint), 'connection with a deadline is unknown');
      assert(endpoint.phase === 'dialing', 'deadline of a connection that does not dial');
      assert(
        endpoint.qp !== undefined && this.#dialingQPs.has(endpoint.qp),
        'dialing connection without a QP',
      );
    }
    for (const endpoint of this.#endpoints) {
      const { id, phase } = endpoint;
      assert(phase !== 'over', 'ended connection is still known');
      // A rejected connection ends on its own, independently of its id.
      const owned = id === undefined || phase === 'leaving' || this.#ids.has(id);
      assert(owned, 'connection of an unknown id');
    }
    for (const id of this.#ids) this.#assertId(id, counted);
  }

  #assertId({ state, listening, endpoint: own }: CmId, counted: ReadonlySet<CmEndpoint>): void {
    assert(state !== 'destroyed', 'destroyed id is still known');
    assert((listening !== undefined) === (state === 'listening'), 'listener in a wrong state');
    assert((own !== undefined) === (state === 'connection'), 'connection in a wrong state');
    if (listening === undefined) return;
    const { starting, pending, backlog } = listening;
    assert(pending.size <= backlog, 'pending requests exceed the backlog');
    starting.assertInvariants();
    for (const endpoint of starting.all()) {
      assert(counted.has(endpoint), 'starting connection is not counted');
    }
    for (const id of pending) {
      assert(this.#ids.has(id), 'pending request of an unknown id');
      assert(id.endpoint?.phase === 'requested', 'pending request was answered');
    }
  }

  // For endpoints

  requested(endpoint: CmEndpoint, event: RequestEvent): boolean {
    const listener = endpoint.listener;
    this.#started(endpoint);
    if (listener?.listening === undefined) return false;
    const { pending, backlog } = listener.listening;
    if (pending.size >= backlog || this.#ids.size >= this.#limits.idsMax) {
      endpoint.listener = undefined;
      return false;
    }
    const id = this.createId(listener.tag);
    id.cmDevice = endpoint.device;
    id.localAddress = endpoint.local;
    id.peerAddress = endpoint.remote;
    id.join(endpoint);
    endpoint.id = id;
    pending.add(id);
    // EMPA-9.1-03, MPA-7.1.1-24: the consumer gets Private Data, and depths with IRD and ORD swapped.
    this.#push({
      type: CMEventType.connectRequest,
      id,
      listener,
      error: undefined,
      privateData: event.privateData,
      initiatorDepth: event.peerIrd,
      responderResources: event.peerOrd,
      text: `${requestText(endpoint, event)} from ${endpoint.remote.address}`,
    });
    return true;
  }

  deliver(endpoint: CmEndpoint, event: CMOutcome): void {
    const id = endpoint.id;
    if (id === undefined) return;
    const wasConnected = event.type === CMEventType.disconnected;
    if (event.type !== CMEventType.established && id.endpoint !== undefined) id.part(wasConnected);
    this.#push({ ...event, id, listener: undefined });
  }

  touched(endpoint: CmEndpoint): void {
    this.#effects.push({ type: 'touched', endpoint });
  }

  cancelDial(endpoint: CmEndpoint): void {
    this.#effects.push({ type: 'cancelDial', endpoint });
  }

  /**
   * See `EndpointOwner`. The failed attempt released its local port: reserves the same one again.
   */
  redial(endpoint: CmEndpoint, now: Micros): void {
    const { id, local, remote } = endpoint;
    if (id === undefined) return;
    const reserved = this.#ports.reserve(id, local);
    if ('error' in reserved) endpoint.handleDialFailed(reserved.error, now);
    else this.#effects.push({ type: 'dial', endpoint, local, remote });
  }

  released(endpoint: CmEndpoint): void {
    // A queue pair whose end is not reported yet may dial again already.
    const dials = endpoint.phase === 'dialing';
    if (dials && endpoint.qp !== undefined) this.#dialingQPs.delete(endpoint.qp);
  }

  finished(endpoint: CmEndpoint): void {
    this.#started(endpoint);
    this.#endpoints.delete(endpoint);
    this.#timed.delete(endpoint);
    this.assertInvariants();
  }

  // Steps

  #bind(id: CmId, address: SocketAddress): void {
    const open = this.#routes.leavesDeviceOpen(address.address);
    const device = open ? undefined : this.#routes.deviceFor(address.address);
    const deviceless = device === undefined && !open;
    // EADDRNOTAVAIL takes precedence over other errors.
    const port = deviceless ? 0 : address.port;
    const reserved = this.#ports.reserve(id, { address: address.address, port });
    if ('error' in reserved) {
      throw new VerbsError(reserved.error, this.#bindFailure(id, reserved.error, address));
    }
    if (deviceless) {
      this.#options.network.release(id);
      throw new VerbsError('ENODEV', `no device has the address ${address.address}`);
    }
    id.cmDevice = device;
    id.localAddress = { address: address.address, port: reserved.port };
    id.enter('bound');
  }

  /** The error message for an address that could not be reserved. */
  #bindFailure(id: CmId, error: ErrnoCode, wanted: SocketAddress): string {
    const { address, port } = wanted;
    return `cannot bind ${address} port ${port}: ${this.#portText(id, error, wanted)}`;
  }

  /** Why a port is refused: another id has it, or the system's reason. */
  #portText(
    id: CmId,
    error: ErrnoCode,
    wanted: SocketAddress | undefined,
    reuseAddress?: boolean,
  ): string {
    const clash = wanted && this.#options.network.clash(id, wanted, reuseAddress);
    if (wanted === undefined || clash === undefined) return ERRNO[error].text;
    return `port ${wanted.port} is in use at ${clash.address}; choose another port`;
  }

  #expectFree(qp: ConnectableQP): void {
    if (qp.wire === undefined && !this.#dialingQPs.has(qp)) return;
    throw new VerbsError('EISCONN', 'the queue pair has a connection: use another one');
  }

  #openRequest(id: CmId): CmEndpoint {
    if (id.state === 'closed') {
      throw invalid(
        'the id has no connect request to answer any more: its connection has ended, or its request was answered',
      );
    }
    id.expect('connection');
    const { endpoint } = id;
    if (endpoint?.phase === 'requested') return endpoint;
    throw invalid(
      endpoint?.role === 'responder'
        ? `the connect request was answered already: its connection is ${endpoint.phase}`
        : 'the id connects itself: only the id of a CONNECT_REQUEST event accepts or rejects',
    );
  }

  /** The MPA startup of an incoming connection has ended: it is no longer counted. */
  #started(endpoint: CmEndpoint): void {
    endpoint.listener?.listening?.starting.delete(endpoint);
    this.#counted.delete(endpoint);
  }

  #answered(endpoint: CmEndpoint): void {
    if (endpoint.id !== undefined) endpoint.listener?.listening?.pending.delete(endpoint.id);
    endpoint.listener = undefined;
  }

  #report(id: CmId, type: CMEventType, error: ErrnoCode | undefined, text: string): void {
    this.#push({
      type,
      id,
      listener: undefined,
      error,
      privateData: NO_BYTES,
      initiatorDepth: undefined,
      responderResources: undefined,
      text,
    });
  }

  #push(event: CmEvent): void {
    this.#effects.push({ type: 'deliver', event });
  }
}

function requestText({ device }: CmEndpoint, { revision, enhanced }: RequestEvent): string {
  if (device.lowerLayer === 'tcp') return `MPA revision ${revision}`;
  return `${enhanced ? 'enhanced ' : ''}Initiate over ${lowerLayerText(device.lowerLayer)}`;
}

/** An error for a connection over a protocol that the device at the address does not use. */
function otherLayerText({ name, lowerLayer }: CmDevice, facts: SocketFacts): string {
  const { address } = facts.local;
  return `connection over ${lowerLayerText(facts.lowerLayer)} to ${address}, but device ${name} uses ${lowerLayerText(lowerLayer)}`;
}

/** Makes room in a pool for a connection from `address`; false if the address is at its share. */
function makeRoom(pool: StartingConnections<CmEndpoint>, address: string, now: Micros): boolean {
  const place = pool.placeFor(address);
  if (place === undefined) return false;
  if (place !== 'none') place.drop(now);
  return true;
}
