/** Completion queues: polling, arming, waiting. */
import type { CommandReply } from '#contract/protocol/commands';
import { type Completion, FailedCompletion, type WC } from '#contract/verbs/completion';
import { WCStatus } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { CancelSignal, Context, CQ, CQInit, CQWaitOptions } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { cancellable, quiet, throwIfAborted, type Waiter } from './cancellation.ts';
import { CompletionBacklog, checkPoll, DEFAULT_BATCH, waitForBatch } from './completion-backlog.ts';
import { ClientCompChannel, type Notifiable } from './completion-channel.ts';
import { CompletionRing } from './completion-ring.ts';
import { TeardownRank } from './lifetime.ts';
import type { PendingWaits } from './pending-waits.ts';
import { type DeviceScope, ScopedObject } from './session.ts';

export class ClientCQ extends ScopedObject implements CQ, Notifiable {
  readonly context: Context;
  readonly handle: number;
  readonly cqe: number;
  readonly #ring: CompletionRing;
  readonly #channel: ClientCompChannel;
  readonly #waiters: Waiter<void>[] = [];
  readonly #forgetLoss: () => void;
  readonly #backlog = new CompletionBacklog();
  /** The consumer armed the queue, and it has not fired since. */
  #armedByConsumer = false;

  private constructor(
    context: Context,
    scope: DeviceScope,
    channel: ClientCompChannel,
    reply: CommandReply<'createCQ'>,
    mapping: Uint8Array,
  ) {
    super(scope, 'completion queue');
    this.context = context;
    this.handle = reply.cq;
    this.cqe = reply.cqe;
    this.#ring = new CompletionRing(mapping, reply.cqe);
    this.#channel = channel;
    this.#forgetLoss = scope.session.onLost((error) => this.#rejectWaiters(error));
    channel.enter(this.handle, this);
    scope.add(this, TeardownRank.completionQueue);
  }

  /** Creates a completion queue that reports to `init.channel`, or to `fallback` without one. */
  static async create(
    context: Context,
    scope: DeviceScope,
    init: CQInit,
    fallback: () => Promise<ClientCompChannel>,
  ): Promise<ClientCQ> {
    const { session } = scope;
    const channel = init.channel ?? (await fallback());
    if (!(channel instanceof ClientCompChannel) || channel.session !== session) {
      throw invalid('the completion channel belongs to another provider');
    }
    channel.assertUsable();
    const reply = await session.request('createCQ', {
      context: scope.handle,
      cqe: init.cqe,
      channel: channel.handle,
    });
    try {
      const mapping = await session.commandChannel.map(reply.ring);
      return new ClientCQ(context, scope, channel, reply, mapping);
    } catch (error) {
      await session.request('destroyCQ', { cq: reply.cq });
      throw error;
    }
  }

  get cq(): CQ {
    return this;
  }

  poll(max: number = DEFAULT_BATCH): WC[] {
    checkPoll(max);
    return this.#backlog.poll(max, this.#take);
  }

  requestNotify(solicitedOnly = false): void {
    if (typeof solicitedOnly !== 'boolean') checkCall.requestNotify(solicitedOnly);
    this.assertUsable();
    this.#armedByConsumer = true;
    this.#ring.arm(solicitedOnly);
  }

  wait(options?: CQWaitOptions): Promise<WC[]> {
    return quiet(waitForBatch(options, (max, signal) => this.#wait(max, signal)));
  }

  [Symbol.asyncIterator](): AsyncGenerator<WC, void, undefined> {
    return this.#backlog.each(this);
  }

  notified(): boolean {
    const wanted = this.#armedByConsumer;
    this.#armedByConsumer = false;
    for (const waiter of this.#takeWaiters()) waiter.resolve();
    return wanted;
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroyCQ', { cq: this.handle });
  }

  protected override release(): void {
    // A lost device's completions can still be polled; the memory of other queues may have another owner.
    if (!this.session.lost) this.#ring.end();
    this.#channel.leave(this.handle, this);
    this.#forgetLoss();
    this.#rejectWaiters(this.closedError());
    super.release();
  }

  async #wait(max: number, signal: CancelSignal | undefined): Promise<WC[]> {
    for (;;) {
      throwIfAborted(signal);
      const ready = this.poll(max);
      if (ready.length > 0) return this.#lacksReason(ready) ? await this.#explained(ready) : ready;
      this.assertUsable();
      // Enlisted and armed before the second poll: later completions fire the queue, earlier ones
      // are found, so no wake-up is lost.
      const waiting = new AbortableWait(this.#waiters, this.session.waits, signal);
      this.#ring.arm(false);
      const late = this.poll(max);
      if (late.length > 0) {
        waiting.withdraw();
        return this.#lacksReason(late) ? await this.#explained(late) : late;
      }
      await waiting.promise;
    }
  }

  readonly #take = (max: number): WC[] => {
    const completions: WC[] = [];
    while (completions.length < max) {
      const wc = this.#ring.take();
      if (wc === undefined) break;
      // After a failed request the queue pair flushes, and needs a doorbell for each post.
      completions.push(wc.status === WCStatus.success ? wc : this.#failed(wc));
    }
    return completions;
  };

  #failed(wc: Completion): WC {
    const qp = this.scope.queuePairs.get(wc.qpNum);
    if (qp === undefined) return wc;
    qp.noteFlushing();
    return new FailedCompletion(wc, qp.failures.reasonOf);
  }

  /**
   * Reasons of failed work arrive on another path than completions. The reply to a request arrives
   * after every reason that was sent before it.
   */
  async #explained(completions: WC[]): Promise<WC[]> {
    await this.session.request('listDevices', {}).catch(() => undefined);
    return completions;
  }

  #lacksReason(completions: readonly WC[]): boolean {
    if (this.session.lost) return false;
    for (const { status, reason } of completions) {
      if (status !== WCStatus.success && reason === undefined) return true;
    }
    return false;
  }

  #rejectWaiters(error: Error): void {
    for (const waiter of this.#takeWaiters()) waiter.reject(error);
  }

  #takeWaiters(): Waiter<void>[] {
    const waiters = this.#waiters.splice(0);
    for (let left = waiters.length; left > 0; left -= 1) this.session.waits.end();
    return waiters;
  }
}

/** One enlisted waiter that can be withdrawn; must be awaited in the turn that creates it. */
class AbortableWait {
  readonly promise: Promise<void>;
  readonly #list: Waiter<void>[];
  readonly #waits: PendingWaits;
  #waiter: Waiter<void> | undefined;

  constructor(list: Waiter<void>[], waits: PendingWaits, signal: CancelSignal | undefined) {
    this.#list = list;
    this.#waits = waits;
    this.promise = cancellable<void>(
      signal,
      (waiter) => {
        this.#waiter = waiter;
        list.push(waiter);
        waits.begin();
      },
      () => this.#remove(),
    );
  }

  /** Withdraws the waiter and settles its promise. */
  withdraw(): void {
    this.#remove();
    this.#waiter?.resolve();
  }

  #remove(): void {
    const index = this.#waiter === undefined ? -1 : this.#list.indexOf(this.#waiter);
    if (index < 0) return;
    this.#list.splice(index, 1);
    this.#waits.end();
  }
}
