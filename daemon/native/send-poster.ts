/**
 * Moves sends from the client's ring of a queue pair to the device, while it has room.
 *
 * Every send is posted signalled, since otherwise the device's free room is unknown; the client's
 * completion queue counts those whose success the client did not request. A send that cannot be
 * executed waits until all earlier ones have completed, since completions are in order.
 */
import { assert } from '#base/assert';
import { CQEStatus, SQE, SQOpcode } from '#contract/protocol/queue-layout';
import { isVerbsError } from '#contract/verbs/errors';
import type { SendFields } from '#contract/verbs/work-request';
import type { ElementRing } from '../rnic/rings/ring.ts';
import type { BridgedCQ } from './bridged-completion-queue.ts';
import { InFlight } from './in-flight.ts';
import { BATCH } from './request-number.ts';
import { SendRequest } from './request-reader.ts';

interface SendPosterOptions {
  readonly ring: ElementRing;
  readonly maxSge: number;
  readonly maxInline: number;
  /** Report every success to the client, requested or not. */
  readonly reportAll: boolean;
  /** Limits and counts the sends whose success is not reported. */
  readonly cq: BridgedCQ;
  /** Posts to the device; fails like `LowerQP.postSend`. */
  readonly post: (requests: readonly SendFields[]) => void;
  /** A send cannot be executed; all earlier ones have completed. */
  readonly onRefused: (wrIdLo: number, wrIdHi: number, opcode: number, status: CQEStatus) => void;
}

/** Receives the client's `wr_id` of a send and the `SQOpcode` to complete it with. */
type EachSend = (wrIdLo: number, wrIdHi: number, opcode: number) => void;

export class SendPoster {
  /** Posted or about to be; `take` removes one. */
  readonly #inFlight = new InFlight();
  readonly #options: SendPosterOptions;
  readonly #pool = Array.from({ length: BATCH }, () => new SendRequest());
  /** Taken from the ring but not posted: the device had no room. */
  #pending: SendRequest[] = [];
  /** A send that cannot be executed: it completes after all earlier ones. */
  #refused: { wrIdLo: number; wrIdHi: number; opcode: number; status: CQEStatus } | undefined;
  /** Taken from the ring after a rejected one: to be flushed. */
  #stranded: SendRequest[] = [];

  constructor(options: SendPosterOptions) {
    this.#options = options;
  }

  /** Elements taken from the ring so far. */
  get taken(): number {
    return this.#options.ring.index;
  }

  /** True while a send waits for the completion of an earlier one. */
  get waiting(): boolean {
    return this.#pending.length > 0 || this.#options.ring.ready() || this.#refused !== undefined;
  }

