/**
 * Limits how much of a turn of the event loop the requests of one user take, over all connections. A
 * user who sends a thousand at once, or has a thousand connections, delays only their own programs.
 *
 * A request that has started runs to its end. Once the share is spent, the remaining bytes wait and
 * their connections are not read; they continue in later turns, in order.
 */
import { processClock } from '#native-bridge/libc/process-clock';
import { ReadingShare } from '../host/links/reading-share.ts';
import { type InputAccount, KeptInput } from './kept-input.ts';

/** Milliseconds of a turn: enough for a few hundred cheap requests. */
export const SHARE_MS = 4;
/**
 * A share is renewed this many milliseconds after its first use, even within a turn: a user who used
 * less than half of that time delayed no other.
 */
export const SHARE_PERIOD_MS = 8;

/** The time that work takes, and turns. Each request starts with a reading, which its work may use. */
export interface TurnClock {
  /** Milliseconds. */
  now(): number;
  /** Calls `run` in the next turn. */
  soon(run: () => void): void;
}

const PROCESS: TurnClock = { now: () => processClock.readMs(), soon: setImmediate };

/** A connection that waits for a share. */
interface Waiting {
  /** Continues while the share lasts. */
  resume(): void;
}

export class CommandShare {
  readonly reading: ReadingShare;
  readonly #clock: TurnClock;
  readonly #waiting: Waiting[] = [];
  #spentMs = 0;
  #since = 0;
  #begun = 0;
  #scheduled = false;

  constructor(clock: TurnClock = PROCESS) {
    this.#clock = clock;
    this.reading = new ReadingShare(clock.soon);
  }

  /** True if a request may start now. */
  get free(): boolean {
    return !this.#scheduled;
  }

  /** Marks the start of requests, until `end`. */
  begin(): void {
    this.#begun = this.#clock.now();
    if (this.#begun - this.#since < SHARE_PERIOD_MS) return;
    this.#since = this.#begun;
    this.#spentMs = 0;
  }

  /** Between `begin` and `end`: true if another request may run. */
  readonly more = (): boolean => {
    return this.#spentMs + this.#clock.now() - this.#begun < SHARE_MS;
  };

  end(): void {
    this.#spentMs += this.#clock.now() - this.#begun;
    if (this.#spentMs >= SHARE_MS) this.#awaitTurn();
  }

  /** Charges a whole share for `run`, in this turn or a later one. */
  takeWhole(run: () => void): void {
    if (this.#scheduled) this.#waiting.push({ resume: () => this.#runAlone(run) });
    else this.#runAlone(run);
  }

  #runAlone(run: () => void): void {
    this.#since = this.#clock.now();
    this.#spentMs = SHARE_MS;
    // First, so that requests made by `run` belong to a later turn.
    this.#awaitTurn();
    run();
  }

  /** Queues `who` for a later turn, after those already waiting. */
  wait(who: Waiting): void {
    this.#waiting.push(who);
    this.#awaitTurn();
  }

  #awaitTurn(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.soon(this.#restore);
  }

  readonly #restore = (): void => {
    this.#since = this.#clock.now();
    this.#spentMs = 0;
    // A connection that must wait again in this turn queues after the others.
    for (let left = this.#waiting.length; left > 0 && this.#spentMs < SHARE_MS; left -= 1) {
      this.#waiting.shift()?.resume();
    }
    this.#scheduled = false;
    if (this.#waiting.length > 0) this.#awaitTurn();
  };
}

export class CommandShares {
  readonly #byUser = new Map<number, CommandShare>();

  /** Never shrinks: the number of users is bounded. */
  of(uid: number): CommandShare {
    let share = this.#byUser.get(uid);
    if (share === undefined) {
      share = new CommandShare();
      this.#byUser.set(uid, share);
    }
    return share;
  }
}

interface PacedConnection extends InputAccount {
  readonly closed: boolean;
  pause(): void;
  resume(): void;
}

/**
 * Runs the requests in `bytes`, as long as `more` returns true between two of them. Returns the number of bytes
 * consumed.
 */
export type CarryOut = (bytes: Uint8Array, more: () => boolean) => number;

export class CommandPace implements Waiting {
  readonly #connection: PacedConnection;
  readonly #share: CommandShare;
  readonly #carryOut: CarryOut;
  /** Bytes for a later turn; the connection is not read meanwhile. */
  #rest: Uint8Array | undefined;
  readonly #kept: KeptInput;

  constructor(connection: PacedConnection, share: CommandShare, carryOut: CarryOut) {
    this.#connection = connection;
    this.#share = share;
    this.#carryOut = carryOut;
    this.#kept = new KeptInput(connection);
  }

  /** Handles bytes of the connection, borrowed until it returns. */
  receive(bytes: Uint8Array): void {
    if (this.#rest !== undefined) this.#setRest(Buffer.concat([this.#rest, bytes]));
    else if (!this.#share.free) this.#keep(bytes.slice());
    else {
      const taken = this.#take(bytes);
      if (taken < bytes.length) this.#keepRest(bytes.slice(taken));
    }
  }

  resume(): void {
    const rest = this.#rest;
    this.#rest = undefined;
    if (rest === undefined || this.#connection.closed) return;
    this.#keepRest(rest.subarray(this.#take(rest)));
    if (this.#rest !== undefined) return;
    this.#kept.note(0);
    if (!this.#connection.closed) this.#connection.resume();
  }

  #take(bytes: Uint8Array): number {
    const share = this.#share;
    share.begin();
    try {
      return this.#carryOut(bytes, share.more);
    } finally {
      share.end();
    }
  }

  #keepRest(rest: Uint8Array): void {
    if (rest.length > 0 && !this.#connection.closed) this.#keep(rest);
  }

  #keep(rest: Uint8Array): void {
    this.#setRest(rest);
    this.#connection.pause();
    this.#share.wait(this);
  }

  #setRest(rest: Uint8Array): void {
    this.#rest = rest;
    // A part of the bytes keeps the whole buffer in memory.
    this.#kept.note(rest.buffer.byteLength);
  }
}
