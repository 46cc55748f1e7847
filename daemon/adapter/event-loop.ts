/**
 * Drives a host's conduits: whatever had an input is settled at once, in the same turn of the event
 * loop, since latency is decided here; what is left over after a bounded amount of work goes on in
 * the next turn. One timer serves every deadline.
 */
import { type Micros, NEVER } from '../engine/stream-api.ts';
import type { Conduit } from './conduit.ts';

/**
 * Rounds of settling and effects within one drain. A round handles all that is queued; more than a
 * few follow each other only when consumers answer events with commands that cause events.
 */
const ROUNDS_MAX = 64;
/** Timers fire up to a millisecond early; a deadline is never handled before its time. */
const TIMER_SLACK_MS = 1;

/** What the loop drives besides conduits. */
export interface LoopUser {
  /** Carries out all effects; true if there were any. */
  drainEffects(now: Micros): boolean;
  handleDeadline(now: Micros): void;
  nextDeadline(): Micros;
}

/** See the module's comment. */
export class EventLoop {
  readonly #user: LoopUser;
  #queue: Conduit[] = [];
  #settling: Conduit[] = [];
  /** Conduits with a deadline. */
  readonly #timed = new Set<Conduit>();
  #draining = false;
  #laterScheduled = false;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;
  #timerDue: Micros = NEVER;

  constructor(user: LoopUser) {
    this.#user = user;
  }

  now(): Micros {
    return performance.now() * 1000;
  }

  /** The conduit's stream had an input or a command. */
  enqueue(conduit: Conduit): void {
    if (conduit.queued) return;
    conduit.queued = true;
    this.#queue.push(conduit);
  }

  /** Settles what is queued and everything that follows. Does nothing within itself. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    try {
      this.#drainRounds(this.now());
    } finally {
      this.#draining = false;
    }
    this.#arm(this.#user.nextDeadline());
  }

  /** The conduit's link is gone: it is not touched again. */
  forget(conduit: Conduit): void {
    this.#timed.delete(conduit);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
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
    if (this.#queue.length === 0) return false;
    const conduits = this.#queue;
    this.#queue = this.#settling;
    for (const conduit of conduits) {
      conduit.queued = false;
      if (conduit.settle(now)) this.#settleLater(conduit);
      this.#time(conduit);
    }
    conduits.length = 0;
    this.#settling = conduits;
    return true;
  }

  #time(conduit: Conduit): void {
    const due = conduit.nextDeadline();
    if (due !== NEVER) this.#timed.add(conduit);
    else if (this.#timed.size > 0) this.#timed.delete(conduit);
    this.#arm(due);
  }

  #settleLater(conduit: Conduit): void {
    setImmediate(() => {
      this.enqueue(conduit);
      this.drain();
    });
  }

  #drainLater(): void {
    if (this.#laterScheduled) return;
    this.#laterScheduled = true;
    setImmediate(() => {
      this.#laterScheduled = false;
      this.drain();
    });
  }

  /** Sets the timer for `due`, unless it fires before that anyway. */
  #arm(due: Micros): void {
    if (due >= this.#timerDue || this.#closed) return;
    clearTimeout(this.#timer);
    this.#timerDue = due;
    const delayMs = Math.max(0, (due - this.now()) / 1000) + TIMER_SLACK_MS;
    this.#timer = setTimeout(() => this.#fire(), delayMs);
    // Sockets keep a process alive, deadlines alone do not.
    this.#timer.unref();
  }

  #fire(): void {
    this.#timerDue = NEVER;
    const now = this.now();
    for (const conduit of this.#timed) {
      if (conduit.nextDeadline() > now) continue;
      conduit.handleDeadline(now);
      this.enqueue(conduit);
    }
    this.#user.handleDeadline(now);
    for (const conduit of this.#timed) this.#arm(conduit.nextDeadline());
    this.drain();
  }
}
