/**
 * Connection ids of native devices: adapts the kernel's connection manager to the IPC.
 *
 * Commands go to rdma_cm; its events return through `handleEvent`. Devices that rdma_cm knows but the
 * daemon does not serve are ignored.
 */
import { canonicalAddress, isWildcard } from '#base/address';
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType } from '#contract/verbs/enums';
import { type ErrnoCode, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { codeOf } from '#native-bridge/rdma/errors';
import type { ConnectionService, ServedCmEvent } from '../host/served-device.ts';
import type { BridgedDevice } from './bridged-device.ts';
import { BridgedId } from './bridged-id.ts';
import { BridgedQP } from './bridged-queue-pair.ts';
import type {
  LowerCmEvent,
  LowerConnectionParameters,
  LowerEventChannel,
  LowerId,
} from './lower.ts';

/** rdma_cm stores depths in one byte, whose last value means "as many as the device supports". */
const DEPTH_MAX = 0xff;
const TIMEOUT_MAX_MS = 2 ** 31 - 1;
/** iWARP resolves no route, but rdma_cm requires a timeout. */
const ROUTE_TIMEOUT_MS = 2000;
/** rdma_cm's value for "the maximum". */
const BACKLOG_MAX = 1024;

/** The content of an event besides its type. */
type EventParameters = Pick<LowerCmEvent, 'privateData' | 'initiatorDepth' | 'responderResources'>;

/** For an event that rdma_cm did not send. */
const NO_EVENT: EventParameters = {
  privateData: new Uint8Array(0),
  initiatorDepth: 0,
  responderResources: 0,
};

interface ConnectionsHost {
  /** The device of this name in the RDMA subsystem, if it is served. */
  device(nativeName: string): BridgedDevice | undefined;
  /** Delivers to the owner of the id. */
  deliver(id: BridgedId, event: ServedCmEvent): void;
  /** Reports an error that no caller waits for. */
  note(text: string): void;
}

export class BridgedConnections implements ConnectionService {
  readonly #channel: LowerEventChannel;
  readonly #host: ConnectionsHost;
  readonly #ids = new Map<LowerId, BridgedId>();
  /** Ids that rdma_cm is destroying. */
  readonly #leaving = new Set<Promise<void>>();

  constructor(channel: LowerEventChannel, host: ConnectionsHost) {
    this.#channel = channel;
    this.#host = host;
  }

  createId(tag: unknown): BridgedId {
    return this.#enter(new BridgedId(this.#channel.createId(), tag));
  }

  bindAddr(id: BridgedId, address: SocketAddress): void {
    id.expect('idle');
    id.lower.bindAddr(address);
    this.#learn(id);
    id.enter('bound');
    if (id.served === undefined && !isWildcard(canonicalAddress(address.address) ?? '')) {
      throw new VerbsError('ENODEV', `no device has the address ${address.address}`);
    }
  }

  resolveAddr(
    id: BridgedId,
    destination: SocketAddress,
    source: SocketAddress | undefined,
    timeoutMs: number,
  ): void {
    id.expect('idle', 'bound');
    id.lower.resolveAddr(destination, source, timeoutOf(timeoutMs));
    id.stateBefore = id.state === 'bound' ? 'bound' : 'idle';
    id.enter('resolving');
  }

  resolveRoute(id: BridgedId): void {
    id.expect('resolved');
    id.lower.resolveRoute(ROUTE_TIMEOUT_MS);
    id.enter('routing');
  }

  listen(id: BridgedId, backlog: number): void {
    id.expect('idle', 'bound');
    const wanted = Math.trunc(backlog);
    id.backlog = wanted > 0 && wanted <= BACKLOG_MAX ? wanted : BACKLOG_MAX;
    id.lower.listen(id.backlog);
    this.#learn(id);
    id.enter('listening');
  }

  connect(id: BridgedId, qp: BridgedQP, parameters: CMParameters): void {
    id.expect('resolved', 'routed');
    const routed = id.state === 'routed';
    this.#establish(id, qp, parameters, (lower) => {
      if (routed) {
        id.lower.connect(lower);
        return;
      }
      // iWARP programs may omit this step, but rdma_cm requires it.
      id.lower.resolveRoute(ROUTE_TIMEOUT_MS);
      id.connectWhenRouted = () => id.lower.connect(lower);
    });
  }

  accept(id: BridgedId, qp: BridgedQP, parameters: CMParameters): void {
    expectRequest(id);
    this.#establish(id, qp, parameters, (lower) => id.lower.accept(lower));
    answered(id);
  }

  reject(id: BridgedId, privateData: Uint8Array): void {
    expectRequest(id);
    checkPrivateData(id, privateData);
    id.lower.reject(privateData);
    answered(id);
    id.enter('closed');
  }

  disconnect(id: BridgedId): void {
    // An ended connection has no further events.
    if (id.state === 'closed' && id.qp !== undefined) return;
    id.expect('connection');
    if (id.progress !== 'connected') {
      throw invalid(`the connection is not established: it is ${id.progress}`);
    }
    id.lower.disconnect();
  }

  destroy(id: BridgedId): void {
    if (id.state === 'destroyed') return;
    const { progress } = id;
    id.enter('destroyed');
    answered(id);
    this.#ids.delete(id.lower);
    const leaving = id.lower.disposeAsync().catch((error: unknown) => {
      this.#host.note(error instanceof Error ? error.message : String(error));
    });
    this.#leaving.add(leaving);
    void leaving.then(() => this.#leaving.delete(leaving));
    if (progress !== undefined) id.qp?.connectionEnded();
  }

  /** A device, or with undefined every device, is gone: ends its connections. */
  handleLoss(device: BridgedDevice | undefined): void {
    for (const id of [...this.#ids.values()]) {
      if (device !== undefined && id.served !== device) continue;
      if (id.state === 'closed') continue;
      this.#ended(id, CMEventType.deviceRemoval, 'EIO', NO_EVENT, 'the device is gone');
    }
  }

  /** Destroys all ids; resolves when rdma_cm has released them. */
  async close(): Promise<void> {
    for (const id of [...this.#ids.values()]) this.destroy(id);
    await Promise.all([...this.#leaving]);
  }

  handleEvent(event: LowerCmEvent): void {
    if (event.type === CMEventType.connectRequest) {
      this.#requested(event);
      return;
    }
    const id = this.#ids.get(event.id);
    const type = knownType(event.type);
    if (id === undefined || type === undefined) return;
    switch (type) {
      case CMEventType.addrResolved:
        this.#addressResolved(id, event);
        return;
      case CMEventType.routeResolved:
        this.#routeResolved(id, event);
        return;
      case CMEventType.addrError:
      case CMEventType.routeError: {
        if (id.connectWhenRouted !== undefined) {
          this.#connectFailed(id, event, errorOf(event) ?? 'EHOSTUNREACH');
          return;
        }
        const code = errorOf(event) ?? 'EHOSTUNREACH';
        const text = `${type === CMEventType.addrError ? 'address' : 'route'} not resolved`;
        this.#unresolved(id, type, code, event, text);
        return;
      }
      case CMEventType.established:
        this.#established(id, event);
        return;
      case CMEventType.disconnected:
        this.#ended(id, type, undefined, event, 'disconnected');
        return;
      case CMEventType.rejected:
        this.#ended(id, type, 'ECONNREFUSED', event, 'rejected by the peer');
        return;
      default: {
        const code = errorOf(event) ?? 'ECONNRESET';
        this.#ended(id, type, code, event, `the connection failed: ${code}`);
      }
    }
  }

  #establish(
    id: BridgedId,
    qp: BridgedQP,
    parameters: CMParameters,
    start: (lower: LowerConnectionParameters) => void,
  ): void {
    const { served } = id;
    if (served === undefined || !(qp instanceof BridgedQP) || qp.deviceName !== served.name) {
      throw invalid(`the queue pair is not on device ${id.device}`);
    }
    if (parameters.wire !== undefined && Object.keys(parameters.wire).length > 0) {
      throw new VerbsError('EOPNOTSUPP', `${served.name} does not support wire options`);
    }
    checkPrivateData(id, parameters.privateData);
    const { maxQpInitRdAtom, maxQpRdAtom } = served.attributes();
    const initiatorDepth = depth(parameters.initiatorDepth, maxQpInitRdAtom);
    const responderResources = depth(parameters.responderResources, maxQpRdAtom);
    qp.assertConnectable();
    id.lower.initialise(qp.lower);
    qp.connectionStarts();
    const { state: before, progress } = id;
    id.qp = qp;
    id.advance('connecting');
    try {
      const { privateData } = parameters;
      start({ privateData, initiatorDepth, responderResources, qp: qp.lower });
    } catch (error) {
      if (progress === undefined) id.enter(before);
      else id.advance(progress);
      id.qp = undefined;
      qp.connectionFailed();
      throw error;
    }
  }

  #requested(event: LowerCmEvent): void {
    const listener = event.listenId === undefined ? undefined : this.#ids.get(event.listenId);
    const id = this.#enter(new BridgedId(event.id, listener?.tag));
    id.advance('requested');
    this.#learn(id);
    if (listener === undefined || id.served === undefined) {
      this.#host.note('connect request for a device that is not served');
      this.destroy(id);
      return;
    }
    if (listener.unanswered.size >= listener.backlog) {
      this.#host.note('connect request dropped: the backlog is full');
      this.destroy(id);
      return;
    }
    id.listener = listener;
    listener.unanswered.add(id);
    const text = `connect request from ${id.peerAddress?.address}`;
    this.#host.deliver(id, {
      ...recordOf(event),
      type: CMEventType.connectRequest,
      id,
      listener,
      error: undefined,
      text,
    });
  }

  #addressResolved(id: BridgedId, event: LowerCmEvent): void {
    // The device may be gone.
    if (id.state !== 'resolving') return;
    this.#learn(id);
    if (id.served === undefined) {
      const text = 'rdma_cm chose a device that is not served';
      this.#unresolved(id, CMEventType.addrError, 'ENODEV', event, text);
      return;
    }
    id.enter('resolved');
    this.#report(id, CMEventType.addrResolved, undefined, event, `through device ${id.device}`);
  }

  /** The program may retry. */
  #unresolved(
    id: BridgedId,
    type: CMEventType,
    code: ErrnoCode,
    event: EventParameters,
    text: string,
  ): void {
    if (id.state === 'resolving') id.enter(id.stateBefore);
    else if (id.state === 'routing') id.enter('resolved');
    this.#report(id, type, code, event, text);
  }

  #routeResolved(id: BridgedId, event: LowerCmEvent): void {
    const connect = id.connectWhenRouted;
    id.connectWhenRouted = undefined;
    if (connect === undefined) {
      if (id.state !== 'routing') return;
      id.enter('routed');
      this.#report(id, CMEventType.routeResolved, undefined, event, 'route resolved');
      return;
    }
    try {
      connect();
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      this.#connectFailed(id, event, error.code);
    }
  }

  #connectFailed(id: BridgedId, event: LowerCmEvent, code: ErrnoCode): void {
    id.connectWhenRouted = undefined;
    this.#ended(id, CMEventType.connectError, code, event, `the connection failed: ${code}`);
  }

  #established(id: BridgedId, event: LowerCmEvent): void {
    if (id.progress !== 'connecting') return;
    id.advance('connected');
    const { ird, ord } = negotiated(id, event);
    id.qp?.established({ ird, ord });
    this.#report(id, CMEventType.established, undefined, event, 'established');
  }

  #ended(
    id: BridgedId,
    type: CMEventType,
    error: ErrnoCode | undefined,
    event: EventParameters,
    text: string,
  ): void {
    const wasConnected = id.progress === 'connected';
    id.enter('closed');
    if (wasConnected) id.qp?.connectionEnded();
    else id.qp?.connectionFailed();
    this.#report(id, type, error, event, text);
  }

  #report(
    id: BridgedId,
    type: CMEventType,
    error: ErrnoCode | undefined,
    event: EventParameters,
    text: string,
  ): void {
    this.#host.deliver(id, { ...recordOf(event), type, id, listener: undefined, error, text });
  }

  #enter(id: BridgedId): BridgedId {
    this.#ids.set(id.lower, id);
    return id;
  }

  /** Copies what rdma_cm knows about the id so far. */
  #learn(id: BridgedId): void {
    const { deviceName } = id.lower;
    id.served = deviceName === undefined ? undefined : this.#host.device(deviceName);
    id.localAddress = canonical(id.lower.localAddress);
    id.peerAddress = canonical(id.lower.peerAddress);
  }
}

