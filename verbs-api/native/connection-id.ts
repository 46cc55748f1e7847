/** Connection ids: rdma_cm's calls and events as promises. */
import { CMEventType, QPState } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { type ConnectionProgress, IdLifecycle, type IdState } from '#contract/verbs/id-lifecycle';
import type {
  CMEvent,
  ConnectionId,
  ConnectionParameters,
  PD,
  Provider,
  QP,
  QPInit,
  ResolveOptions,
  SocketAddress,
  WaitLimit,
} from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { DEPTH_OF_DEVICE, type NativeCMEvent, type NativeCmId } from '#native-bridge/rdma/cm-id';
import { unsupported } from '#native-bridge/rdma/errors';
import { quiet } from '../client/cancellation.ts';
import {
  DEFAULT_BACKLOG,
  DEFAULT_RESOLVE_TIMEOUT_MS,
  domainFor,
  NO_PRIVATE_DATA,
} from '../client/connection-checks.ts';
import { ConnectionOutcome } from '../client/connection-outcome.ts';
import { EventChannel, nextOf } from '../client/event-channel.ts';
import type { Presence } from '../client/lifetime.ts';
import { CM_EVENT_NAMES, errorOf, textOf } from './connection-event.ts';
import { OwnedObject } from './owned-object.ts';
import { RdmaPD } from './protection-domain.ts';
import { RdmaQP } from './queue-pair.ts';

/** A closed connection that does not end within this time is dropped. */
const HANG_UP_MS = 5000;

export interface ConnectionIdOwner {
  readonly provider: Provider;
  readonly presence: Presence;
  forget(id: RdmaConnectionId): void;
}

export class RdmaConnectionId extends OwnedObject implements ConnectionId {
  readonly provider: Provider;
  readonly native: NativeCmId;
  readonly #owner: ConnectionIdOwner;
  readonly #events = new EventChannel<CMEvent>();
  readonly #forgetLoss: () => void;
  readonly #life = new IdLifecycle();
  #device: string | undefined;
  #localAddress: SocketAddress | undefined;
  #peerAddress: SocketAddress | undefined;
  #qp: RdmaQP | undefined;
  /** The queue pair that is or was connected, the id's own or not. */
  #connectedQP: RdmaQP | undefined;
  /** The resolve, connect or accept in progress. */
  readonly #pending = new ConnectionOutcome();
  /** The library resolves the route on its own: the program gets no event. */
  #routingUnasked = false;
  /** Called once the connection has ended, while `close` waits for that. */
  #onEnded: (() => void) | undefined;
  /** A listener's unanswered requests, and their maximum number. */
  readonly #unanswered = new Set<RdmaConnectionId>();
  #backlog = 0;
  /** On a request: notifies its listener once it is answered. */
  #onAnswered: (() => void) | undefined;

  constructor(owner: ConnectionIdOwner, native: NativeCmId, isRequest: boolean) {
    super(owner.presence, 'connection id');
    this.#owner = owner;
    this.provider = owner.provider;
    this.native = native;
    if (isRequest) this.#life.advance('requested');
    this.#refresh();
    this.#forgetLoss = owner.presence.onLost((error) => this.#lost(error));
  }

  get device(): string | undefined {
    return this.#device;
  }

  get localAddress(): SocketAddress | undefined {
    return this.#localAddress;
  }

  get peerAddress(): SocketAddress | undefined {
    return this.#peerAddress;
  }

  get qp(): QP | undefined {
    return this.#qp;
  }

  async bindAddr(address: SocketAddress): Promise<void> {
    checkCall.bindAddr(address);
    this.#expect('idle');
    this.native.bindAddr(address);
    this.#life.enter('bound');
    this.#refresh();
  }

  async resolveAddr(destination: SocketAddress, options: ResolveOptions = {}): Promise<void> {
    checkCall.resolveAddr(destination, options);
    this.#expect('idle', 'bound');
    const { source, timeoutMs = DEFAULT_RESOLVE_TIMEOUT_MS } = options;
    this.native.resolveAddr(destination, source, timeoutMs);
    this.#life.enter('resolving');
    await this.#pending.begin(CMEventType.addrResolved);
  }

  async resolveRoute(timeoutMs: number = DEFAULT_RESOLVE_TIMEOUT_MS): Promise<void> {
    checkCall.resolveRoute(timeoutMs);
    this.#expect('resolved');
    this.native.resolveRoute(timeoutMs);
    this.#life.enter('routing');
    await this.#pending.begin(CMEventType.routeResolved);
  }

