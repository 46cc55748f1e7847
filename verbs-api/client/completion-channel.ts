/** Completion channels: where armed completion queues report. */
import { VerbsError } from '../contract/errors.ts';
import type { CancelSignal, CompChannel, CQ } from '../contract/provider.ts';
import { EventChannel } from './event-channel.ts';
import { ClientObject, type DeviceScope, TeardownRank } from './session.ts';

/** A completion queue as its channel sees it. */
export interface Notifiable {
  readonly cq: CQ;
  /** The queue fired. True when the consumer asked for that, and not a wait of the library. */
  notified(): boolean;
}

/** `CompChannel` over a link. */
export class ClientCompChannel extends ClientObject implements CompChannel {
  readonly handle: number;
  readonly #scope: DeviceScope;
  readonly #members = new Map<number, Notifiable>();
  readonly #events = new EventChannel<CQ>();
  readonly #forgetLoss: () => void;
  #path: { readonly fd: number | undefined; close(): void } | undefined;

  private constructor(scope: DeviceScope, handle: number) {
    super(scope.session, 'completion channel');
    this.#scope = scope;
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
      channel.#path = await session.link.openChannel(reply.channel, reply.token, (cq) =>
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

  /** Enters a completion queue that reports here. */
  enter(cq: number, member: Notifiable): void {
    this.#members.set(cq, member);
  }

  /** Takes a completion queue off; its events are dropped from now on. */
  leave(cq: number, member: Notifiable): void {
    // The device may have given the handle to another queue already.
    if (this.#members.get(cq) === member) this.#members.delete(cq);
  }

  nextEvent(options: { readonly signal?: CancelSignal } = {}): Promise<CQ> {
    return this.#events.next(options.signal);
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
    this.#scope.remove(this);
  }

  #deliver(handle: number): void {
    const member = this.#members.get(handle);
    if (member?.notified() === true) this.#events.push(member.cq);
  }
}
