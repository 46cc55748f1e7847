/**
 * Moves receives from the client's ring of a queue pair or shared queue to the device. Native
 * devices cannot fetch them when a message arrives.
 */
import { RQE, SQOpcode } from '#contract/protocol/queue-layout';
import { isVerbsError } from '#contract/verbs/errors';
import type { RecvWR } from '#contract/verbs/work-request';
import type { ElementRing } from '../rnic/rings/ring.ts';
import { InFlight } from './in-flight.ts';
import { BATCH, RECEIVE_BIT } from './request-number.ts';
import { ReceiveRequest } from './request-reader.ts';

interface ReceivePosterOptions {
  readonly ring: ElementRing;
  readonly maxSge: number;
  /** Capacity of the device's queue. */
  readonly capacity: number;
  /** Posts to the device; fails like `LowerSRQ.postRecv`. */
  readonly post: (requests: readonly RecvWR[]) => void;
  /** The device rejected a receive for good; it is dropped. */
  readonly onRefused: (wrIdLo: number, wrIdHi: number) => void;
}

export class ReceivePoster {
  readonly inFlight = new InFlight();
  readonly #options: ReceivePosterOptions;
  readonly #pool = Array.from({ length: BATCH }, () => new ReceiveRequest());
  /** Taken from the ring but not posted: the device had no room. */
  #pending: ReceiveRequest[] = [];

  constructor(options: ReceivePosterOptions) {
    this.#options = options;
  }

  /** Elements taken from the ring so far. */
  get taken(): number {
    return this.#options.ring.index;
  }

  /** True if some receives have not been posted. */
  get waiting(): boolean {
    return this.#pending.length > 0 || this.#options.ring.ready();
  }

  /**
   * Posts receives of the ring until the device is full. Returns how many were posted; after a full
   * batch there may be more. Throws if the device fails.
   */
  pump(): number {
    if (this.#pending.length === 0) this.#take();
    const pending = this.#pending;
    if (pending.length === 0) return 0;
    try {
      this.#options.post(pending);
    } catch (error) {
      return this.#refused(error);
    }
    this.#pending = [];
    return pending.length;
  }

  /** Removes all receives posted or about to be; calls `each` with the client's `wr_id`. */
  takeAll(each: (wrIdLo: number, wrIdHi: number) => void): void {
    this.#pending = [];
    const { inFlight } = this;
    inFlight.takeAll(() => each(inFlight.wrIdLo, inFlight.wrIdHi));
  }

  /**
   * Flushes a batch of receives that never reached the device, once it has completed the others;
   * calls `each` with the client's `wr_id`. Returns true if there may be more.
   */
  flush(each: (wrIdLo: number, wrIdHi: number) => void): boolean {
    if (this.inFlight.count > 0) return false;
    const { ring } = this.#options;
    const { view } = ring;
    for (let count = 0; count < BATCH; count += 1) {
      if (!ring.ready()) return false;
      const { position } = ring;
      each(
        view.getUint32(position + RQE.wrId, true),
        view.getUint32(position + RQE.wrId + 4, true),
      );
      ring.release();
    }
    return true;
  }

  /** Forgets every receive, at the device or in the ring. */
  clear(): void {
    this.inFlight.clear();
    this.#pending = [];
    this.#options.ring.clear();
  }

  #take(): void {
    const { ring, maxSge, capacity } = this.#options;
    for (const request of this.#pool) {
      if (this.inFlight.count >= capacity || !ring.ready()) return;
      request.read(ring, maxSge);
      ring.release();
      const { wrIdLo, wrIdHi } = request;
      const number = this.inFlight.add(wrIdLo, wrIdHi, SQOpcode.receive, true);
      request.wrId = number * 2 + RECEIVE_BIT;
      this.#pending.push(request);
    }
  }

  /** How many were posted before one failed. A full queue accepts it later. */
  #refused(error: unknown): number {
    if (!isVerbsError(error) || error.badIndex === undefined) throw error;
    const posted = error.badIndex;
    const refused = error.code === 'ENOMEM' ? undefined : this.#pending[posted];
    this.#pending = this.#pending.slice(refused === undefined ? posted : posted + 1);
    if (refused !== undefined) {
      this.inFlight.take((refused.wrId - RECEIVE_BIT) / 2);
      this.#options.onRefused(refused.wrIdLo, refused.wrIdHi);
    }
    return posted;
  }
}
