/**
 * Moves receives from a client's ring to the device, of a queue pair or of a shared queue. Native
 * devices have no way to look for them when a message comes.
 */
import { isVerbsError } from '../../verbs-api/contract/errors.ts';
import { SQOpcode } from '../../verbs-api/contract/queue-layout.ts';
import type { RecvWR } from '../../verbs-api/contract/work-request.ts';
import type { ElementRing } from '../rnic/ring.ts';
import { InFlight } from './in-flight.ts';
import { BATCH, RECEIVE_BIT } from './request-number.ts';
import { ReceiveRequest } from './request-reader.ts';

/** What a poster is made with. */
export interface ReceivePosterOptions {
  readonly ring: ElementRing;
  readonly maxSge: number;
  /** Receives that the device holds. */
  readonly capacity: number;
  /** Posts to the device; throws as `LowerSRQ.postRecv`. */
  readonly post: (requests: readonly RecvWR[]) => void;
  /** The device refuses a receive for good; it is forgotten. */
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

  /** The client's ring, for those who flush it. */
  get ring(): ElementRing {
    return this.#options.ring;
  }

  /** There are receives that the device does not have yet. */
  get waiting(): boolean {
    return this.#pending.length > 0 || this.#options.ring.ready();
  }

  /** Requests that are the device's, or are about to be. */
  get outstanding(): number {
    return this.inFlight.count;
  }

  /**
   * Posts what the ring has and the device takes. Returns how many were posted; with a full batch
   * there may be more. Throws when the device fails.
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

  /** Takes all that the device has, or was about to get; `each` is told the client's `wr_id`. */
  takeAll(each: (wrIdLo: number, wrIdHi: number) => void): void {
    this.#pending = [];
    const { inFlight } = this;
    inFlight.takeAll(() => each(inFlight.wrIdLo, inFlight.wrIdHi));
  }

  /** Forgets what was taken and what is the device's. */
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

  /** How many were posted before one was refused. A full queue takes it later. */
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
