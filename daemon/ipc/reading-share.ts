/**
 * How many connections of one user are read in a turn of the event loop. Thousands may have input or end
 * at once, when their process is killed, and Node would call back for each of them in the same turn.
 *
 * Once so many have been read, the others wait: they are not read in this turn, and in later turns a few
 * more of them each time.
 */

/** Connections that are read in one turn: some milliseconds if all of them end. */
export const READS_PER_TURN = 128;
/** A user with no more connections than this never waits: to stop and start reading has its price, too. */
const FEW = 2 * READS_PER_TURN;

/** A connection of a user. */
interface ReadConnection {
  /** Reads no more, or goes on if nothing else keeps it from that. */
  hold(held: boolean): void;
}

/** The share of one user. */
export class ReadingShare {
  readonly #members = new Set<ReadConnection>();
  /** Those that wait, longest first. */
  readonly #held = new Set<ReadConnection>();
  /** Of this turn. */
  #reads = 0;
  #ending = false;

  join(member: ReadConnection): void {
    this.#members.add(member);
  }

  leave(member: ReadConnection): void {
    this.#members.delete(member);
    this.#held.delete(member);
  }

  /** A member has had input, or its end. */
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
    setImmediate(this.#endTurn);
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
