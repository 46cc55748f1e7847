/** Time of a simulation, which advances only when no event is due. */
import { BinaryHeap } from '#daemon/capture/binary-heap';
import type { Alarm, HostClock } from '#daemon/host/links/network';
import type { Prng } from './prng.ts';

interface Entry extends Alarm {
  readonly due: number;
  readonly order: number;
  run: (() => void) | undefined;
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

  after(delayMicros: number, run: () => void): Alarm {
    const entry: Entry = {
      due: this.now + Math.max(0, delayMicros),
      order: this.#order++,
      run,
      cancel: () => {
        entry.run = undefined;
      },
    };
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
    while (entries.first !== undefined && entries.first.run === undefined) entries.pop();
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
    const due = entry?.run;
    if (entry === undefined || due === undefined) return false;
    this.now = Math.max(this.now, entry.due);
    entry.run = undefined;
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

  after(delayMicros: number, run: () => void): Alarm {
    this.alarms += 1;
    let open = true;
    const close = (): void => {
      if (open) this.alarms -= 1;
      open = false;
    };
    const alarm = this.#time.after(delayMicros, () => {
      close();
      run();
    });
    return {
      cancel: () => {
        close();
        alarm.cancel();
      },
    };
  }

  soon(run: () => void): void {
    this.turns += 1;
    this.#time.soon(() => {
      this.turns -= 1;
      run();
    });
  }
}
