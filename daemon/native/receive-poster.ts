/**
 * Moves receives from the client's ring of a queue pair or shared queue to the device. Native
 * devices cannot look for them when a message arrives.
 */

import { SQOpcode } from '../../verbs-api/contract/protocol/queue-layout.ts';
import { isVerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import type { RecvWR } from '../../verbs-api/contract/verbs/work-request.ts';
import type { ElementRing } from '../rnic/ring.ts';
import { InFlight } from './in-flight.ts';
import { BATCH, RECEIVE_BIT } from './request-number.ts';
import { ReceiveRequest } from './request-reader.ts';

/** Options of a poster. */
interface ReceivePosterOptions {
  readonly ring: ElementRing;
  readonly maxSge: number;
  /** Receives that the device holds. */
  readonly capacity: number;
  /** Posts to the device; throws as `LowerSRQ.postRecv`. */
  readonly post: (requests: readonly RecvWR[]) => void;
  /** The device rejected a receive for good; it is dropped. */
  readonly onRefused: (wrIdLo: number, wrIdHi: number) => void;
}

/** See the module's comment. */
export class ReceivePoster {
  readonly inFlight = new InFlight();
  readonly #options: ReceivePosterOptions;
  readonly #pool = Array.from({ length: BATCH }, () => new ReceiveRequest());
  /** Taken from the ring, not posted yet: the device had no room. */
  #pending: ReceiveRequest[] = [];

  constructor(options: ReceivePosterOptions) {
    this.#options = options;
  }

  /** The client's ring, to be flushed. */
  get ring(): ElementRing {
    return this.#options.ring;
  }

  /** True when the device lacks some receives. */
  get waiting(): boolean {
    return this.#pending.length > 0 || this.#options.ring.ready();
  }

  /** Receives at the device, or about to be. */
  get outstanding(): number {
    return this.inFlight.count;
  }

  /**
   * Posts the ring's receives as far as the device takes them. Returns how many were posted; after
   * a full batch there may be more. Throws when the device fails.
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

  /** Removes all receives at the device, or about to be; `each` gets the client's `wr_id`. */
  takeAll(each: (wrIdLo: number, wrIdHi: number) => void): void {
    this.#pending = [];
    const { inFlight } = this;
    inFlight.takeAll(() => each(inFlight.wrIdLo, inFlight.wrIdHi));
  }

  /** Forgets the receives taken and those at the device. */
  clear(): void {
    this.inFlight.clear();
    this.#pending = [];
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

  /** How many were posted before one failed. A full queue takes it later. */
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
