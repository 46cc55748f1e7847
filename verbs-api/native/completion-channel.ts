/** Completion channels: deliver the events of armed completion queues. */
import type { CompChannel, CQ, WaitLimit } from '#contract/verbs/provider';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import type { NativeCompChannel, NativeCQ } from '#native-bridge/rdma/completion-queue';
import type { Notifiable } from '../client/completion-channel.ts';
import { EventChannel, nextOf } from '../client/event-channel.ts';
import { TeardownRank } from '../client/lifetime.ts';
import { DeviceObject, type DeviceScope } from './device-scope.ts';

export class RdmaCompChannel extends DeviceObject implements CompChannel {
  readonly native: NativeCompChannel;
  readonly #members = new Map<NativeCQ, Notifiable>();
  readonly #events = new EventChannel<CQ>();
  readonly #watch: DescriptorWatch;
  readonly #forgetLoss: () => void;

  constructor(scope: DeviceScope) {
    super(scope, 'completion channel');
    this.native = scope.native.createCompChannel();
    this.#watch = watchDescriptor(this.native.descriptor, () => this.#read());
    this.#forgetLoss = scope.presence.onLost((error) => this.#events.fail(error));
    scope.add(this, TeardownRank.completionChannel);
  }

  get fd(): number | undefined {
    return this.usable ? this.native.descriptor : undefined;
  }

  /** Registers a completion queue that uses this channel. */
  enter(cq: NativeCQ, member: Notifiable): void {
    this.#members.set(cq, member);
  }

  /** Unregisters a completion queue; its later events are dropped. */
  leave(cq: NativeCQ): void {
    this.#members.delete(cq);
  }

  nextEvent(options?: WaitLimit): Promise<CQ> {
    return nextOf(this.#events, options);
  }

  protected override destroy(): void {
    // The watch must end before the library closes the descriptor, but not if the library refuses.
    this.native.assertUnused();
    this.#watch.close();
    super.destroy();
  }

  protected override released(): void {
    this.#watch.close();
    this.#forgetLoss();
    this.#events.close(this.closedError());
    super.released();
  }

  fire(member: Notifiable): void {
    if (member.notified()) this.#events.push(member.cq);
  }

  #read(): void {
    try {
      for (let fired = this.native.readEvent(); fired; fired = this.native.readEvent()) {
        const member = this.#members.get(fired);
        if (member !== undefined) this.fire(member);
      }
    } catch (error) {
      this.#watch.close();
      this.presence.lose(`${this.scope.native.info.name} is gone: ${String(error)}`);
    }
  }
}
