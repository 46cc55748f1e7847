/** Connection ids: resolve, listen, connect, accept, reject, disconnect, and the events of each. */
import type {
  CMEventRecord,
  CMIdState,
  CMParameters,
  CommandName,
  CommandRequest,
} from '#contract/protocol/commands';
import { CMEventType, QPState, QPType, RDMA_UDP_QKEY } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
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
import { quiet } from './cancellation.ts';
import {
  DEFAULT_BACKLOG,
  DEFAULT_RESOLVE_TIMEOUT_MS,
  domainFor,
  NO_PRIVATE_DATA,
} from './connection-checks.ts';
import { ConnectionOutcome } from './connection-outcome.ts';
import { EventChannel, nextOf } from './event-channel.ts';
import { ClientPD } from './protection-domain.ts';
import { ClientQP } from './queue-pair.ts';
import { ClientObject, type Session } from './session.ts';

/** A connection id's interface to the provider it belongs to. */
export interface ConnectionIdOwner {
  readonly provider: Provider;
  readonly session: Session;
  forget(id: ClientConnectionId): void;
}

export class ClientConnectionId extends ClientObject implements ConnectionId {
  readonly provider: Provider;
  readonly handle: number;
  /** It is for datagrams: there is no connection. */
  readonly datagrams: boolean;
  readonly #owner: ConnectionIdOwner;
  readonly #events: EventChannel<CMEvent>;
  readonly #forgetLoss: () => void;
  #state: CMIdState;
  #qp: ClientQP | undefined;
  /** The resolve, connect or accept in progress. */
  readonly #pending: ConnectionOutcome;
  #connected = false;
  /** Called once the connection has ended, while `close` waits for that. */
  #onDisconnected: (() => void) | undefined;

  constructor(owner: ConnectionIdOwner, handle: number, state: CMIdState, datagrams: boolean) {
    super(owner.session, 'connection id');
    const { waits } = owner.session;
    this.#events = new EventChannel(waits);
    this.#pending = new ConnectionOutcome(waits);
    this.#owner = owner;
    this.provider = owner.provider;
    this.handle = handle;
    this.#state = state;
    this.datagrams = datagrams;
    this.#forgetLoss = owner.session.onLost((error) => this.#lost(error));
  }

  get device(): string | undefined {
    return this.#state.device;
  }

  get localAddress(): SocketAddress | undefined {
    return this.#state.localAddress;
  }

  get peerAddress(): SocketAddress | undefined {
    return this.#state.peerAddress;
  }

  get qp(): QP | undefined {
    return this.#qp;
  }

  async bindAddr(address: SocketAddress): Promise<void> {
    checkCall.bindAddr(address);
    this.assertUsable();
    this.#state = await this.session.request('cmBindAddr', { id: this.handle, address });
  }

