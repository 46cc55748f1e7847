import { type Micros, NEVER } from './time.ts';

/** The deadlines of one machine, by slot. One that is not set is `NEVER`. */
export class Deadlines<Slot extends number> {
  // A typed array would take 150 bytes more of each idle queue pair.
  readonly #due: number[];

  /** `slots` numbers them from 0. */
  constructor(slots: Readonly<Record<string, Slot>>) {
    this.#due = Object.keys(slots).map(() => NEVER);
  }

  set(slot: Slot, due: Micros): void {
    this.#due[slot] = due;
  }

  /** Sets it unless it is set. */
  start(slot: Slot, due: Micros): void {
    if (!this.isSet(slot)) this.#due[slot] = due;
  }

  clear(slot: Slot): void {
    this.#due[slot] = NEVER;
  }

  clearAll(): void {
    this.#due.fill(NEVER);
  }

  isSet(slot: Slot): boolean {
    return this.#due[slot] !== NEVER;
  }

  passed(slot: Slot, now: Micros): boolean {
    return now >= (this.#due[slot] ?? NEVER);
  }

  /** The earliest. */
  next(): Micros {
    let next = NEVER;
    for (const due of this.#due) next = Math.min(next, due);
    return next;
  }
}
