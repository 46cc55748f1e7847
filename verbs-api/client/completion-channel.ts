/** Completion channels: deliver the events of armed completion queues. */
import { VerbsError } from '#contract/verbs/errors';
import type { CompChannel, CQ, WaitLimit } from '#contract/verbs/provider';
import { EventChannel, nextOf } from './event-channel.ts';
import { TeardownRank } from './lifetime.ts';
import { type DeviceScope, ScopedObject } from './session.ts';

/** A completion queue as its channel sees it. */
export interface Notifiable {
  readonly cq: CQ;
  /** Handles an event of the queue. True if the consumer armed it, false if the library did, to wait. */
  notified(): boolean;
}

export class ClientCompChannel extends ScopedObject implements CompChannel {
  readonly handle: number;
  readonly #members = new Map<number, Notifiable>();
  readonly #events: EventChannel<CQ>;
  readonly #forgetLoss: () => void;
  #path: { readonly fd: number | undefined; close(): void } | undefined;

  private constructor(scope: DeviceScope, handle: number) {
    super(scope, 'completion channel');
    this.#events = new EventChannel(scope.session.waits);
    this.handle = handle;
    this.#forgetLoss = scope.session.onLost((error) => this.#events.fail(error));
    scope.add(this, TeardownRank.completionChannel);
  }

  /** Creates a channel and opens its event path. */
  static async create(scope: DeviceScope): Promise<ClientCompChannel> {
    const { session } = scope;
    const reply = await session.request('createCompChannel', { context: scope.handle });
    const channel = new ClientCompChannel(scope, reply.channel);
    try {
      channel.#path = await session.commandChannel.openEventPath(reply.channel, reply.token, (cq) =>
        channel.#deliver(cq),
      );
    } catch (error) {
      await channel.close();
      throw error;
    }
    return channel;
  }

  get fd(): number | undefined {
    return this.#path?.fd;
  }

  /** Registers a completion queue that uses this channel. */
  enter(cq: number, member: Notifiable): void {
    this.#members.set(cq, member);
  }

  /** Unregisters a completion queue; its later events are dropped. */
  leave(cq: number, member: Notifiable): void {
    // The device may already have reused the handle for another queue.
    if (this.#members.get(cq) === member) this.#members.delete(cq);
  }

  nextEvent(options?: WaitLimit): Promise<CQ> {
    return nextOf(this.#events, options);
  }

  protected override async destroy(): Promise<void> {
    if (this.#members.size > 0) {
      throw new VerbsError('EBUSY', 'completion queues report to this channel');
    }
    await this.session.request('destroyCompChannel', { channel: this.handle });
  }

  protected override release(): void {
    this.#path?.close();
    this.#forgetLoss();
    this.#events.close(this.closedError());
    super.release();
  }

  #deliver(handle: number): void {
    const member = this.#members.get(handle);
    if (member?.notified() === true) this.#events.push(member.cq);
  }
}
