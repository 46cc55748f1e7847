/**
 * The awaitable operations of a connection: requests in the order of their calls, each resolved by
 * its completion, and incoming messages. Uses the public verbs only. connection-requests.ts builds
 * the requests.
 */
import {
  OPERAND,
  optional,
  options as optionsOf,
  refusalBy,
  takes,
  wholeNumber,
} from '#contract/verbs/arguments';
import type { WC } from '#contract/verbs/completion';
import { OperationError } from '#contract/verbs/connect-errors';
import { SendFlag, WC_STATUS_TEXT, WCStatus, WROpcode } from '#contract/verbs/enums';
import { type ErrnoCode, invalid, VerbsError } from '#contract/verbs/errors';
import type { CancelSignal, CQ, PD, QP, WaitLimit } from '#contract/verbs/provider';
import type { RemoteMemory } from '#contract/verbs/remote-memory';
import { LIMIT, WAIT_LIMIT } from '#contract/verbs/signatures';
import type { SendWR, SGE } from '#contract/verbs/work-request';
import { cancellable, quiet, throwIfAborted, type Waiter } from './client/cancellation.ts';
import { NO_LIMIT, orAbort, within } from './client/deadline.ts';
import {
  atomicPlan,
  type Done,
  type Plan,
  readPlan,
  sendPlan,
  writePlan,
} from './connection-requests.ts';
import { HEADER_BYTES, putHeader } from './message-framing.ts';
import { GRANTS, type MessageWindow, RECEIVE_IDS } from './message-window.ts';
import { BYTES_OR_SGE, PAYLOAD, REMOTE, TARGET } from './signatures.ts';
import { type Stage, StagingMemory } from './staging-memory.ts';

/** How a connection ended. */
export interface Ending {
  /**
   * `closedHere`: by `close`. `closed`: gracefully, by the peer or by `id.disconnect`. `aborted`: by
   * a Terminate, a reset or a broken rule; `text` says which.
   */
  readonly kind: 'closedHere' | 'closed' | 'aborted';
  /** undefined unless aborted. A native device reports none: its driver does not say. */
  readonly error: ErrnoCode | undefined;
  /** One readable line. */
  readonly text: string;
}

/** Options of an operation on the peer's memory. */
export interface RemoteOptions extends WaitLimit {
  /** First byte to access, counted from the start of the exported region. Default 0. */
  readonly offset?: number | undefined;
}

const REMOTE_OPTIONS = optional(
  optionsOf<RemoteOptions>({ ...LIMIT, offset: optional(wholeNumber(0)) }),
);
const OWN_LIMIT = optional(WAIT_LIMIT);

/** Checks the arguments of a connection's operations; throws EINVAL. */
export const checkOperation = {
  send: takes('send', { data: PAYLOAD, limit: OWN_LIMIT }),
  write: takes('write', { remote: REMOTE, data: BYTES_OR_SGE, options: REMOTE_OPTIONS }),
  read: takes('read', { remote: REMOTE, into: optional(TARGET), options: REMOTE_OPTIONS }),
  fetchAdd: takes('fetchAdd', { remote: REMOTE, add: OPERAND, options: REMOTE_OPTIONS }),
  compareSwap: takes('compareSwap', {
    remote: REMOTE,
    expected: OPERAND,
    value: OPERAND,
    options: REMOTE_OPTIONS,
  }),
  messages: takes('messages', { limit: OWN_LIMIT }),
  disconnected: takes('disconnected', { limit: OWN_LIMIT }),
} as const;

/** First id of a request; those of receives are `RECEIVE_IDS` and up. */
const REQUEST_IDS = RECEIVE_IDS + (1n << 61n);
const BATCH = 64;

/** A request from its call to its completion. */
interface Job<T> {
  readonly what: string;
  /** The request needs a credit of the peer. */
  readonly spends: boolean;
  readonly waiter: Waiter<T>;
  /** Staging memory. */
  stage: Stage | undefined;
  /** The staging memory is being allocated. */
  staging: Promise<void> | undefined;
  failure: unknown;
  abandoned: boolean;
  /** Builds the request when it is posted. */
  readonly request: (stage: Stage | undefined) => SendWR;
  readonly finish: (done: Done) => T;
}

