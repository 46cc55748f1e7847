/**
 * The connection manager of a host: connection ids with the semantics of rdma_cm over iWARP.
 *
 * Commands and `handle*` inputs go in, effects come out of `pollEffect`, and `nextDeadline` says
 * when `handleDeadline` is due. Wrong use of an id throws `VerbsError` with rdma_cm's errno and
 * changes nothing. What a connection goes through is in endpoint.ts.
 */
import type { CMParameters } from '../../verbs-api/contract/commands.ts';
import { CMEventType } from '../../verbs-api/contract/enums.ts';
import { type ErrnoCode, isVerbsError, VerbsError } from '../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import { type Micros, NEVER } from '../engine/stream-api.ts';
import { addressFamily, canonicalAddress, IPV4_ANY, isLoopback, isWildcard } from './address.ts';
import { CmId, type Listener } from './cm-id.ts';
import {
  type CmDevice,
  type CmEffect,
  type CmEvent,
  type CmLimits,
  type ConnectableQP,
  DEFAULT_CM_LIMITS,
  type HostNetwork,
  type SocketFacts,
  type StreamFactory,
} from './cm-types.ts';
import { Endpoint, type EndpointEvent, type EndpointOwner, type RequestEvent } from './endpoint.ts';
import {
  type Depths,
  ENHANCED_PRIVATE_DATA_MAX_BYTES,
  PRIVATE_DATA_MAX_BYTES,
  streamOptions,
} from './stream-wishes.ts';

/** What a connection manager is made with. */
export interface ConnectionManagerOptions {
  readonly devices: () => readonly CmDevice[];
  readonly network: HostNetwork;
  readonly createStream: StreamFactory;
  readonly limits?: Partial<CmLimits>;
}

const NO_OCTETS = new Uint8Array(0);

/** See the module's comment. */
export class ConnectionManager implements EndpointOwner {
  readonly #options: ConnectionManagerOptions;
  readonly #limits: CmLimits;
  readonly #effects: CmEffect[] = [];
  readonly #ids = new Set<CmId>();
  readonly #endpoints = new Set<Endpoint>();
  /** Endpoints with a deadline: those that dial. */
  readonly #timed = new Set<Endpoint>();
  /** Incoming connections whose MPA Request is still to come. */
  readonly #counted = new Set<Endpoint>();
  /** QPs between connect and the attachment to their stream. */
  readonly #dialingQPs = new Set<ConnectableQP>();
  #nextNumber = 0;

