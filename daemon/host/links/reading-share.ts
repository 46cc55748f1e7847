/**
 * How many connections of one user, or of one peer address, are read in a turn of the event loop. Thousands
 * may have input or end at once, when their process is killed, and Node would call back for all of them in
 * the same turn.
 *
 * Once this many have been read, the others wait. Each later turn reads a few more of them.
 */
import type { Socket } from 'node:net';
import { addressOwner } from '#base/address';

/** Connections that are read in one turn: some milliseconds if all of them end. */
export const READS_PER_TURN = 128;
/** Below this many connections, none waits: to stop and start reading costs time, too. */
const FEW = 2 * READS_PER_TURN;

/** A connection. */
interface ReadConnection {
  /** Stops reading, or continues unless it is also paused. */
  hold(held: boolean): void;
}

/** Reads a socket unless its owner has paused it or its share holds it. */
export class SocketReading implements ReadConnection {
  readonly #socket: Socket;
  #paused = false;
  #held = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#paused = false;
    if (!this.#held) this.#socket.resume();
  }

  hold(held: boolean): void {
    this.#held = held;
    if (held) this.#socket.pause();
    else if (!this.#paused) this.#socket.resume();
  }
}

/** The share of one user or address. */
export class ReadingShare {
  readonly #soon: (run: () => void) => void;
  readonly #members = new Set<ReadConnection>();
  /** Connections that wait, longest first. */
  readonly #held = new Set<ReadConnection>();
  /** Reads in this turn. */
  #reads = 0;
  #ending = false;

  /** `soon` calls back at the end of the turn. */
  constructor(soon: (run: () => void) => void) {
    this.#soon = soon;
  }

  join(member: ReadConnection): void {
    this.#members.add(member);
  }

  /** Returns true if it was the last one. */
  leave(member: ReadConnection): boolean {
    this.#members.delete(member);
    this.#held.delete(member);
    return this.#members.size === 0;
  }

  /** Records that a member has input, or has ended. */
  note(): void {
    if (this.#members.size <= FEW && this.#held.size === 0) return;
    this.#awaitEnd();
    this.#reads += 1;
    if (this.#reads === READS_PER_TURN) this.#holdAll();
  }

  #holdAll(): void {
    for (const member of this.#members) {
      if (this.#held.has(member)) continue;
      this.#held.add(member);
      member.hold(true);
    }
  }

  #awaitEnd(): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#soon(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    this.#ending = false;
    this.#reads = 0;
    let left = READS_PER_TURN;
    for (const member of this.#held) {
      if (left === 0) break;
      left -= 1;
      this.#held.delete(member);
      member.hold(false);
    }
    if (this.#held.size > 0) this.#awaitEnd();
  };
}

/** The shares of all peer addresses that have connections. */
export class ReadingShares {
  readonly #soon: (run: () => void) => void;
  readonly #byOwner = new Map<string, ReadingShare>();

  constructor(soon: (run: () => void) => void) {
    this.#soon = soon;
  }

  /** Returns the share of this address's owner. `member` belongs to it until it leaves. */
  join(address: string, member: ReadConnection): ReadingShare {
    const owner = addressOwner(address);
    const share = this.#byOwner.get(owner) ?? new ReadingShare(this.#soon);
    this.#byOwner.set(owner, share);
    share.join(member);
    return share;
  }

  leave(address: string, member: ReadConnection): void {
    const owner = addressOwner(address);
    if (this.#byOwner.get(owner)?.leave(member) === true) this.#byOwner.delete(owner);
  }
}
