/** Opened devices. */
import type {
  DeviceAttributes,
  DeviceInfo,
  GidEntry,
  PortAttributes,
} from '#contract/verbs/attributes';
import type { AsyncEvent } from '#contract/verbs/completion';
import { AsyncEventType } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { CompChannel, Context, CQ, CQInit, PD, Provider } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import { NativeCQ } from '#native-bridge/rdma/completion-queue';
import type { NativeAsyncEvent, NativeDevice } from '#native-bridge/rdma/device';
import { unsupported } from '#native-bridge/rdma/errors';
import { NativeQP } from '#native-bridge/rdma/queue-pair';
import { NativeSRQ } from '#native-bridge/rdma/shared-receive-queue';
import { EventChannel } from '../client/event-channel.ts';
import { RdmaCompChannel } from './completion-channel.ts';
import { RdmaCQ } from './completion-queue.ts';
import { DeviceScope } from './device-scope.ts';
import { OwnedObject } from './owned-object.ts';
import { RdmaPD } from './protection-domain.ts';

export class RdmaContext extends OwnedObject implements Context {
  readonly provider: Provider;
  readonly device: DeviceInfo;
  readonly #scope: DeviceScope;
  readonly #events = new EventChannel<AsyncEvent>();
  readonly #watch: DescriptorWatch;
  readonly #forgetLoss: () => void;
  readonly #onClosed: () => void;
  /** Receives the events of completion queues that were created without a channel. */
  #ownChannel: RdmaCompChannel | undefined;

  constructor(provider: Provider, native: NativeDevice, device: DeviceInfo, onClosed: () => void) {
    const scope = new DeviceScope(native);
    super(scope.presence, 'context');
    this.provider = provider;
    this.device = device;
    this.#scope = scope;
    this.#onClosed = onClosed;
    this.#watch = watchDescriptor(native.asyncDescriptor, () => this.#readEvents());
    this.#forgetLoss = scope.presence.onLost((error) => this.#events.fail(error));
  }

  async queryDevice(): Promise<DeviceAttributes> {
    this.assertUsable();
    return this.#scope.native.attributes;
  }

  async queryPort(port = 1): Promise<PortAttributes> {
    checkCall.queryPort(port);
    this.assertUsable();
    return this.#scope.native.queryPort(port);
  }

  async queryGidTable(): Promise<readonly GidEntry[]> {
    this.assertUsable();
    throw unsupported(this.device.name, 'GID table: it speaks iWARP');
  }

  async allocPD(): Promise<PD> {
    this.assertUsable();
    return new RdmaPD(this, this.#scope);
  }

  async createCompChannel(): Promise<CompChannel> {
    this.assertUsable();
    return new RdmaCompChannel(this.#scope);
  }

  async createCQ(init: CQInit): Promise<CQ> {
    checkCall.createCQ(init);
    this.assertUsable();
    const { channel } = init;
    if (channel === undefined) {
      this.#ownChannel ??= new RdmaCompChannel(this.#scope);
      return new RdmaCQ(this, this.#scope, init.cqe, this.#ownChannel);
    }
    if (!(channel instanceof RdmaCompChannel)) {
      throw invalid('the completion channel belongs to another provider');
    }
    channel.assertUsable();
    return new RdmaCQ(this, this.#scope, init.cqe, channel);
  }

  async *asyncEvents(): AsyncGenerator<AsyncEvent, void, undefined> {
    yield* this.#events;
  }

  protected override async destroy(): Promise<void> {
    await this.#scope.closeAll();
    this.#watch.close();
    this.#scope.native.dispose();
  }

  protected override released(): void {
    this.#forgetLoss();
    this.#events.close(this.closedError());
    this.#onClosed();
  }

  /**
   * The connection manager reported the removal of the device: all of its objects fail from now on.
   */
  lose(): void {
    this.#scope.presence.lose(`${this.device.name} is gone: it was removed`);
  }

  #readEvents(): void {
    const { native } = this.#scope;
    try {
      for (let event = native.readAsyncEvent(); event; event = native.readAsyncEvent()) {
        this.#handle(event);
      }
    } catch (error) {
      this.#watch.close();
      this.#scope.presence.lose(`${this.device.name} is gone: ${String(error)}`);
    }
  }

  #handle(event: NativeAsyncEvent): void {
    const { element } = event;
    const type = event.type as AsyncEventType;
    const qpNum = element instanceof NativeQP ? element.qpNum : undefined;
    const failed = type === AsyncEventType.qpFatal || type === AsyncEventType.qpAccessErr;
    if (failed && qpNum !== undefined) this.#scope.queuePairs.get(qpNum)?.noteFlushing();
    const handle =
      element instanceof NativeQP || element instanceof NativeCQ || element instanceof NativeSRQ
        ? element.handle
        : event.port;
    this.#events.push({ type, element: handle, qpNum, text: textOf(event, qpNum) });
    if (type === AsyncEventType.deviceFatal) {
      this.#scope.presence.lose(`${this.device.name} is gone: the device failed`);
    }
  }
}

const EVENT_TEXTS: Readonly<Record<number, string>> = {
  [AsyncEventType.cqErr]: 'completion queue overflow: completions are lost',
  [AsyncEventType.qpFatal]: 'the queue pair failed',
  [AsyncEventType.qpReqErr]: 'the peer sent an invalid message',
  [AsyncEventType.qpAccessErr]: 'the peer accessed memory without the right to do so',
  [AsyncEventType.commEst]: 'the first message of the peer arrived',
  [AsyncEventType.sqDrained]: 'the send queue is drained',
  [AsyncEventType.deviceFatal]: 'the device failed',
  [AsyncEventType.portActive]: 'the port is active',
  [AsyncEventType.portErr]: 'the port is down',
  [AsyncEventType.srqLimitReached]: 'few receives are left on the shared receive queue',
  [AsyncEventType.qpLastWqeReached]: 'the last receive of the queue pair was consumed',
  [AsyncEventType.gidChange]: 'the GID table of the port changed',
};

function textOf(event: NativeAsyncEvent, qpNum: number | undefined): string {
  const text = EVENT_TEXTS[event.type] ?? `event ${event.type}`;
  return qpNum === undefined ? text : `${text} (queue pair ${qpNum})`;
}