/** Parts of a connection that its traffic uses. */
export interface TrafficParts {
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  /** The completion queue is used by this connection only. */
  readonly ownsCQ: boolean;
  readonly window: MessageWindow | undefined;
  /** Why the connection ended, once known. */
  readonly endText: () => string | undefined;
  /** Resolves once it has ended. */
  readonly ended: () => Promise<Ending>;
  /** Ends the connection after the peer violated the protocol. */
  readonly abort: () => void;
}

export class ConnectionTraffic {
  readonly #parts: TrafficParts;
  readonly #staging: StagingMemory;
  readonly #queue: Job<never>[] = [];
  readonly #posted = new Map<bigint, Job<never>>();
  readonly #readers: Waiter<void>[] = [];
  readonly #limit: number;
  #nextId = REQUEST_IDS;
  #pumping = false;
  #draining = false;
  /** Why no operation is possible any longer. */
  #end: VerbsError | undefined;
  /** Our request that ended the connection, for readers of messages. */
  #culprit: OperationError | undefined;

  constructor(parts: TrafficParts) {
    this.#parts = parts;
    this.#staging = new StagingMemory(parts.pd);
    const reserved = parts.window?.credited === true ? GRANTS : 0;
    this.#limit = Math.max(1, parts.qp.capabilities.maxSendWr - reserved);
  }

