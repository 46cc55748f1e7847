/**
 * Records behind an event descriptor. The records stay here; the descriptor's socket gets one byte
 * each time the queue becomes non-empty, and the preload library takes one byte each time a reply
 * says that the queue became empty. The descriptor thus polls readable exactly while records wait,
 * whichever process reads and however often the program forked.
 *
 * A queue may show its oldest records in memory of the program (`EventRing`). The preload library then
 * takes them, and the byte behind the last one, without a request.
 */
import { assert } from '../../invariants/assert.ts';
import { EVENT_RING_RECORDS, type EventRing } from './event-ring.ts';

/** Sends bytes to the program's descriptor. */
export interface EventPath {
  write(bytes: Uint8Array): void;
  close(): void;
}

const TRANSITION = Uint8Array.of(1);

interface Entry<T, Owner> {
  readonly record: T;
  readonly owner: Owner;
}

/** Where a queue shows its records. */
interface Showcase<T> {
  readonly ring: EventRing;
  /** Where the ring is in the file of rings. */
  readonly place: number;
  /** A record as the program reads it. */
  readonly bytesOf: (record: T) => Uint8Array;
  /** The program has taken the record. */
  readonly onTaken: (record: T) => void;
}

/** Operations on a queue of any record type. */
export interface AnyQueue {
  readonly number: number;
  /** What the descriptor's welcome says: its number, and the place of its ring if there is one. */
  readonly welcome: string;
  readonly attached: boolean;
  attach(path: EventPath): void;
  end(): void;
  assertInvariants(): void;
}

/** A queue of records `T`; the records of an `Owner` are removed when it is destroyed. */
export class EventQueue<T, Owner> implements AnyQueue {
  /** Identifies the queue to the connection that becomes its descriptor. */
  readonly token: Uint8Array;
  /** Identifies the queue in requests and replies. */
  readonly number: number;
  /** Called once, when the queue has ended. */
  onEnded: () => void = () => undefined;
  #ended = false;
  #entries: Entry<T, Owner>[] = [];
  #path: EventPath | undefined;
  #showcase: Showcase<T> | undefined;
  /** The byte for the present non-empty state has been sent. */
  #announced = false;

  constructor(token: Uint8Array, number: number) {
    this.token = token;
    this.number = number;
  }

  /** Number of waiting records. */
  get length(): number {
    this.noteTaken();
    return this.#entries.length;
  }

  /** See `AnyQueue`. */
  get welcome(): string {
    return this.#showcase === undefined
      ? `${this.number}`
      : `${this.number} ${this.#showcase.place}`;
  }

  /** Has the queue show its records from the time on when it has its descriptor. */
  showIn(showcase: Showcase<T>): void {
    assert(this.#path === undefined, 'a queue knows its ring before its descriptor');
    this.#showcase = showcase;
  }

  /** Reports the records that the program has taken to `onTaken`. */
  noteTaken(): void {
    if (this.#showcase !== undefined) this.#forget(this.#showcase.ring.taken());
  }

  /** True when it has its descriptor. */
  get attached(): boolean {
    return this.#path !== undefined;
  }

  /** Attaches the queue's descriptor and announces records that are already waiting. */
  attach(path: EventPath): void {
    if (this.#ended) return;
    this.#path = path;
    this.#withdraw();
    this.#publish();
  }

  /** True once its descriptor is closed: no record is kept any longer. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Ends the queue and its descriptor. The queue also ends when its descriptor is closed in every
   * process that had it: waiting records can never be read. A second call does nothing.
   */
  end(): void {
    if (this.#ended) return;
    this.noteTaken();
    this.#ended = true;
    this.#entries = [];
    const path = this.#path;
    this.#path = undefined;
    this.onEnded();
    path?.close();
  }

  /** Adds a record. Does nothing once the queue has ended. */
  push(record: T, owner: Owner): void {
    if (this.#ended) return;
    this.#entries.push({ record, owner });
    this.#show(record);
    this.#announce();
  }

  /**
   * The oldest record, and whether the preload library must take the descriptor's byte; undefined
   * if empty.
   */
  pop(): { readonly record: T; readonly owner: Owner; readonly emptied: boolean } | undefined {
    this.#withdraw();
    const entry = this.#entries.shift();
    this.#publish();
    return entry === undefined ? undefined : { ...entry, emptied: this.#emptied() };
  }

  /**
   * Removes the records of `owner`. True if the preload library must take the descriptor's byte.
   */
  purge(owner: Owner): boolean {
    return this.take(owner).emptied;
  }

  /** Removes and returns the records of `owner`, or those of them that match, oldest first. */
  take(
    owner: Owner,
    matches: (record: T) => boolean = () => true,
  ): { readonly records: T[]; readonly emptied: boolean } {
    this.#withdraw();
    const records: T[] = [];
    const rest: Entry<T, Owner>[] = [];
    for (const entry of this.#entries) {
      if (entry.owner === owner && matches(entry.record)) records.push(entry.record);
      else rest.push(entry);
    }
    this.#entries = rest;
    this.#publish();
    return { records, emptied: this.#emptied() };
  }

  /** Throws `InvariantError` when the descriptor disagrees with the records. */
  assertInvariants(): void {
    assert(!this.#announced || this.#ended || this.#entries.length > 0, 'what is announced waits');
    assert(!this.#ended || this.#entries.length === 0, 'nothing waits behind the end');
  }

  /** The program has taken the oldest records. */
  #forget(count: number): void {
    for (const { record } of this.#entries.splice(0, count)) this.#showcase?.onTaken(record);
    if (this.#entries.length === 0) this.#announced = false;
  }

  /** The record came behind all others. */
  #show(record: T): void {
    if (this.#showcase === undefined || this.#path === undefined) return;
    const { ring, bytesOf } = this.#showcase;
    this.#forget(ring.taken());
    const wasEmpty = ring.closed ? ring.ask() : ring.add(bytesOf(record));
    this.#announced = !wasEmpty;
  }

  /** Takes the records back from the program, which asks for them until `#publish`. */
  #withdraw(): void {
    if (this.#showcase === undefined || this.#path === undefined) return;
    const { taken, wasEmpty } = this.#showcase.ring.withdraw();
    this.#forget(taken);
    this.#announced = !wasEmpty;
  }

  #publish(): void {
    if (this.#showcase !== undefined && this.#path !== undefined) {
      const { ring, bytesOf } = this.#showcase;
      ring.fill(
        this.#entries.slice(0, EVENT_RING_RECORDS + 1).map(({ record }) => bytesOf(record)),
      );
    }
    this.#announce();
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
