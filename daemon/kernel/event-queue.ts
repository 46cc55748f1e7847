/**
 * The records of an event descriptor. The records stay here. The descriptor's socket gets a byte when
 * the queue becomes non-empty, and for each further record, so every record wakes a program that
 * waits with EPOLLET. The preload library takes a byte whenever a reply requests it: there are never
 * more bytes than records. So the descriptor polls readable exactly while records are pending,
 * whichever process reads, even after forks.
 *
 * A queue may publish its oldest records in memory of the program (`EventRing`). The preload library
 * then takes them, and the bytes, without a request.
 */
import { assert } from '#base/assert';
import { EVENT_RING_RECORDS, type EventRing } from './event-ring.ts';

export interface EventPath {
  write(bytes: Uint8Array): void;
  close(): void;
}

const WAKE = Uint8Array.of(1);
/**
 * Limit of bytes on a descriptor beyond the first. A program that leaves more records unread does not
 * depend on each edge, and its socket must not fill up.
 */
const MORE_MAX = 16;

interface Entry<T, Owner> {
  readonly record: T;
  readonly owner: Owner;
}

/** Publishes the records of a queue in a ring. */
interface Showcase<T> {
  readonly ring: EventRing;
  /** Offset of the ring in the file of rings. */
  readonly place: number;
  /** The record in the program's format. */
  readonly bytesOf: (record: T) => Uint8Array;
  /** Called when the program has taken the record. */
  readonly onTaken: (record: T) => void;
}

/** A queue of any record type. */
export interface AnyQueue {
  readonly number: number;
  /** The text of the descriptor's welcome: the queue's number, and the offset of its ring if any. */
  readonly welcome: string;
  readonly attached: boolean;
  attach(path: EventPath): void;
  end(): void;
  assertInvariants(): void;
}

/** Lists the number of a queue once for each byte to take from its descriptor. */
export function bytesToTake({ number }: AnyQueue, bytes: number): number[] {
  return new Array<number>(bytes).fill(number);
}

/** A queue of records `T`; the records of an `Owner` are removed when it is destroyed. */
export class EventQueue<T, Owner> implements AnyQueue {
  /** Identifies the queue to the connection that becomes its descriptor. */
  readonly token: Uint8Array;
  /** Identifies the queue in requests and replies. */
  readonly number: number;
  /** Called once, when the queue ends. */
  onEnded: () => void = () => undefined;
  #ended = false;
  #entries: Entry<T, Owner>[] = [];
  #path: EventPath | undefined;
  #showcase: Showcase<T> | undefined;
  /** A byte was sent for the current non-empty state. */
  #announced = false;
  /** Further bytes sent and not taken, for a queue without an event ring. */
  #more = 0;

  constructor(token: Uint8Array, number: number) {
    this.token = token;
    this.number = number;
  }

  get length(): number {
    this.noteTaken();
    return this.#entries.length;
  }

  get welcome(): string {
    return this.#showcase === undefined
      ? `${this.number}`
      : `${this.number} ${this.#showcase.place}`;
  }

  /** Publishes the queue's records in `showcase` once its descriptor is attached. */
  showIn(showcase: Showcase<T>): void {
    assert(this.#path === undefined, 'ring set after the descriptor');
    this.#showcase = showcase;
  }

  /** Reports records that the program has taken to `onTaken`. */
  noteTaken(): void {
    if (this.#showcase !== undefined) this.#forget(this.#showcase.ring.taken());
  }

  get attached(): boolean {
    return this.#path !== undefined;
  }

  /** Attaches the queue's descriptor and announces pending records. */
  attach(path: EventPath): void {
    if (this.#ended) return;
    this.#path = path;
    this.#withdraw();
    this.#publish();
  }

  /** True once its descriptor is closed: further records are dropped. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Ends the queue and closes its descriptor. The queue also ends when every process has closed the
   * descriptor, since pending records can never be read. A second call does nothing.
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
    if (this.#show(record)) this.#path?.write(WAKE);
    this.#announce();
  }

  /**
   * Removes the oldest record. `bytes`: how many bytes, 0 or 1, the preload library must take from the
   * descriptor. Undefined if the queue is empty.
   */
  pop(): { readonly record: T; readonly owner: Owner; readonly bytes: number } | undefined {
    this.#withdraw();
    const entry = this.#entries.shift();
    this.#publish();
    return entry === undefined ? undefined : { ...entry, bytes: this.#bytesToTake() };
  }

  /** Removes the records of `owner`. Returns the number of bytes that the preload library must take. */
  purge(owner: Owner): number {
    return this.take(owner).bytes;
  }

  /** Removes and returns the records of `owner`, or the matching ones of these, oldest first. */
  take(
    owner: Owner,
    matches: (record: T) => boolean = () => true,
  ): { readonly records: T[]; readonly bytes: number } {
    this.#withdraw();
    const records: T[] = [];
    const rest: Entry<T, Owner>[] = [];
    for (const entry of this.#entries) {
      if (entry.owner === owner && matches(entry.record)) records.push(entry.record);
      else rest.push(entry);
    }
    this.#entries = rest;
    this.#publish();
    return { records, bytes: this.#bytesToTake() };
  }

  /** Throws `InvariantError` if the descriptor disagrees with the records. */
  assertInvariants(): void {
    assert(
      !this.#announced || this.#ended || this.#entries.length > 0,
      'announced without a record',
    );
    assert(
      this.#more < Math.max(1, this.#entries.length),
      'more bytes sent than records are pending',
    );
    assert(!this.#ended || this.#entries.length === 0, 'records pending after the end');
  }

  /** Drops the oldest records, which the program has taken. */
  #forget(count: number): void {
    for (const { record } of this.#entries.splice(0, count)) this.#showcase?.onTaken(record);
    if (this.#entries.length === 0) this.#announced = false;
  }

  /**
   * Publishes the newest record. Returns true if a byte beyond the first must be sent for it. With an event ring,
   * the byte is counted before the record is published, so a program that takes the last record sees it.
   */
  #show(record: T): boolean {
    if (this.#showcase === undefined || this.#path === undefined) return this.#isOneMore();
    const { ring, bytesOf } = this.#showcase;
    this.#forget(ring.taken());
    const counted = this.#entries.length > 1 && ring.count(MORE_MAX);
    const wasEmpty = ring.closed ? ring.ask() : ring.add(bytesOf(record));
    this.#announced = !wasEmpty;
    return counted;
  }

  #isOneMore(): boolean {
    if (!this.#announced || this.#more >= MORE_MAX) return false;
    this.#more += 1;
    return true;
  }

  /** Withdraws the records from the program, which asks for them until `#publish`. */
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
    this.#path.write(WAKE);
  }

  /** Bytes in excess of one per record; with an event ring, the library knows of all but the first. */
  #bytesToTake(): number {
    if (!this.#announced) return 0;
    const sent = 1 + this.#more;
    const left = Math.min(sent, this.#entries.length);
    this.#announced = left > 0;
    this.#more = Math.max(0, left - 1);
    return sent - left;
  }
}
