/** Opened devices. */
import type { CommandReply, WorkFailure } from '#contract/protocol/commands';
import type {
  DeviceAttributes,
  DeviceInfo,
  GidEntry,
  PortAttributes,
} from '#contract/verbs/attributes';
import type { AsyncEvent } from '#contract/verbs/completion';
import { AsyncEventType } from '#contract/verbs/enums';
import type { CompChannel, Context, CQ, CQInit, PD, Provider } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { ClientCompChannel } from './completion-channel.ts';
import { ClientCQ } from './completion-queue.ts';
import { EventChannel } from './event-channel.ts';
import { ClientPD } from './protection-domain.ts';
import { ClientObject, DeviceScope, type Session } from './session.ts';

export class ClientDeviceContext extends ClientObject implements Context {
  readonly provider: Provider;
  readonly device: DeviceInfo;
  readonly handle: number;
  readonly #scope: DeviceScope;
  readonly #events = new EventChannel<AsyncEvent>();
  readonly #forgetLoss: () => void;
  readonly #onClosed: () => void;
  /** Receives the events of completion queues that were created without a channel. */
  #ownChannel: Promise<ClientCompChannel> | undefined;

  constructor(
    provider: Provider,
    session: Session,
    opened: CommandReply<'openDevice'>,
    onClosed: () => void,
  ) {
    super(session, 'context');
    this.provider = provider;
    this.device = opened.device;
    this.handle = opened.context;
    this.#scope = new DeviceScope(session, opened);
    this.#onClosed = onClosed;
    this.#forgetLoss = session.onLost((error) => this.#events.fail(error));
  }

  async queryDevice(): Promise<DeviceAttributes> {
    this.assertUsable();
    return await this.session.request('queryDevice', { context: this.handle });
  }

  async queryPort(port = 1): Promise<PortAttributes> {
    checkCall.queryPort(port);
    this.assertUsable();
    return await this.session.request('queryPort', { context: this.handle, port });
  }

  async queryGidTable(): Promise<readonly GidEntry[]> {
    this.assertUsable();
    const { entries } = await this.session.request('queryGidTable', { context: this.handle });
    return entries;
  }

  async allocPD(): Promise<PD> {
    this.assertUsable();
    return await ClientPD.create(this, this.#scope);
  }

  async createCompChannel(): Promise<CompChannel> {
    this.assertUsable();
    return await ClientCompChannel.create(this.#scope);
  }

  async createCQ(init: CQInit): Promise<CQ> {
    checkCall.createCQ(init);
    this.assertUsable();
    return await ClientCQ.create(this, this.#scope, init, () => this.#channel());
  }

  async *asyncEvents(): AsyncGenerator<AsyncEvent, void, undefined> {
    yield* this.#events;
  }

  /** An asynchronous event arrived for this context. */
  handleAsync(event: AsyncEvent): void {
    const { type, qpNum } = event;
    const failed = type === AsyncEventType.qpFatal || type === AsyncEventType.qpAccessErr;
    if (failed && qpNum !== undefined) this.#scope.queuePairs.get(qpNum)?.noteFlushing();
    this.#events.push(event);
  }

  /** Work of a queue pair of this context failed. */
  handleFailure(failure: WorkFailure): void {
    this.#scope.queuePairs.get(failure.qpNum)?.failures.add(failure);
  }

  protected override async destroy(): Promise<void> {
    await this.#scope.closeAll();
    await this.session.request('closeDevice', { context: this.handle });
  }

  protected override release(): void {
    this.#forgetLoss();
    this.#events.close(this.closedError());
    this.#onClosed();
  }

  async #channel(): Promise<ClientCompChannel> {
    this.#ownChannel ??= ClientCompChannel.create(this.#scope);
    try {
      return await this.#ownChannel;
    } catch (error) {
      this.#ownChannel = undefined;
      throw error;
    }
  }
}