  constructor(options: ConnectionManagerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_CM_LIMITS, ...options.limits };
  }

  // Commands

  /** A new id for `tag`'s owner. ENOMEM when the host has no more. */
  createId(tag: unknown): CmId {
    if (this.#ids.size >= this.#limits.idsMax) {
      throw new VerbsError('ENOMEM', `no more than ${this.#limits.idsMax} connection ids`);
    }
    const id = new CmId(this.#nextNumber++, tag);
    this.#ids.add(id);
    return id;
  }

  /**
   * Binds to a local address, port 0 for a free one. EINVAL in a wrong state or for text that is no
   * address; EADDRNOTAVAIL for one that is not the host's, ENODEV for one that is and that no device
   * answers for; EADDRINUSE, EACCES.
   */
  bindAddr(id: CmId, address: SocketAddress): void {
    this.#expect(id, 'idle');
    this.#bind(id, parseAddress(address));
  }

  /**
   * Decides device and source address for a destination. The outcome is an event, address resolved
   * or address error; its errno is returned too. EINVAL for misuse.
   */
  resolveAddr(
    id: CmId,
    destination: SocketAddress,
    source: SocketAddress | undefined,
  ): ErrnoCode | undefined {
    this.#expect(id, 'idle', 'bound');
    const remote = parseAddress(destination);
    const wanted = source === undefined ? undefined : parseAddress(source);
    if (remote.port === 0) throw new VerbsError('EINVAL', 'a destination needs a port');
    if (wanted !== undefined && id.state.kind === 'idle') this.#bind(id, wanted);
    const bound = id.localAddress;
    const route = this.#route(wildcardAsLoopback(remote.address), bound?.address);
    if ('error' in route) {
      this.#tell(id, CMEventType.addrError, route.error, `no device reaches ${remote.address}`);
      return route.error;
    }
    if (bound === undefined) {
      const reserved = this.#options.network.reserve(id, { address: route.address, port: 0 });
      if ('error' in reserved) {
        this.#tell(id, CMEventType.addrError, reserved.error, 'no free source port');
        return reserved.error;
      }
      id.localAddress = { address: route.address, port: reserved.port };
    } else {
      id.localAddress = { address: route.address, port: bound.port };
    }
    id.device = route.device.name;
    id.peerAddress = { address: wildcardAsLoopback(remote.address), port: remote.port };
    id.transition({ kind: 'resolved' });
    this.#tell(id, CMEventType.addrResolved, undefined, `through device ${route.device.name}`);
    return undefined;
  }

  /** There is nothing to find out on iWARP: the event follows at once. EINVAL before resolveAddr. */
  resolveRoute(id: CmId): void {
    this.#expect(id, 'resolved');
    id.transition({ kind: 'routed' });
    this.#tell(id, CMEventType.routeResolved, undefined, 'iWARP has no routes to resolve');
  }

  /**
   * Starts to listen; an id that is not bound takes any address and a free port. `backlog` of 0 or
   * less, or above the limit, becomes the limit. EINVAL, EADDRINUSE.
   */
  listen(id: CmId, backlog: number): void {
    this.#expect(id, 'idle', 'bound');
    if (id.state.kind === 'idle') this.#bind(id, { address: IPV4_ANY, port: 0 });
    const error = this.#options.network.listen(id);
    if (error !== undefined) throw new VerbsError(error, 'cannot listen at this address');
    const max = this.#limits.backlogMax;
    const listener: Listener = {
      backlog: backlog > 0 && backlog <= max ? Math.trunc(backlog) : max,
      starting: new Set(),
      pending: new Set(),
    };
    id.transition({ kind: 'listening', listener });
  }

  /**
   * Connects with `qp`; the outcome is an event. EINVAL: not resolved, bad depths, private data too
   * long, or a QP of another device (the caller checks that); EISCONN: the QP has a connection.
   */
  connect(id: CmId, qp: ConnectableQP, parameters: CMParameters, now: Micros): void {
    this.#expect(id, 'resolved', 'routed');
    const device = this.#deviceOf(id);
    const { localAddress: local, peerAddress: remote } = id;
    if (local === undefined || remote === undefined) throw new VerbsError('EINVAL');
    const enhanced = (parameters.wire?.mpaRevision ?? device.wire.mpaRevision) === 2;
    checkPrivateData(parameters.privateData, enhanced);
    const depths = wishedDepths(device, parameters);
    if (qp.stream !== undefined || this.#dialingQPs.has(qp)) {
      throw new VerbsError('EISCONN', 'the queue pair has a connection');
    }
    const endpoint = new Endpoint('initiator', device, { local, remote }, this);
    endpoint.id = id;
    endpoint.qp = qp;
    endpoint.depths = depths;
    endpoint.parameters = { ...parameters, privateData: parameters.privateData.slice() };
    endpoint.deadline = now + this.#limits.dialTimeoutMicros;
    this.#dialingQPs.add(qp);
    this.#endpoints.add(endpoint);
    this.#timed.add(endpoint);
    id.transition({ kind: 'connection', endpoint });
    this.#effects.push({ type: 'dial', endpoint, local, remote });
  }

  /**
   * Accepts a connect request. EINVAL: no request is open, bad depths, private data too long;
   * ECONNRESET: the peer went away meanwhile; EISCONN: the QP has a connection.
   */
  accept(id: CmId, qp: ConnectableQP, parameters: CMParameters, now: Micros): void {
    const endpoint = this.#openRequest(id);
    checkPrivateData(parameters.privateData, endpoint.enhanced);
    const depths = wishedDepths(endpoint.device, parameters);
    if (endpoint.lost) {
      this.#answered(endpoint);
      throw new VerbsError('ECONNRESET', 'the peer closed the connection before it was accepted');
    }
    if (qp.stream !== undefined || this.#dialingQPs.has(qp)) {
      throw new VerbsError('EISCONN', 'the queue pair has a connection');
    }
    endpoint.accept(qp, parameters.privateData, depths, now);
    this.#answered(endpoint);
  }

  /** Rejects a connect request with private data. EINVAL: none is open, or the data too long. */
  reject(id: CmId, privateData: Uint8Array, now: Micros): void {
    const endpoint = this.#openRequest(id);
    checkPrivateData(privateData, endpoint.enhanced);
    this.#answered(endpoint);
    endpoint.reject(privateData, now);
    if (id.state.kind === 'connection') id.transition({ kind: 'closed', wasConnected: false });
  }

  /** Closes gracefully. Nothing happens on a connection that has ended; EINVAL without one. */
  disconnect(id: CmId, now: Micros): void {
    if (id.state.kind === 'closed' && id.state.wasConnected) return;
    this.#expect(id, 'connection');
    const endpoint = this.#endpointOf(id);
    if (endpoint?.phase === 'closing') return;
    if (endpoint?.phase !== 'established') throw new VerbsError('EINVAL', 'not connected');
    endpoint.disconnect(now);
  }

  /** Destroys an id in any state; a request not yet answered is rejected. The second call does nothing. */
  destroy(id: CmId, now: Micros): void {
    const state = id.state;
    if (state.kind === 'destroyed') return;
    this.#options.network.release(id);
    this.#ids.delete(id);
    if (state.kind === 'listening') {
      for (const endpoint of [...state.listener.starting]) endpoint.drop(now);
      for (const pending of state.listener.pending) {
        const endpoint = this.#endpointOf(pending);
        if (endpoint !== undefined) endpoint.listener = undefined;
      }
      state.listener.pending.clear();
    } else if (state.kind === 'connection') {
      this.#answered(state.endpoint);
      state.endpoint.drop(now);
    }
    id.transition({ kind: 'destroyed' });
  }

  // Inputs

  /**
   * A TCP connection came to listening id `listener`. Returns its endpoint, whose stream awaits the
   * Request, or a word that says why it is to be reset.
   */
  handleIncoming(listener: CmId, facts: SocketFacts, now: Micros): Endpoint | string {
    if (listener.state.kind !== 'listening') return 'the listener is gone';
    const { starting } = listener.state.listener;
    if (starting.size >= this.#limits.startupsPerListenerMax)
      return 'listener has too many startups';
    if (this.#counted.size >= this.#limits.startupsMax) return 'host has too many startups';
    const device = this.#deviceFor(facts.local.address);
    if (device === undefined) return `no device answers for ${facts.local.address}`;
    const endpoint = new Endpoint('responder', device, facts, this);
    endpoint.listener = listener;
    starting.add(endpoint);
    this.#counted.add(endpoint);
    this.#endpoints.add(endpoint);
    const depths = { ird: device.irdMax, ord: device.ordMax };
    const options = streamOptions(device, undefined, depths, facts.emssBytes);
    endpoint.awaitRequest(this.#options.createStream(device, options), now);
    return endpoint;
  }

  /** TCP of a 'dial' effect is there. False when nobody wants it any more: reset it. */
  handleDialed(endpoint: Endpoint, facts: SocketFacts, now: Micros): boolean {
    const { qp, depths, parameters } = endpoint;
    if (endpoint.phase !== 'dialing' || qp === undefined || depths === undefined) return false;
    const { device } = endpoint;
    const options = streamOptions(device, parameters?.wire, depths, facts.emssBytes);
    this.#dialingQPs.delete(qp);
    this.#timed.delete(endpoint);
    try {
      endpoint.initiate(this.#options.createStream(device, options), now);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      endpoint.handleQPRefused(now);
      return false;
    }
    return true;
  }

  /** TCP of a 'dial' effect failed with this errno name. */
  handleDialFailed(endpoint: Endpoint, code: string, now: Micros): void {
    endpoint.handleDialFailed(code, now);
  }

  /** Fires what is due. */
  handleDeadline(now: Micros): void {
    for (const endpoint of this.#timed) {
      endpoint.handleDeadline(now);
    }
  }

  // Outputs

  /** The next thing to do, or undefined. */
  pollEffect(): CmEffect | undefined {
    return this.#effects.shift();
  }

  /** When `handleDeadline` is due next; NEVER if nothing waits. */
  nextDeadline(): Micros {
    let earliest = NEVER;
    for (const endpoint of this.#timed) earliest = Math.min(earliest, endpoint.deadline);
    return earliest;
  }

  // Getters

  /** Ids not destroyed. */
  ids(): readonly CmId[] {
    return [...this.#ids];
  }

  /** TCP connections in any phase but the last. */
  endpoints(): readonly Endpoint[] {
    return [...this.#endpoints];
  }

  // For endpoints

  /** See `EndpointOwner`. */
  requested(endpoint: Endpoint, event: RequestEvent): boolean {
    const listener = endpoint.listener;
    this.#started(endpoint);
    if (listener?.state.kind !== 'listening') return false;
    const { pending, backlog } = listener.state.listener;
    if (pending.size >= backlog || this.#ids.size >= this.#limits.idsMax) {
      endpoint.listener = undefined;
      return false;
    }
    const id = this.createId(listener.tag);
    id.device = endpoint.device.name;
    id.localAddress = endpoint.local;
    id.peerAddress = endpoint.remote;
    id.transition({ kind: 'connection', endpoint });
    endpoint.id = id;
    pending.add(id);
    // EMPA-9.1-03, MPA-7.1.1-24: the consumer gets depths, crossed over, and Private Data.
    this.#push({
      type: CMEventType.connectRequest,
      id,
      listener,
      error: undefined,
      privateData: event.privateData,
      initiatorDepth: event.peerIrd,
      responderResources: event.peerOrd,
      text: `MPA revision ${event.revision} from ${endpoint.remote.address}`,
    });
    return true;
  }

  /** See `EndpointOwner`. */
  deliver(endpoint: Endpoint, event: EndpointEvent): void {
    const id = endpoint.id;
    if (id === undefined) return;
    const wasConnected = event.type === CMEventType.disconnected;
    if (event.type !== CMEventType.established && id.state.kind === 'connection') {
      id.transition({ kind: 'closed', wasConnected });
    }
    this.#push({ ...event, id, listener: undefined });
  }

  /** See `EndpointOwner`. */
  touched(endpoint: Endpoint): void {
    this.#effects.push({ type: 'touched', endpoint });
  }

  /** See `EndpointOwner`. */
  cancelDial(endpoint: Endpoint): void {
    this.#effects.push({ type: 'cancelDial', endpoint });
  }

  /** See `EndpointOwner`. */
  released(endpoint: Endpoint): void {
    if (endpoint.qp !== undefined) this.#dialingQPs.delete(endpoint.qp);
  }

  /** See `EndpointOwner`. */
  finished(endpoint: Endpoint): void {
    this.#started(endpoint);
    this.#endpoints.delete(endpoint);
    this.#timed.delete(endpoint);
  }

  // Steps

  #bind(id: CmId, address: SocketAddress): void {
    const wildcard = isWildcard(address.address);
    const device = wildcard ? undefined : this.#deviceFor(address.address);
    const deviceless = device === undefined && !wildcard;
    // That an address is not the host's own counts before all else.
    const port = deviceless ? 0 : address.port;
    const reserved = this.#options.network.reserve(id, { address: address.address, port });
    if ('error' in reserved) {
      throw new VerbsError(reserved.error, `cannot bind ${address.address} port ${address.port}`);
    }
    if (deviceless) {
      this.#options.network.release(id);
      throw new VerbsError('ENODEV', `no device answers for ${address.address}`);
    }
    id.device = device?.name;
    id.localAddress = { address: address.address, port: reserved.port };
    id.transition({ kind: 'bound' });
  }

  /**
   * Device and source for a destination. Unless the id is bound, the host's own choice of a source
   * counts first; where no device has that one, the devices' addresses are tried in their order, so
   * that devices on some of 127.0.0.0/8 reach each other.
   */
  #route(
    destination: string,
    bound: string | undefined,
  ): { readonly address: string; readonly device: CmDevice } | { readonly error: ErrnoCode } {
    const { network } = this.#options;
    const given = bound === undefined || isWildcard(bound) ? undefined : bound;
    const chosen = network.sourceAddress(destination, given);
    if ('error' in chosen) return chosen;
    const device = this.#deviceFor(chosen.address);
    if (device !== undefined) return { address: chosen.address, device };
    if (given !== undefined) return { error: 'ENODEV' };
    for (const candidate of this.#options.devices()) {
      for (const address of candidate.addresses) {
        if (addressFamily(address) !== addressFamily(destination)) continue;
        if (isLoopback(address) !== isLoopback(destination)) continue;
        const source = network.sourceAddress(destination, address);
        if (!('error' in source)) return { address, device: candidate };
      }
    }
    return { error: 'ENODEV' };
  }

  #deviceFor(address: string): CmDevice | undefined {
    const devices = this.#options.devices();
    return (
      devices.find((device) => device.addresses.includes(address)) ??
      devices.find((device) => device.addresses.length === 0)
    );
  }

  #deviceOf(id: CmId): CmDevice {
    const device = this.#options.devices().find(({ name }) => name === id.device);
    if (device === undefined) throw new VerbsError('ENODEV');
    return device;
  }

  #endpointOf(id: CmId): Endpoint | undefined {
    return id.state.kind === 'connection' ? id.state.endpoint : undefined;
  }

  #openRequest(id: CmId): Endpoint {
    this.#expect(id, 'connection');
    const endpoint = this.#endpointOf(id);
    if (endpoint?.phase !== 'requested') throw new VerbsError('EINVAL', 'no request is open');
    return endpoint;
  }

  /** The MPA startup of an incoming connection is over: it counts no more. */
  #started(endpoint: Endpoint): void {
    const state = endpoint.listener?.state;
    if (state?.kind === 'listening') state.listener.starting.delete(endpoint);
    this.#counted.delete(endpoint);
  }

  #answered(endpoint: Endpoint): void {
    const state = endpoint.listener?.state;
    if (endpoint.id !== undefined && state?.kind === 'listening') {
      state.listener.pending.delete(endpoint.id);
    }
    endpoint.listener = undefined;
  }

  #tell(id: CmId, type: CMEventType, error: ErrnoCode | undefined, text: string): void {
    this.#push({
      type,
      id,
      listener: undefined,
      error,
      privateData: NO_OCTETS,
      initiatorDepth: undefined,
      responderResources: undefined,
      text,
    });
  }

  #push(event: CmEvent): void {
    this.#effects.push({ type: 'deliver', event });
  }

  #expect(id: CmId, ...kinds: CmId['state']['kind'][]): void {
    if (id.state.kind === 'destroyed') throw new VerbsError('ENOENT', 'the id was destroyed');
    if (!kinds.includes(id.state.kind)) {
      throw new VerbsError('EINVAL', `not possible in state ${id.state.kind}`);
    }
  }
}

