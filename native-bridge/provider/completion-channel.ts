/** Completion channels: where armed completion queues report. */
import { EventChannel } from '../../verbs-api/client/event-channel.ts';
import type { CancelSignal, CompChannel, CQ } from '../../verbs-api/contract/provider.ts';
import type { NativeCompChannel, NativeCQ } from '../rdma/completion-queue.ts';
import { type DescriptorWatch, watchDescriptor } from '../rdma/watched-descriptor.ts';
import { type DeviceScope, TeardownRank } from './device-scope.ts';
import { OwnedObject } from './owned-object.ts';

/** A completion queue as its channel sees it. */
export interface Notifiable {
  readonly cq: CQ;
  /** The queue fired. True when the consumer asked for that, and not a wait of the library. */
  notified(): boolean;
}

/** `CompChannel` of a native device. */
export class RdmaCompChannel extends OwnedObject implements CompChannel {
  readonly native: NativeCompChannel;
  readonly #scope: DeviceScope;
  readonly #members = new Map<NativeCQ, Notifiable>();
  readonly #events = new EventChannel<CQ>();
  readonly #watch: DescriptorWatch;
  readonly #forgetLoss: () => void;

  constructor(scope: DeviceScope) {
    super(scope.presence, 'completion channel');
    this.#scope = scope;
    this.native = scope.native.createCompChannel();
    this.#watch = watchDescriptor(this.native.descriptor, () => this.#read());
    this.#forgetLoss = scope.presence.onLost((error) => this.#events.fail(error));
    scope.add(this, TeardownRank.completionChannel);
  }

  get fd(): number | undefined {
    return this.usable ? this.native.descriptor : undefined;
  }

  /** Enters a completion queue that reports here. */
  enter(cq: NativeCQ, member: Notifiable): void {
    this.#members.set(cq, member);
  }

  /** Takes a completion queue off; its events are dropped from now on. */
  leave(cq: NativeCQ): void {
    this.#members.delete(cq);
  }

  nextEvent(options: { readonly signal?: CancelSignal } = {}): Promise<CQ> {
    return this.#events.next(options.signal);
  }

  protected override destroy(): void {
    // The watch ends before the library closes the descriptor, but not when it refuses to.
    this.native.assertUnused();
    this.#watch.close();
    this.native.dispose();
  }

  protected override released(): void {
    this.#watch.close();
    this.#forgetLoss();
    this.#events.close(this.closedError());
    this.#scope.remove(this);
  }

  /** A queue fired. */
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
      const { name } = this.#scope.native.info;
      this.#scope.presence.lose(`${name} is gone: ${String(error)}`);
    }
  }
}