  /** rdma_cm connects only ids with a route; the contract does not require one. */
  async #routeUnasked(): Promise<void> {
    this.#routingUnasked = true;
    try {
      await this.resolveRoute();
    } finally {
      this.#routingUnasked = false;
    }
  }

  async createQP(pd: PD, init: QPInit): Promise<QP> {
    checkCall.createQPOfId(pd, init);
    this.assertUsable();
    const own = pd instanceof RdmaPD ? pd : undefined;
    const domain = domainFor(this, this.#qp, pd, own);
    domain.assertUsable();
    const qp = domain.makeQP(init);
    try {
      this.#initialise(qp);
    } catch (error) {
      await qp.close();
      throw error;
    }
    this.#qp = qp;
    return qp;
  }

  async listen(backlog: number = DEFAULT_BACKLOG): Promise<void> {
    checkCall.listen(backlog);
    this.#expect('idle', 'bound');
    this.native.listen(backlog);
    this.#backlog = backlog;
    this.#life.enter('listening');
    this.#refresh();
  }

  connect(parameters: ConnectionParameters = {}): Promise<CMEvent> {
    return quiet(this.#establish(false, parameters));
  }

  accept(parameters: ConnectionParameters = {}): Promise<CMEvent> {
    return quiet(this.#establish(true, parameters));
  }

  async reject(privateData: Uint8Array = NO_PRIVATE_DATA): Promise<void> {
    checkCall.reject(privateData);
    this.#expectProgress('requested');
    this.native.reject(privateData);
    this.#life.enter('closed');
    this.#answered();
  }

  async disconnect(): Promise<void> {
    this.assertUsable();
    if (this.#life.state === 'closed' && this.#connectedQP !== undefined) return;
    this.#expectProgress('connected');
    this.native.disconnect();
  }

  nextEvent(options?: WaitLimit): Promise<CMEvent> {
    return nextOf(this.#events, options);
  }

  async *events(): AsyncGenerator<CMEvent, void, undefined> {
    yield* this.#events;
  }

  /** A connect request arrived for this listener; false if the backlog is full. */
  enlist(request: RdmaConnectionId): boolean {
    if (this.#life.state !== 'listening' || this.#unanswered.size >= this.#backlog) return false;
    this.#unanswered.add(request);
    request.#onAnswered = () => this.#unanswered.delete(request);
    return true;
  }

  /** An event arrived for this id; `id` is the new id on a connect request, otherwise this one. */
  handleEvent(native: NativeCMEvent, id: RdmaConnectionId): void {
    const type = native.type as CMEventType;
    const event: CMEvent = {
      type,
      id,
      listenId: id === this ? undefined : this,
      error: errorOf(native),
      privateData: native.privateData,
      initiatorDepth: native.initiatorDepth,
      responderResources: native.responderResources,
      text: textOf(native),
    };
    const told = CM_EVENT_NAMES.has(type) && !(this.#routingUnasked && id === this);
    if (id === this) this.#follow(event);
    if (told) this.#events.push(event);
  }

  protected override async destroy(): Promise<void> {
    this.#pending.fail(new VerbsError('ECONNABORTED', 'the id was closed'));
    this.#answered();
    if (this.#life.progress === 'connected') await this.#hangUp();
    // A listener's requests that were never taken have no other owner.
    const orphans = this.#events.drain().filter(({ type }) => type === CMEventType.connectRequest);
    await Promise.all(orphans.map((event) => event.id.close()));
    await this.#qp?.close();
    await this.native.disposeAsync();
  }

  protected override released(): void {
    this.#forgetLoss();
    this.#owner.forget(this);
    this.#connectedQP?.noteDisconnected();
    this.#events.close(this.closedError());
  }

  async #establish(accepts: boolean, parameters: ConnectionParameters): Promise<CMEvent> {
    if (accepts) checkCall.accept(parameters);
    else checkCall.connect(parameters);
    this.assertUsable();
    const qp = parameters.qp ?? this.#qp;
    if (!(qp instanceof RdmaQP) || qp.pd.context.provider !== this.provider) {
      throw invalid('a connection needs a queue pair of the same provider');
    }
    if (accepts) this.#expectProgress('requested');
    else this.#expect('resolved', 'routed');
    qp.assertUsable();
    if (qp.connected) throw new VerbsError('EISCONN', 'the queue pair has a connection');
    if (parameters.wire !== undefined) {
      throw unsupported(this.device ?? 'the device', 'choice of wire options');
    }
    const nativeParameters = connectionParameters(qp, parameters);
    if (this.#life.state === 'resolved') {
      await this.#routeUnasked();
      this.#expect('routed');
      qp.assertUsable();
      if (qp.connected) throw new VerbsError('EISCONN', 'the queue pair has a connection');
    }
    if (qp.state === QPState.RESET) this.#initialise(qp);
    if (accepts) this.#accept(nativeParameters);
    else this.native.connect(nativeParameters);
    this.#life.advance('connecting');
    this.#connectedQP = qp;
    qp.noteConnecting();
    return await this.#pending.begin(CMEventType.established);
  }

  #accept(parameters: Parameters<NativeCmId['accept']>[0]): void {
    try {
      this.native.accept(parameters);
    } finally {
      this.#answered();
    }
  }

  #initialise(qp: RdmaQP): void {
    this.native.initialise(qp.native);
    qp.noteInitialised();
  }

  /** Tracks the state of the connection and settles the promise that waits for the event. */
  #follow(event: CMEvent): void {
    switch (event.type) {
      case CMEventType.addrResolved:
        this.#step('resolving', 'resolved');
        this.#refresh();
        break;
      case CMEventType.routeResolved:
        this.#step('routing', 'routed');
        break;
      case CMEventType.addrError:
        this.#step('resolving', this.#localAddress === undefined ? 'idle' : 'bound');
        break;
      case CMEventType.routeError:
        this.#step('routing', 'resolved');
        break;
      case CMEventType.established:
        if (this.#life.state !== 'connection') break;
        this.#life.advance('connected');
        this.#refresh();
        this.#connectedQP?.noteEstablished();
        break;
      case CMEventType.rejected:
      case CMEventType.connectError:
      case CMEventType.unreachable:
        this.#failed();
        break;
      case CMEventType.disconnected:
      case CMEventType.deviceRemoval:
        this.#ended();
        break;
      default:
    }
    this.#pending.settle(event);
  }

  /** The attempt failed: the queue pair may be connected again, by another id. */
  #failed(): void {
    this.#life.enter('closed');
    this.#connectedQP?.noteNotConnected();
    this.#connectedQP = undefined;
    this.#onEnded?.();
  }

  #ended(): void {
    this.#life.enter('closed');
    this.#connectedQP?.noteDisconnected();
    this.#onEnded?.();
  }

  #answered(): void {
    this.#onAnswered?.();
    this.#onAnswered = undefined;
  }

  /** Closes the connection gracefully: the last bytes sent still arrive. */
  async #hangUp(): Promise<void> {
    try {
      this.native.disconnect();
    } catch {
      // The connection ended on its own in the meantime.
      return;
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, HANG_UP_MS);
      this.#onEnded = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #lost(error: VerbsError): void {
    this.#ended();
    this.#pending.fail(error);
    this.#events.fail(error);
  }

  /** Takes the step that an event reports, unless the id has lost its device. */
  #step(from: IdState, to: IdState): void {
    if (this.#life.state === from) this.#life.enter(to);
  }

  #expect(...states: readonly IdState[]): void {
    this.assertUsable();
    if (this.#pending.pending) throw invalid('the id is busy');
    this.#life.expect(...states);
  }

  #expectProgress(wanted: ConnectionProgress): void {
    this.assertUsable();
    // The caller is not at fault for what a peer did in the meantime.
    if (this.#onAnswered !== undefined && this.#life.state === 'closed') {
      throw new VerbsError('ECONNRESET', 'the peer went away');
    }
    this.#expect('connection');
    const { progress } = this.#life;
    if (progress === wanted) return;
    throw invalid(`the connection must be ${wanted}, but is ${progress}`);
  }

  #refresh(): void {
    this.#device = this.native.deviceName;
    this.#localAddress = this.native.localAddress;
    this.#peerAddress = this.native.peerAddress;
  }
}

function connectionParameters(
  qp: RdmaQP,
  parameters: ConnectionParameters,
): Parameters<NativeCmId['connect']>[0] {
  const { device } = qp.native;
  const { maxQpInitRdAtom, maxQpRdAtom } = device.attributes;
  const privateData = parameters.privateData ?? NO_PRIVATE_DATA;
  const { maxPrivateData } = device.traits;
  if (privateData.length > maxPrivateData) {
    const text = `${device.info.name} carries ${maxPrivateData} bytes of private data`;
    throw invalid(text);
  }
  return {
    privateData,
    initiatorDepth: depthOf(parameters.initiatorDepth, maxQpInitRdAtom),
    responderResources: depthOf(parameters.responderResources, maxQpRdAtom),
    qp: qp.native,
  };
}

/** rdma_cm counts depths in one byte, whose last value means the device's maximum. */
function depthOf(wanted: number | undefined, max: number): number {
  if (wanted === undefined) return Math.min(max, DEPTH_OF_DEVICE);
  if (!Number.isInteger(wanted) || wanted < 0 || wanted > max) {
    throw invalid(`the device has read depths up to ${max}`);
  }
  return Math.min(wanted, DEPTH_OF_DEVICE);
}