  async resolveAddr(destination: SocketAddress, options: ResolveOptions = {}): Promise<void> {
    checkCall.resolveAddr(destination, options);
    this.#assertIdle();
    await this.#outcome(CMEventType.addrResolved, 'cmResolveAddr', {
      id: this.handle,
      destination,
      source: options.source,
      timeoutMs: options.timeoutMs ?? DEFAULT_RESOLVE_TIMEOUT_MS,
    });
  }

  async resolveRoute(timeoutMs?: number): Promise<void> {
    checkCall.resolveRoute(timeoutMs);
    this.#assertIdle();
    await this.#outcome(CMEventType.routeResolved, 'cmResolveRoute', { id: this.handle });
  }

  async createQP(pd: PD, init: QPInit): Promise<QP> {
    checkCall.createQPOfId(pd, init);
    this.assertUsable();
    const own = pd instanceof ClientPD ? pd : undefined;
    const domain = domainFor(this, this.#qp, pd, own);
    this.#qp = this.datagrams
      ? await datagramQP(domain, init)
      : await domain.createInitialisedQP(init);
    return this.#qp;
  }

  async listen(backlog: number = DEFAULT_BACKLOG): Promise<void> {
    checkCall.listen(backlog);
    this.assertUsable();
    this.#state = await this.session.request('cmListen', { id: this.handle, backlog });
  }

  connect(parameters: ConnectionParameters = {}): Promise<CMEvent> {
    if (this.datagrams) return quiet(this.#askService(parameters));
    return quiet(this.#establish('cmConnect', parameters));
  }

  accept(parameters: ConnectionParameters = {}): Promise<CMEvent> {
    if (this.datagrams) return quiet(this.#answerService(parameters));
    return quiet(this.#establish('cmAccept', parameters));
  }

  async reject(privateData: Uint8Array = NO_PRIVATE_DATA): Promise<void> {
    checkCall.reject(privateData);
    this.assertUsable();
    await this.session.request('cmReject', {
      id: this.handle,
      privateData: privateData.slice(),
    });
  }

  async disconnect(): Promise<void> {
    this.assertUsable();
    await this.session.request('cmDisconnect', { id: this.handle });
  }

  nextEvent(options?: WaitLimit): Promise<CMEvent> {
    return nextOf(this.#events, options);
  }

  async *events(): AsyncGenerator<CMEvent, void, undefined> {
    yield* this.#events;
  }

  /** An event arrived for this id; `id` is the new id on a connect request, otherwise this one. */
  handleEvent(record: CMEventRecord, id: ClientConnectionId): void {
    const event: CMEvent = {
      type: record.type,
      id,
      listenId: id === this ? undefined : this,
      error: record.error,
      privateData: record.privateData,
      initiatorDepth: record.initiatorDepth,
      responderResources: record.responderResources,
      ud: record.ud,
      text: record.text,
    };
    if (id === this) {
      this.#state = record.state;
      this.#follow(event);
    }
    this.#events.push(event);
  }

  protected override async destroy(): Promise<void> {
    // First; otherwise the caller's error would be that its queue pair is gone.
    this.#pending.fail(new VerbsError('ECONNABORTED', 'the id was closed'));
    if (this.#connected) await this.#hangUp();
    await this.#qp?.close();
    await this.session.request('cmDestroyId', { id: this.handle });
  }

  protected override release(): void {
    this.#forgetLoss();
    this.#owner.forget(this);
    // Requests that were never taken: their ids have no other owner.
    for (const event of this.#events.drain()) {
      if (event.type === CMEventType.connectRequest) void event.id.close().catch(() => {});
    }
    this.#events.close(this.closedError());
  }

  async #establish(
    command: 'cmConnect' | 'cmAccept',
    parameters: ConnectionParameters,
  ): Promise<CMEvent> {
    if (command === 'cmConnect') checkCall.connect(parameters);
    else checkCall.accept(parameters);
    this.assertUsable();
    const qp = this.#expectQP(parameters);
    this.#assertIdle();
    return await this.#outcome(CMEventType.established, command, {
      id: this.handle,
      qp: qp.handle,
      ...deviceParameters(parameters),
    });
  }

  #expectQP(parameters: ConnectionParameters): ClientQP {
    const qp = parameters.qp ?? this.#qp;
    if (!(qp instanceof ClientQP) || qp.session !== this.session) {
      throw invalid('a connection needs a queue pair of the same provider');
    }
    qp.assertUsable();
    return qp;
  }

  async #askService(parameters: ConnectionParameters): Promise<CMEvent> {
    checkCall.connect(parameters);
    this.#assertIdle();
    const { handle: id } = this;
    const request = { id, qp: undefined, ...deviceParameters(parameters) };
    return await this.#outcome(CMEventType.established, 'cmConnect', request);
  }

  async #answerService(parameters: ConnectionParameters): Promise<CMEvent> {
    checkCall.accept(parameters);
    this.#assertIdle();
    const { handle: id } = this;
    const { handle: qp } = this.#expectQP(parameters);
    const { qkey = RDMA_UDP_QKEY } = parameters;
    await this.session.request('cmAccept', { id, qp, qkey, ...deviceParameters(parameters) });
    return {
      type: CMEventType.established,
      id: this,
      listenId: undefined,
      error: undefined,
      privateData: NO_PRIVATE_DATA,
      initiatorDepth: undefined,
      responderResources: undefined,
      text: 'answered',
    };
  }

  #assertIdle(): void {
    this.assertUsable();
    if (this.#pending.pending) throw invalid('the id is busy');
  }

  /** The event that reports the outcome of a command. */
  async #outcome<N extends CommandName>(
    success: CMEventType,
    command: N,
    request: CommandRequest<N>,
  ): Promise<CMEvent> {
    // Begun first, since the outcome may arrive before the command's reply.
    const outcome = this.#pending.begin(success);
    try {
      await this.session.request(command, request);
    } catch (error) {
      this.#pending.withdraw(outcome);
      throw error;
    }
    return await outcome;
  }

  /** Tracks the state of the connection and settles the promise that waits for the event. */
  #follow(event: CMEvent): void {
    switch (event.type) {
      case CMEventType.established:
        this.#connected = !this.datagrams;
        break;
      case CMEventType.connectError:
      case CMEventType.unreachable:
      case CMEventType.disconnected:
      case CMEventType.deviceRemoval:
        this.#ended();
        break;
      default:
    }
    this.#pending.settle(event);
  }

  #ended(): void {
    this.#connected = false;
    this.#onDisconnected?.();
    this.#onDisconnected = undefined;
  }

  /** Closes the connection gracefully: the last bytes sent still arrive. */
  async #hangUp(): Promise<void> {
    const ended = new Promise<void>((resolve) => {
      this.#onDisconnected = resolve;
    });
    try {
      await this.session.request('cmDisconnect', { id: this.handle });
    } catch {
      // The connection ended on its own in the meantime.
      return;
    }
    await ended;
  }

  #lost(error: VerbsError): void {
    this.#ended();
    this.#pending.fail(error);
    this.#events.fail(error);
  }
}

/** A queue pair for datagrams, as `rdma_create_qp` makes it. */
async function datagramQP(pd: ClientPD, init: QPInit): Promise<ClientQP> {
  if (init.type !== undefined && init.type !== QPType.ud) {
    throw invalid('the queue pair of an id for datagrams must have the type UD');
  }
  const qp = await pd.createQP({ ...init, type: QPType.ud });
  try {
    await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, qkey: RDMA_UDP_QKEY });
    await qp.modify({ state: QPState.RTR });
    await qp.modify({ state: QPState.RTS, sqPsn: 0 });
    return qp;
  } catch (error) {
    await qp.close();
    throw error;
  }
}

function deviceParameters(parameters: ConnectionParameters): CMParameters {
  return {
    privateData: parameters.privateData?.slice() ?? NO_PRIVATE_DATA,
    initiatorDepth: parameters.initiatorDepth,
    responderResources: parameters.responderResources,
    wire: parameters.wire,
  };
}
