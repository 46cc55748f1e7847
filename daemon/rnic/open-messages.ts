/**
 * The WQEs of a send queue: the one that was taken last, and those of the messages that the wire
 * still needs, oldest first.
 *
 * A wire without retransmission has one message open at a time, so one WQE is used again and again.
 * Others keep more of them; the depth of the queue bounds how many.
 */
import { SendWqe, type WqeLimits } from './send-wqe.ts';
import type { StagTable } from './stag-table.ts';

/** `SendWqe.started` of a WQE whose work request has completed. */
export const COMPLETED = -1;

/** What an idle queue pair has; never filled. */
const NO_WQES: SendWqe[] = [];

export class OpenMessages {
  #latest: SendWqe | undefined = undefined;
  /** The oldest one that is open. */
  oldest: SendWqe | undefined = undefined;
  readonly #table: StagTable;
  readonly #limits: WqeLimits;
  /** By slot. */
  #wqes = NO_WQES;
  #newest: SendWqe | undefined = undefined;
  #spare: SendWqe | undefined = undefined;

  constructor(table: StagTable, limits: WqeLimits) {
    this.#table = table;
    this.#limits = limits;
  }

  /** The WQE that was taken last, or will be next. It may be open. */
  get latest(): SendWqe {
    this.#latest ??= this.#make();
    return this.#latest;
  }

  /** WQEs made so far: as many as were ever open, and one. */
  get size(): number {
    return this.#wqes.length;
  }

  /** A WQE to read the next element into. */
  vacant(): SendWqe {
    if (this.latest.open) {
      const spare = this.#spare ?? this.#make();
      this.#spare = spare.next;
      spare.next = undefined;
      this.#latest = spare;
    }
    return this.latest;
  }

  /** Opens the latest one: its message goes to the wire. `started`: its index in the started work. */
  open(started: number): void {
    const wqe = this.latest;
    wqe.started = started;
    wqe.open = true;
    wqe.awaited = false;
    if (this.#newest === undefined) this.oldest = wqe;
    else this.#newest.next = wqe;
    this.#newest = wqe;
  }

  /** The wire does not need the oldest one any more. */
  shift(): void {
    const wqe = this.oldest;
    if (wqe === undefined) return;
    this.oldest = wqe.next;
    if (this.oldest === undefined) this.#newest = undefined;
    wqe.open = false;
    wqe.next = undefined;
    // The latest one is found without a list.
    if (wqe === this.latest) return;
    wqe.next = this.#spare;
    this.#spare = wqe;
  }

  /** The WQE of a message; one that is done still has its content, until it is used again. */
  at(slot: number): SendWqe {
    const { latest } = this;
    return latest.slot === slot ? latest : (this.#wqes[slot] ?? latest);
  }

  /** Everything open is completed: nothing waits for it. */
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