  /** Starts taking completions. EINVAL if the completion queue is the program's. */
  start(): void {
    if (!this.#parts.ownsCQ) {
      throw invalid('cannot await operations with a `cq` of your own: leave out `cq`');
    }
    if (this.#pumping) return;
    this.#pumping = true;
    void this.#pump();
  }

  /**
   * The connection was closed: pending operations reject with ECONNABORTED, and the memory is
   * released. Call this once the queue pair is gone.
   */
  async close(): Promise<void> {
    this.#fail(new VerbsError('ECONNABORTED', 'the connection was closed here'));
    // The queue pair is gone: the device no longer uses any memory.
    for (const job of this.#posted.values()) job.stage?.release();
    this.#posted.clear();
    await this.#staging.close();
  }

  send(data: Uint8Array | SGE | string, limit: WaitLimit): Promise<void> {
    const known = typeof data === 'string' || data instanceof Uint8Array;
    const refused =
      known && limit === NO_LIMIT ? undefined : refusalBy(checkOperation.send, data, limit);
    if (refused !== undefined) return this.#run(NO_LIMIT, refused);
    const { window, qp } = this.#parts;
    return this.#run(limit, sendPlan(data, window, qp.capabilities.maxInlineData));
  }

  write(remote: RemoteMemory, data: Uint8Array | SGE, options: RemoteOptions): Promise<void> {
    const refused = refusalBy(checkOperation.write, remote, data, options);
    if (refused !== undefined) return this.#run(NO_LIMIT, refused);
    const { maxInlineData } = this.#parts.qp.capabilities;
    return this.#run(options, writePlan(remote, data, options.offset, maxInlineData));
  }

  read(
    remote: RemoteMemory,
    into: number | Uint8Array | SGE | undefined,
    options: RemoteOptions,
  ): Promise<Uint8Array> {
    const refused = refusalBy(checkOperation.read, remote, into, options);
    return this.#run(options, refused ?? readPlan(remote, into, options.offset));
  }

  fetchAdd(remote: RemoteMemory, add: number | bigint, options: RemoteOptions): Promise<bigint> {
    const refused = refusalBy(checkOperation.fetchAdd, remote, add, options);
    if (refused !== undefined) return this.#run(NO_LIMIT, refused);
    const compareAdd = BigInt.asUintN(64, BigInt(add));
    const operation = { opcode: WROpcode.atomicFetchAndAdd, compareAdd } as const;
    return this.#run(options, atomicPlan(remote, options.offset, 'fetchAdd', operation));
  }

  compareSwap(
    remote: RemoteMemory,
    expected: number | bigint,
    value: number | bigint,
    options: RemoteOptions,
  ): Promise<bigint> {
    const refused = refusalBy(checkOperation.compareSwap, remote, expected, value, options);
    if (refused !== undefined) return this.#run(NO_LIMIT, refused);
    const operation = {
      opcode: WROpcode.atomicCmpAndSwap,
      compareAdd: BigInt.asUintN(64, BigInt(expected)),
      swap: BigInt.asUintN(64, BigInt(value)),
    } as const;
    return this.#run(options, atomicPlan(remote, options.offset, 'compareSwap', operation));
  }

  /** The next message; undefined after the last message of a connection that ended well. */
  async next(limit: WaitLimit): Promise<Uint8Array | undefined> {
    const { window } = this.#parts;
    if (window === undefined) {
      throw invalid(
        'this connection has no receives for messages: pass `messages: true` to connect or accept',
      );
    }
    return await within(limit, 'message', async (signal) => {
      for (;;) {
        throwIfAborted(signal);
        const message = window.take();
        if (message !== undefined) {
          this.#grant();
          return message;
        }
        if (this.#end !== undefined) {
          const { code } = this.#end;
          if (code === 'ECONNABORTED') return undefined;
          if (code !== 'ENOTCONN') throw this.#end;
          if (this.#culprit !== undefined) throw this.#culprit;
          const { error, text } = await orAbort(this.#parts.ended(), signal);
          if (error === undefined) return undefined;
          throw new VerbsError(error, text);
        }
        await this.#arrival(signal);
      }
    });
  }

  #run<T>(limit: WaitLimit, plan: Plan<T> | VerbsError): Promise<T> {
    if (plan instanceof VerbsError) return quiet(Promise.reject(plan));
    return quiet(
      within(limit, plan.what, (signal) => {
        this.start();
        if (this.#end !== undefined) throw this.#end;
        let job: Job<T> | undefined;
        return cancellable<T>(
          signal,
          (waiter) => {
            job = this.#enqueue(plan, waiter);
          },
          () => {
            if (job !== undefined) this.#abandon(job);
          },
        );
      }),
    );
  }

  #enqueue<T>(plan: Plan<T>, waiter: Waiter<T>): Job<T> {
    const job: Job<T> = {
      what: plan.what,
      spends: plan.spends === true,
      waiter,
      stage: undefined,
      staging: undefined,
      failure: undefined,
      abandoned: false,
      request: plan.request,
      finish: plan.finish,
    };
    const { stageBytes, fill } = plan;
    if (stageBytes !== undefined) {
      job.stage = this.#staging.takeNow(stageBytes);
      if (job.stage !== undefined) fill?.(job.stage.mr.buffer);
      else job.staging = this.#stage(job, stageBytes, fill);
    }
    // Jobs with any result share one queue: each has its own waiter and `finish`.
    this.#queue.push(job as unknown as Job<never>);
    this.#drain();
    return job;
  }

  async #stage<T>(
    job: Job<T>,
    lengthBytes: number,
    fill: ((bytes: Uint8Array) => void) | undefined,
  ): Promise<void> {
    try {
      job.stage = await this.#staging.take(lengthBytes);
      fill?.(job.stage.mr.buffer);
    } catch (error) {
      job.failure = error;
    }
    job.staging = undefined;
    this.#drain();
  }

  /** Its caller cancelled. A posted request keeps its memory until it completes. */
  #abandon<T>(job: Job<T>): void {
    job.abandoned = true;
    this.#drain();
  }

  /** Posts as many requests as possible, in order. */
  #drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    for (let job = this.#queue[0]; job !== undefined; job = this.#queue[0]) {
      if (job.staging !== undefined) break;
      if (job.abandoned || job.failure !== undefined || this.#end !== undefined) {
        this.#queue.shift();
        job.stage?.release();
        if (!job.abandoned) job.waiter.reject(job.failure ?? this.#end);
        continue;
      }
      if (this.#posted.size >= this.#limit) break;
      if (job.spends && (this.#parts.window?.credits ?? 1) < 1) break;
      this.#queue.shift();
      this.#post(job);
    }
    this.#draining = false;
  }

  #post(job: Job<never>): void {
    const wrId = this.#nextId;
    this.#nextId += 1n;
    this.#posted.set(wrId, job);
    try {
      this.#parts.qp.postSend({ ...job.request(job.stage), wrId });
    } catch (error) {
      this.#posted.delete(wrId);
      job.stage?.release();
      job.waiter.reject(error);
    }
  }

  async #pump(): Promise<void> {
    const { cq } = this.#parts;
    try {
      for (;;) {
        for (const wc of await cq.wait({ max: BATCH })) this.#completed(wc);
        this.#drain();
      }
    } catch (error) {
      this.#fail(error instanceof VerbsError ? error : new VerbsError('EIO', String(error)));
    }
  }

  #completed(wc: WC): void {
    const job = this.#posted.get(wc.wrId);
    if (job !== undefined) {
      this.#posted.delete(wc.wrId);
      this.#settle(job, wc);
    } else if (wc.wrId >= RECEIVE_IDS && wc.wrId < REQUEST_IDS) {
      this.#received(wc);
    }
    if (wc.status !== WCStatus.success) this.#noteEnd(wc);
  }

