/**
 * Records behind an event descriptor. The records stay here; the descriptor's socket gets one octet
 * each time the queue becomes non-empty, and the shim takes one octet each time it is told that the
 * queue became empty. So the descriptor polls as readable exactly while records wait, whoever reads
 * and however often the program was forked.
 */

/** Sends octets to the program's descriptor. */
export interface EventPath {
  write(octets: Uint8Array): void;
  close(): void;
}

const TRANSITION = Uint8Array.of(1);

interface Entry<T, Owner> {
  readonly record: T;
  readonly owner: Owner;
}

/** What can be done with a queue of any records. */
export interface AnyQueue {
  readonly number: number;
  readonly attached: boolean;
  attach(path: EventPath): void;
  end(): void;
}

/** A queue of records `T`, each of an object `Owner` with whose end its records go. */
export class EventQueue<T, Owner> implements AnyQueue {
  /** Names the queue to the connection that becomes its descriptor. */
  readonly token: Uint8Array;
  /** Names it in requests and replies. */
  readonly number: number;
  /** Called once, when the queue has ended. */
  onEnded: () => void = () => undefined;
  #ended = false;
  #entries: Entry<T, Owner>[] = [];
  #path: EventPath | undefined;
  /** The octet for the present non-empty state was sent. */
  #announced = false;

  constructor(token: Uint8Array, number: number) {
    this.token = token;
    this.number = number;
  }

  /** Records that wait. */
  get length(): number {
    return this.#entries.length;
  }

  /** True when it has its descriptor. */
  get attached(): boolean {
    return this.#path !== undefined;
  }

  /** Gives the queue its descriptor, and tells it what waits already. */
  attach(path: EventPath): void {
    if (this.#ended) return;
    this.#path = path;
    this.#announce();
  }

  /** True once its descriptor is closed: no record is kept any more. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Ends the queue and its descriptor. So does the end of the descriptor, when it is closed in every
   * process that had it: what waits can never be read. The second call does nothing.
   */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#entries = [];
    const path = this.#path;
    this.#path = undefined;
    this.onEnded();
    path?.close();
  }

  /** Adds a record. Nothing happens once the queue has ended. */
  push(record: T, owner: Owner): void {
    if (this.#ended) return;
    this.#entries.push({ record, owner });
    this.#announce();
  }

  /** The oldest record, and whether the descriptor's octet has to be taken; undefined when empty. */
  pop(): { readonly record: T; readonly owner: Owner; readonly emptied: boolean } | undefined {
    const entry = this.#entries.shift();
    if (entry === undefined) return undefined;
    return { ...entry, emptied: this.#emptied() };
  }

  /** Removes the records of `owner`. True when the descriptor's octet has to be taken. */
  purge(owner: Owner): boolean {
    return this.take(owner).emptied;
  }

  /** Removes and returns the records of `owner`, oldest first. */
  take(owner: Owner): { readonly records: T[]; readonly emptied: boolean } {
    const records: T[] = [];
    const rest: Entry<T, Owner>[] = [];
    for (const entry of this.#entries) {
      if (entry.owner === owner) records.push(entry.record);
      else rest.push(entry);
    }
    if (records.length === 0) return { records, emptied: false };
    this.#entries = rest;
    return { records, emptied: this.#emptied() };
  }

  #announce(): void {
    if (this.#announced || this.#path === undefined || this.#entries.length === 0) return;
    this.#announced = true;
    this.#path.write(TRANSITION);
  }

  #emptied(): boolean {
    if (this.#entries.length > 0 || !this.#announced) return false;
    this.#announced = false;
    return true;
  }
}