function recordOf(event: EventParameters): EventParameters {
  const { privateData, initiatorDepth, responderResources } = event;
  return { privateData, initiatorDepth, responderResources };
}

/** The depths of an established connection, if the event contains them. */
function negotiated(id: BridgedId, event: LowerCmEvent): { ird: number; ord: number } {
  const attributes = id.qp?.lower.query();
  const ord = attributes?.maxRdAtomic ?? 0;
  const ird = attributes?.maxDestRdAtomic ?? 0;
  return {
    ord: ord === 0 ? event.initiatorDepth : ord,
    ird: ird === 0 ? event.responderResources : ird,
  };
}

/** Throws EINVAL unless a request is pending; ECONNRESET if its peer has left. */
function expectRequest(id: BridgedId): void {
  if (id.state === 'closed' && id.listener !== undefined) {
    throw new VerbsError('ECONNRESET', 'the peer is gone');
  }
  id.expect('connection');
  if (id.progress !== 'requested') throw invalid('the id has no connect request to answer');
}

/** The request was answered, or never will be: removes it from the backlog. */
function answered(id: BridgedId): void {
  id.listener?.unanswered.delete(id);
  id.listener = undefined;
}

function knownType(type: number): CMEventType | undefined {
  // On iWARP, ignore events after the end of a connection.
  if (type === CMEventType.timewaitExit) return undefined;
  return Object.values(CMEventType).find((known) => known === type);
}

/** The event's status as a code; undefined for success. */
function errorOf({ status }: LowerCmEvent): ErrnoCode | undefined {
  return status === 0 ? undefined : codeOf(status);
}

function checkPrivateData(id: BridgedId, privateData: Uint8Array): void {
  const max = id.served?.lower.traits.maxPrivateData ?? 0;
  if (privateData.length > max) {
    const text = `${id.device} carries ${max} bytes of private data, not ${privateData.length}`;
    throw invalid(text);
  }
}

function depth(wanted: number | undefined, max: number): number {
  const asked = wanted ?? max;
  if (Number.isInteger(asked) && asked >= 0 && asked <= max) return Math.min(asked, DEPTH_MAX);
  throw invalid(`a read depth must be 0 to ${max}, not ${wanted}`);
}

function timeoutOf(timeoutMs: number): number {
  return Number.isFinite(timeoutMs)
    ? Math.min(Math.max(1, Math.trunc(timeoutMs)), TIMEOUT_MAX_MS)
    : TIMEOUT_MAX_MS;
}

function canonical(address: SocketAddress | undefined): SocketAddress | undefined {
  if (address === undefined) return undefined;
  return { address: canonicalAddress(address.address) ?? address.address, port: address.port };
}