function parseAddress(text: SocketAddress): SocketAddress {
  const address = canonicalAddress(text.address);
  if (address === undefined) throw new VerbsError('EINVAL', `${text.address} is no address`);
  if (!Number.isInteger(text.port) || text.port < 0 || text.port > 65_535) {
    throw new VerbsError('EINVAL', `${text.port} is no port`);
  }
  return { address, port: text.port };
}

/** As TCP does, a connection to the wildcard address goes to the host itself. */
function wildcardAsLoopback(address: string): string {
  if (!isWildcard(address)) return address;
  return address === IPV4_ANY ? '127.0.0.1' : '::1';
}

function checkPrivateData(privateData: Uint8Array, enhanced: boolean): void {
  const max = enhanced ? ENHANCED_PRIVATE_DATA_MAX_BYTES : PRIVATE_DATA_MAX_BYTES;
  if (privateData.length > max) {
    throw new VerbsError('EINVAL', `private data of ${privateData.length} octets, not over ${max}`);
  }
}

function wishedDepths(device: CmDevice, parameters: CMParameters): Depths {
  const ird = parameters.responderResources ?? device.irdMax;
  const ord = parameters.initiatorDepth ?? device.ordMax;
  if (!isDepth(ird, device.irdMax) || !isDepth(ord, device.ordMax)) {
    throw new VerbsError('EINVAL', `depths ${ird} and ${ord} leave the device's limits`);
  }
  return { ird, ord };
}

function isDepth(depth: number, max: number): boolean {
  return Number.isInteger(depth) && depth >= 0 && depth <= max;
}
