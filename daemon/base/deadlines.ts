import { type Micros, NEVER } from './time.ts';

/** The deadlines of one state machine, by slot; `NEVER` where not set. */
export class Deadlines<Slot extends number> {
  // A typed array would cost each idle queue pair 150 more bytes.
  readonly #due: number[];

  /** `slots` numbers the slots from 0. */
  constructor(slots: Readonly<Record<string, Slot>>) {
    this.#due = Object.keys(slots).map(() => NEVER);
  }

  set(slot: Slot, due: Micros): void {
    this.#due[slot] = due;
  }

  /** Sets the deadline unless it is already set. */
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

  /** The earliest deadline. */
  next(): Micros {
    let next = NEVER;
    for (const due of this.#due) next = Math.min(next, due);
    return next;
  }
}
