/** Completion queues: polling, arming, waiting. */

import { performance } from 'node:perf_hooks';
import type { WC } from '#contract/verbs/completion';
import { WCStatus } from '#contract/verbs/enums';
import type { CancelSignal, Context, CQ, CQWaitOptions } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import type { NativeCQ } from '#native-bridge/rdma/completion-queue';
import { quiet, throwIfAborted } from '../client/cancellation.ts';
import {
  CompletionBacklog,
  checkPoll,
  DEFAULT_BATCH,
  waitForBatch,
} from '../client/completion-backlog.ts';
import type { Notifiable } from '../client/completion-channel.ts';
import { orAbort } from '../client/deadline.ts';
import { TeardownRank } from '../client/lifetime.ts';
import type { RdmaCompChannel } from './completion-channel.ts';
import { DeviceObject, type DeviceScope } from './device-scope.ts';

/** The next firing of a queue, shared by all waiting calls. */
interface Firing {
  readonly promise: Promise<void>;
  resolve(): void;
  reject(error: Error): void;
}

export class RdmaCQ extends DeviceObject implements CQ, Notifiable {
  readonly context: Context;
  readonly native: NativeCQ;
  readonly #channel: RdmaCompChannel;
  readonly #forgetLoss: () => void;
  readonly #backlog = new CompletionBacklog();
  /** Completions that the device does not write; returned after those that it wrote. */
  #flushed: WC[] = [];
  #firing: Firing | undefined;
  /** The consumer armed the queue, and it has not fired since. */
  #armedByConsumer = false;

  constructor(context: Context, scope: DeviceScope, cqe: number, channel: RdmaCompChannel) {
    super(scope, 'completion queue');
    this.context = context;
    this.#channel = channel;
    this.native = scope.native.createCQ(cqe, channel.native);
    this.#forgetLoss = scope.presence.onLost((error) => this.#firing?.reject(error));
    channel.enter(this.native, this);
    scope.add(this, TeardownRank.completionQueue);
  }

  get cq(): CQ {
    return this;
  }

  get handle(): number {
    return this.native.handle;
  }

  get cqe(): number {
    return this.native.cqe;
  }

  poll(max: number = DEFAULT_BATCH): WC[] {
    checkPoll(max);
    return this.#backlog.poll(max, this.#take);
  }

  requestNotify(solicitedOnly = false): void {
    if (typeof solicitedOnly !== 'boolean') checkCall.requestNotify(solicitedOnly);
    this.assertUsable();
    this.#armedByConsumer = true;
    this.native.requestNotify(solicitedOnly);
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
    const firing = this.#firing;
    this.#firing = undefined;
    firing?.resolve();
    return wanted;
  }

  /** Adds completions that the device does not write. Fires an armed queue. */
  pushFlushed(completions: readonly WC[]): void {
    if (completions.length === 0) return;
    this.#flushed.push(...completions);
    if (this.#armedByConsumer || this.#firing !== undefined) {
      setImmediate(() => this.#channel.fire(this));
    }
  }

  protected override released(): void {
    this.#channel.leave(this.native);
    this.#forgetLoss();
    this.#firing?.reject(this.closedError());
    super.released();
  }

  readonly #take = (max: number): WC[] => {
    const completions = this.native.disposed ? [] : this.native.poll(max);
    if (this.#flushed.length > 0 && completions.length < max) {
      completions.push(...this.#flushed.splice(0, max - completions.length));
    }
    for (const { status, qpNum } of completions) {
      if (status !== WCStatus.success) this.scope.queuePairs.get(qpNum)?.noteFlushing();
    }
    return completions;
  };

  async #wait(max: number, signal: CancelSignal | undefined): Promise<WC[]> {
    if (shareIsSpent()) await nextTurn();
    for (;;) {
      throwIfAborted(signal);
      if (!this.usable) throw this.closedError();
      const ready = this.poll(max);
      if (ready.length > 0) return ready;
      this.assertUsable();
      // Armed before the second poll: later completions fire the queue, earlier ones are found, so
      // no wake-up is lost.
      this.#firing ??= newFiring();
      const { promise } = this.#firing;
      this.native.requestNotify(false);
      const late = this.poll(max);
      if (late.length > 0) return late;
      await orAbort(promise, signal);
    }
  }
}

function newFiring(): Firing {
  let settle: Pick<Firing, 'resolve' | 'reject'> = { resolve() {}, reject() {} };
  const promise = quiet(
    new Promise<void>((resolve, reject) => {
      settle = { resolve, reject };
    }),
  );
  return { promise, ...settle };
}

/**
 * Maximum time for completions per turn of the event loop, in milliseconds. Promises alone deliver
 * those already in the queue, and a consumer that never waits would starve timers and sockets.
 */
const SHARE_MS = 1;

let begun: number | undefined;
let turn: Promise<void> | undefined;

/** The first call of a turn starts its clock; true once completions have used their share. */
export function shareIsSpent(): boolean {
  const now = performance.now();
  if (begun === undefined) {
    begun = now;
    setImmediate(() => {
      begun = undefined;
    });
  }
  return now - begun > SHARE_MS;
}

/** Resolves in the next turn of the event loop. */
export function nextTurn(): Promise<void> {
  turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  });
  return turn;
}
