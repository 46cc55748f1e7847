/**
 * The WQEs of a send queue: the latest one, and those of messages that the wire still needs, oldest
 * first.
 *
 * A wire without retransmission has one message open at a time, so one WQE is reused. Other wires
 * need more, up to the depth of the queue.
 */

import type { StagTable } from '../memory/stag-table.ts';
import { SendWqe, type WqeLimits } from '../rings/send-wqe.ts';

/** `SendWqe.started` of a WQE whose work request has completed. */
export const COMPLETED = -1;

/** For idle queue pairs; never filled. */
const NO_WQES: SendWqe[] = [];

export class OpenMessages {
  #latest: SendWqe | undefined = undefined;
  oldest: SendWqe | undefined = undefined;
  readonly #table: StagTable;
  readonly #limits: WqeLimits;
  #wqes = NO_WQES;
  #newest: SendWqe | undefined = undefined;
  #spare: SendWqe | undefined = undefined;

  constructor(table: StagTable, limits: WqeLimits) {
    this.#table = table;
    this.#limits = limits;
  }

  /** The WQE of the last element taken, or for the next one. It may be open. */
  get latest(): SendWqe {
    this.#latest ??= this.#make();
    return this.#latest;
  }

  /** Number of WQE objects: one more than the most that were open at the same time. */
  get size(): number {
    return this.#wqes.length;
  }

  vacant(): SendWqe {
    if (this.latest.open) {
      const spare = this.#spare ?? this.#make();
      this.#spare = spare.next;
      spare.next = undefined;
      this.#latest = spare;
    }
    return this.latest;
  }

  /** Opens the latest WQE: its message goes to the wire. `started`: its index in `StartedQueue`. */
  open(started: number): void {
    const wqe = this.latest;
    wqe.started = started;
    wqe.open = true;
    wqe.awaited = false;
    if (this.#newest === undefined) this.oldest = wqe;
    else this.#newest.next = wqe;
    this.#newest = wqe;
  }

  /** Removes the oldest WQE, whose message is done. */
  shift(): void {
    const wqe = this.oldest;
    if (wqe === undefined) return;
    this.oldest = wqe.next;
    if (this.oldest === undefined) this.#newest = undefined;
    wqe.open = false;
    wqe.next = undefined;
    // `latest` needs no list.
    if (wqe === this.latest) return;
    wqe.next = this.#spare;
    this.#spare = wqe;
  }

  /** Returns a message's WQE. A completed WQE keeps its contents until its slot is reused. */
  at(slot: number): SendWqe {
    const { latest } = this;
    return latest.slot === slot ? latest : (this.#wqes[slot] ?? latest);
  }

  /** All open work is completed. */
  clear(): void {
    while (this.oldest !== undefined) {
      this.oldest.started = COMPLETED;
      this.shift();
    }
  }

  #make(): SendWqe {
    const wqe = new SendWqe(this.#table, this.#wqes.length, this.#limits);
    if (wqe.slot === 0) this.#wqes = [wqe];
    else this.#wqes.push(wqe);
    return wqe;
  }
}
