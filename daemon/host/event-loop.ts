/**
 * Drives a host's conduits. Input is settled at once, in the same turn of the event loop, to keep
 * latency low; after a bounded amount of work, the rest continues in the next turn. One timer
 * serves all deadlines.
 */
import { assert } from '#base/assert';
import { Fifo } from '#base/fifo';
import { type Micros, NEVER } from '#base/time';
import type { Conduit } from './conduit.ts';
import type { Alarm, HostClock } from './links/network.ts';
import { noteShortWork } from './turn-note.ts';

/**
 * Rounds of settling and effects within one drain. A round handles everything queued; more than a
 * few follow each other only if consumers answer events with commands that cause events.
 */
const ROUNDS_MAX = 64;
/** Timers fire up to a millisecond early; a deadline is never handled before its time. */
const TIMER_SLACK_MICROS = 1000;

/** Expired deadlines handled in one turn: thousands may be due together. The others stay due. */
const DUE_MAX = 128;

/** Work of the loop besides conduits. */
export interface LoopUser {
  /** Executes all effects; true if there were any. */
  drainEffects(now: Micros): boolean;
  handleDeadline(now: Micros): void;
  nextDeadline(): Micros;
}

export class EventLoop {
  readonly #user: LoopUser;
  readonly #clock: HostClock;
  readonly #queue = new Fifo<Conduit>();
  /** Conduits with a deadline. */
  readonly #timed = new Set<Conduit>();
  /** Conduits that continue in a later turn. Those that got no share of this turn come first. */
  #held: Conduit[] = [];
  #unfinished: Conduit[] = [];
  #draining = false;
  #laterScheduled = false;
  #closed = false;
  #timer: Alarm | undefined;
  #timerDue: Micros = NEVER;

  constructor(user: LoopUser, clock: HostClock) {
    this.#user = user;
    this.#clock = clock;
  }

  now(): Micros {
    return this.#clock.now();
  }

  /** The conduit's stream had input or a command. */
  enqueue(conduit: Conduit): void {
    if (conduit.queued) return;
    conduit.queued = true;
    this.#queue.push(conduit);
  }

  /**
   * Settles everything queued, with all consequences. Does nothing if called from within itself. `now`:
   * the time, if the caller has just read the clock.
   */
  drain(now?: Micros): void {
    if (this.#draining) return;
    noteShortWork();
    this.#draining = true;
    try {
      this.#drainRounds(now ?? this.now());
    } finally {
      this.#draining = false;
    }
    this.#arm(this.#user.nextDeadline());
  }

  /** The conduit's link has ended: the loop no longer touches it. */
  forget(conduit: Conduit): void {
    this.#timed.delete(conduit);
  }

  /** Conduits waiting to be settled, for a later turn, and for a deadline. */
  heldCounts(): { readonly queued: number; readonly deferred: number; readonly timed: number } {
    const deferred = this.#held.length + this.#unfinished.length;
    return { queued: this.#queue.count, deferred, timed: this.#timed.size };
  }

  /** Call at the end of a turn. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    assert(!this.#draining, 'drain in progress at the end of a turn');
    for (const conduit of this.#queue.items()) assert(conduit.queued, 'queued flag missing');
    const deferred = [...this.#held, ...this.#unfinished];
    assert(
      deferred.length === 0 || this.#laterScheduled,
      'deferred conduits without a scheduled turn',
    );
    for (const conduit of deferred) assert(conduit.deferred, 'deferred flag missing');
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  #drainRounds(now: Micros): void {
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const settled = this.#settleQueued(now);
      const effects = this.#user.drainEffects(now);
      if (!settled && !effects) return;
    }
    this.#drainLater();
  }

  #settleQueued(now: Micros): boolean {
    const { count } = this.#queue;
    // Conduits that these queue are settled in the next round.
    for (let left = count; left > 0; left -= 1) {
      const conduit = this.#queue.shift() as Conduit;
      conduit.queued = false;
      this.#defer(conduit, conduit.settle(now));
      this.#time(conduit);
    }
    return count > 0;
  }

  #time(conduit: Conduit): void {
    const due = conduit.nextDeadline();
    if (due !== NEVER) this.#timed.add(conduit);
    else if (this.#timed.size > 0) this.#timed.delete(conduit);
    this.#arm(due);
  }

  #defer(conduit: Conduit, rest: ReturnType<Conduit['settle']>): void {
    if (rest === 'done') return;
    conduit.deferred = true;
    if (rest === 'held') this.#held.push(conduit);
    else this.#unfinished.push(conduit);
    this.#drainLater();
  }

  #drainLater(): void {
    if (this.#laterScheduled) return;
    this.#laterScheduled = true;
    this.#clock.soon(this.#resume);
  }

  readonly #resume = (): void => {
    this.#laterScheduled = false;
    const deferred = [...this.#held, ...this.#unfinished];
    this.#held = [];
    this.#unfinished = [];
    for (const conduit of deferred) {
      conduit.deferred = false;
      this.enqueue(conduit);
    }
    this.drain();
  };

  /** Sets the timer for `due`, unless it already fires earlier. */
  #arm(due: Micros): void {
    if (due >= this.#timerDue || this.#closed) return;
    this.#timer?.cancel();
    this.#timerDue = due;
    const delay = Math.max(0, due - this.now()) + TIMER_SLACK_MICROS;
    this.#timer = this.#clock.after(delay, this.#fire);
  }

  readonly #fire = (): void => {
    if (this.#closed) return;
    this.#timerDue = NEVER;
    const now = this.now();
    const due: Conduit[] = [];
    for (const conduit of this.#timed) {
      if (conduit.nextDeadline() <= now) due.push(conduit);
      if (due.length === DUE_MAX) break;
    }
    for (const conduit of due) {
      // Settling another conduit may have ended this one or handled its deadline.
      if (!this.#timed.has(conduit) || conduit.nextDeadline() > now) continue;
      conduit.handleDeadline(now);
      this.enqueue(conduit);
      // At once: otherwise a thousand conduits that are due together would have output at the same time.
      this.drain();
    }
    this.#user.handleDeadline(now);
    for (const conduit of this.#timed) this.#arm(conduit.nextDeadline());
    this.drain();
  };
}
