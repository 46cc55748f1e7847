/** Time of a simulation, which advances only when no event is due. */
import { BinaryHeap } from '#daemon/capture/binary-heap';
import type { Alarm, HostClock } from '#daemon/host/links/network';
import type { Prng } from './prng.ts';

/** Something that is due at a time. `count`: where it counts while it is neither due nor cancelled. */
class Entry implements Alarm {
  readonly due: number;
  readonly order: number;
  readonly #count: { alarms: number } | undefined;
  #run: (() => void) | undefined;

  constructor(due: number, order: number, run: () => void, count?: { alarms: number }) {
    this.due = due;
    this.order = order;
    this.#run = run;
    this.#count = count;
    if (count !== undefined) count.alarms += 1;
  }

  get open(): boolean {
    return this.#run !== undefined;
  }

  /** Closes the entry. Returns what to run, unless it was closed before. */
  take(): (() => void) | undefined {
    const run = this.#run;
    if (run !== undefined && this.#count !== undefined) this.#count.alarms -= 1;
    this.#run = undefined;
    return run;
  }

  cancel(): void {
    this.take();
  }
}

export class VirtualTime {
  now = 1_000_000;
  /** By due time, then by order of entry. */
  readonly #entries = new BinaryHeap<Entry>(before);
  #soon: (() => void)[] = [];
  #order = 0;

  /** Calls `run` in the next turn, before time advances. */
  soon(run: () => void): void {
    this.#soon.push(run);
  }

  /** `count` counts the alarm until it is due or cancelled. */
  after(delayMicros: number, run: () => void, count?: { alarms: number }): Alarm {
    const entry = new Entry(this.now + Math.max(0, delayMicros), this.#order++, run, count);
    this.#entries.push(entry);
    return entry;
  }

  /** True if something is due in this turn. */
  get busy(): boolean {
    return this.#soon.length > 0;
  }

  /** When the next alarm is due; undefined if none is set. */
  get nextDue(): number | undefined {
    const entries = this.#entries;
    while (entries.first?.open === false) entries.pop();
    return entries.first?.due;
  }

  /** Advances time to the next entry and runs it. Returns false if there is none. */
  step(): boolean {
    const run = this.#soon.shift();
    if (run !== undefined) {
      run();
      return true;
    }
    if (this.nextDue === undefined) return false;
    const entry = this.#entries.pop();
    const due = entry?.take();
    if (entry === undefined || due === undefined) return false;
    this.now = Math.max(this.now, entry.due);
    due();
    return true;
  }
}

function before(left: Entry, right: Entry): boolean {
  return left.due < right.due || (left.due === right.due && left.order < right.order);
}

/** The clock of one host: virtual time, and a count of its pending alarms. */
export class VirtualClock implements HostClock {
  readonly #time: VirtualTime;
  readonly random32: () => number;
  /** Alarms that have neither fired nor been cancelled. */
  alarms = 0;
  /** Requested turns that have not run. */
  turns = 0;

  constructor(time: VirtualTime, prng: Prng) {
    this.#time = time;
    this.random32 = () => prng.next();
  }

  now(): number {
    return this.#time.now;
  }

  recent(): number {
    return this.now();
  }

  after(delayMicros: number, run: () => void): Alarm {
    return this.#time.after(delayMicros, run, this);
  }

  soon(run: () => void): void {
    this.turns += 1;
    this.#time.soon(() => {
      this.turns -= 1;
      run();
    });
  }
}