  /**
   * Posts a batch of the ring's sends, until the device is full. Returns how many were posted; after a
   * full batch there may be more. Throws if the device fails.
   */
  pump(): number {
    if (this.#pending.length === 0) this.#take();
    const pending = this.#pending;
    if (pending.length === 0) {
      this.#finishRefused();
      return 0;
    }
    let posted = pending.length;
    let refusal: CQEStatus | undefined;
    try {
      this.#options.post(pending);
    } catch (error) {
      if (!isVerbsError(error) || error.badIndex === undefined) throw error;
      posted = error.badIndex;
      if (error.code !== 'ENOMEM') refusal = CQEStatus.locQpOpErr;
    }
    this.#pending = pending.slice(posted);
    if (refusal !== undefined) this.#refuse(refusal);
    this.assertInvariants();
    return posted;
  }

  /** Removes the send with this number. Its fields are valid until the next call. Undefined if unknown. */
  complete(number: number): Readonly<InFlight> | undefined {
    const requests = this.#inFlight;
    if (!requests.take(number)) return undefined;
    if (!requests.reported) this.#options.cq.unreported -= 1;
    this.assertInvariants();
    return requests;
  }

  /**
   * Flushes a batch of work that never reached the device, once it has completed the rest. Returns
   * true if there may be more.
   */
  flush(each: EachSend): boolean {
    // In order: the device's work comes first.
    if (this.#inFlight.count > this.#pending.length) return false;
    if (this.#refused !== undefined) {
      const { wrIdLo, wrIdHi, opcode } = this.#refused;
      this.#refused = undefined;
      each(wrIdLo, wrIdHi, opcode);
    }
    for (const request of this.#pending) this.#forgetPending(request);
    for (const request of [...this.#stranded, ...this.#pending]) {
      each(request.wrIdLo, request.wrIdHi, request.sqOpcode);
    }
    this.#stranded = [];
    this.#pending = [];
    const { ring } = this.#options;
    const { view } = ring;
    for (let count = 0; count < BATCH; count += 1) {
      if (!ring.ready()) return false;
      const { position } = ring;
      const opcode = view.getUint8(position + SQE.opcode);
      each(
        view.getUint32(position + SQE.wrId, true),
        view.getUint32(position + SQE.wrId + 4, true),
        opcode <= SQOpcode.localInv ? opcode : SQOpcode.send,
      );
      ring.release();
    }
    return true;
  }

  /** Removes all sends posted or about to be, oldest first. */
  takeAll(each: EachSend): void {
    const requests = this.#inFlight;
    this.#pending = [];
    requests.takeAll(() => {
      if (!requests.reported) this.#options.cq.unreported -= 1;
      each(requests.wrIdLo, requests.wrIdHi, requests.opcode);
    });
  }

  /** Forgets the posted sends: their completions are ignored. */
  forgetInFlight(): void {
    this.#options.cq.unreported -= this.#inFlight.unreported;
    this.#inFlight.clear();
    this.assertInvariants();
  }

  /** Forgets every send, at the device or in the ring. */
  clear(): void {
    this.forgetInFlight();
    this.#pending = [];
    this.#refused = undefined;
    this.#stranded = [];
    this.#options.ring.clear();
  }

  /** For the ends of commands. Throws `InvariantError` if counts disagree. */
  assertInvariants(): void {
    const { cq, ring } = this.#options;
    const { count, unreported } = this.#inFlight;
    assert(count <= ring.count, 'sends in flight exceed the queue depth');
    assert(unreported <= count, 'unreported sends > sends in flight');
    assert(unreported <= cq.unreported, 'unreported sends > count of the CQ');
    assert(cq.unreported <= cq.unreportedMax, 'unreported completions exceed the native CQ');
  }

  #take(): void {
    if (this.#refused !== undefined) return;
    const { ring, maxSge, maxInline, reportAll, cq } = this.#options;
    for (const request of this.#pool) {
      const room = this.#inFlight.count < ring.count && cq.unreported < cq.unreportedMax;
      if (!room || !ring.ready()) return;
      const status = request.read(ring, { maxSge, maxInline });
      ring.release();
      const { wrIdLo, wrIdHi, sqOpcode } = request;
      if (status !== CQEStatus.success) {
        this.#refused = { wrIdLo, wrIdHi, opcode: sqOpcode, status };
        return;
      }
      const reported = reportAll || request.signalled;
      if (!reported) cq.unreported += 1;
      request.wrId = this.#inFlight.add(wrIdLo, wrIdHi, sqOpcode, reported) * 2;
      this.#pending.push(request);
    }
  }

  /** The device rejected the first pending request: it fails, later ones are flushed. */
  #refuse(status: CQEStatus): void {
    const [first, ...others] = this.#pending;
    if (first === undefined) return;
    for (const request of this.#pending) this.#forgetPending(request);
    this.#pending = [];
    this.#stranded = others;
    const { wrIdLo, wrIdHi, sqOpcode } = first;
    this.#refused = { wrIdLo, wrIdHi, opcode: sqOpcode, status };
    this.#finishRefused();
  }

  /** Reports the rejected request after all earlier ones. */
  #finishRefused(): void {
    const refused = this.#refused;
    if (refused === undefined || this.#inFlight.count > this.#pending.length) return;
    this.#refused = undefined;
    const { wrIdLo, wrIdHi, opcode, status } = refused;
    this.#options.onRefused(wrIdLo, wrIdHi, opcode, status);
  }

  /** Removes a request that was added and not posted. */
  #forgetPending(request: SendRequest): void {
    this.#inFlight.take(request.wrId / 2);
    if (!this.#inFlight.reported) this.#options.cq.unreported -= 1;
  }
}