  #settle(job: Job<never>, wc: WC): void {
    try {
      if (wc.status !== WCStatus.success) {
        job.waiter.reject(new OperationError(job.what, wc, this.#parts.endText()));
      } else if (!job.abandoned) {
        job.waiter.resolve(job.finish({ wc, stage: job.stage }));
      }
    } catch (error) {
      job.waiter.reject(error);
    } finally {
      job.stage?.release();
    }
  }

  #received(wc: WC): void {
    const { window } = this.#parts;
    if (window === undefined || wc.status !== WCStatus.success) return;
    try {
      window.receive(Number(wc.wrId - RECEIVE_IDS), wc.byteLen);
    } catch (error) {
      this.#fail(error instanceof VerbsError ? error : new VerbsError('EIO', String(error)));
      this.#parts.abort();
      return;
    }
    for (const reader of this.#readers.splice(0)) reader.resolve();
  }

  /** A request failed: the queue pair flushes and the connection has ended. */
  #noteEnd(wc: WC): void {
    if (this.#end !== undefined) return;
    const why = this.#parts.endText();
    let cause = why;
    if (wc.status !== WCStatus.wrFlushErr) {
      this.#culprit = new OperationError('connection', wc, why);
      cause ??= wc.reason ?? WC_STATUS_TEXT[wc.status];
    }
    const text = `the connection has ended${cause === undefined ? '' : ` (${cause})`}`;
    this.#end = new VerbsError('ENOTCONN', text);
    for (const reader of this.#readers.splice(0)) reader.resolve();
  }

  /** No further completion will arrive: everything that waits rejects. */
  #fail(error: VerbsError): void {
    this.#end ??= error;
    for (const job of this.#posted.values()) {
      job.abandoned = true;
      job.waiter.reject(this.#end);
    }
    for (const reader of this.#readers.splice(0)) reader.resolve();
    this.#drain();
  }

  /** Returns credits, ahead of requests that themselves wait for credits. */
  #grant(): void {
    const { window, qp } = this.#parts;
    if (window?.grantDue !== true || this.#end !== undefined) return;
    const inlineData = new Uint8Array(HEADER_BYTES);
    putHeader(inlineData, false, window.takePendingCredits());
    try {
      qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, inlineData });
    } catch {
      // The connection ended in the meantime.
    }
  }

  #arrival(signal: CancelSignal | undefined): Promise<void> {
    let enlisted: Waiter<void> | undefined;
    return cancellable<void>(
      signal,
      (waiter) => {
        enlisted = waiter;
        this.#readers.push(waiter);
      },
      () => {
        const index = enlisted === undefined ? -1 : this.#readers.indexOf(enlisted);
        if (index >= 0) this.#readers.splice(index, 1);
      },
    );
  }
}
