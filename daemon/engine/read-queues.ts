/**
 * The two queues of requests that await an answer (RFC 5040 §6.1, RFC 7306 §5.2):
 *
 *  - IRRQ: the peer's Read and Atomic Requests that we have to answer, at most IRD of them;
 *  - ORRQ: our own that the peer has to answer, at most ORD of them.
 *
 * Both are rings whose entries are made when first needed and reused from then on, so that an idle
 * stream holds none and a busy one allocates none.
 */
import { UNTAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import type { ReadRequest } from '../wire/rdmap-header.ts';
import type { AtomicAccess } from './placement.ts';

/** What a request asks for. */
export const RequestKind = { read: 0, atomic: 1 } as const;
export type RequestKind = (typeof RequestKind)[keyof typeof RequestKind];

/** A request of the peer. Valid until it is shifted out. */
export interface InboundRequest {
  kind: RequestKind;
  /** DDP header of the request as received, for a Terminate about it. */
  readonly ddpHeader: Uint8Array;
  /** ULPDU length of the request. */
  segmentLength: number;
  /** For a read. */
  readonly read: ReadRequest;
  /** Octets of the read already framed. */
  sentBytes: number;
  /** For an atomic: what the RNIC is asked, and room for its answer. */
  readonly atomic: AtomicAccess & { identifier: number };
}

/** A request of ours. Valid until it is shifted out. */
export interface OutboundRequest {
  kind: RequestKind;
  /** True for the Read of an RTR indication: nobody above waits for it. */
  internal: boolean;
  sinkStag: number;
  sinkToHi: number;
  sinkToLo: number;
  /** Octets asked for, and octets that came. */
  lengthBytes: number;
  receivedBytes: number;
  /** For an atomic: the identifier that its Response has to carry. */
  identifier: number;
}

/** A bounded FIFO of reused entries. */
class Ring<T> {
  readonly #make: () => T;
  readonly #capacity: number;
  readonly #entries: T[] = [];
  #first = 0;
  #count = 0;

  constructor(capacity: number, make: () => T) {
    this.#capacity = capacity;
    this.#make = make;
  }

  get count(): number {
    return this.#count;
  }

  get full(): boolean {
    return this.#count >= this.#capacity;
  }

  /** The oldest entry. */
  get head(): T | undefined {
    return this.#count === 0 ? undefined : this.#entries[this.#first];
  }

  /** The entry that `push` is going to append; undefined when the ring is full. */
  spare(): T | undefined {
    if (this.full) return undefined;
    const length = this.#entries.length;
    // The ring grows at its end, which is the place of the next entry only while nothing has
    // wrapped; a ring that is all in use and starts in the middle is turned first.
    if (this.#count === length) {
      if (this.#first !== 0) {
        this.#entries.push(...this.#entries.splice(0, this.#first));
        this.#first = 0;
      }
      this.#entries.push(this.#make());
    }
    return this.#entries[(this.#first + this.#count) % this.#entries.length];
  }

  /** Appends the entry that `spare` gave. */
  push(): void {
    this.#count++;
  }

  /** Takes the oldest entry out. It is overwritten by a later `spare`. */
  shift(): void {
    if (this.#count === 0) return;
    this.#first = (this.#first + 1) % this.#entries.length;
    this.#count--;
  }
}

function makeInboundRequest(): InboundRequest {
  return {
    kind: RequestKind.read,
    ddpHeader: new Uint8Array(UNTAGGED_HEADER_BYTES),
    segmentLength: 0,
    read: {
      sinkStag: 0,
      sinkToHi: 0,
      sinkToLo: 0,
      size: 0,
      sourceStag: 0,
      sourceToHi: 0,
      sourceToLo: 0,
    },
    sentBytes: 0,
    atomic: {
      operation: 0,
      identifier: 0,
      stag: 0,
      toHi: 0,
      toLo: 0,
      operandHi: 0,
      operandLo: 0,
      operandMaskHi: 0,
      operandMaskLo: 0,
      compareHi: 0,
      compareLo: 0,
      compareMaskHi: 0,
      compareMaskLo: 0,
      originalHi: 0,
      originalLo: 0,
    },
  };
}

function makeOutboundRequest(): OutboundRequest {
  return {
    kind: RequestKind.read,
    internal: false,
    sinkStag: 0,
    sinkToHi: 0,
    sinkToLo: 0,
    lengthBytes: 0,
    receivedBytes: 0,
    identifier: 0,
  };
}

/** Inbound requests, bounded by IRD. */
// RDMAP-6.1-04 RDMAPX-5.2.2-03 one limit for Reads and atomics in any mix.
export class InboundRequestQueue {
  readonly #ring: Ring<InboundRequest>;
  /** Of the entries, how many at the tail must not be started yet. */
  #heldCount = 0;

  /** `ird`: how many requests may wait or be in process at one time. */
  constructor(ird: number) {
    this.#ring = new Ring(ird, makeInboundRequest);
  }

  /** Requests that wait or are in process. */
  get count(): number {
    return this.#ring.count;
  }

  /** The request to answer next, if it may be started. */
  get head(): InboundRequest | undefined {
    return this.#heldCount < this.#ring.count ? this.#ring.head : undefined;
  }

  /** The entry to fill in for `push`; undefined when IRD requests are in it already. */
  spare(): InboundRequest | undefined {
    return this.#ring.spare();
  }

  /**
   * Appends the entry that `spare` gave. `held` keeps it from being started until `release`:
   * an earlier message is not delivered yet.
   */
  push(held: boolean): void {
    this.#ring.push();
    if (held || this.#heldCount > 0) this.#heldCount++;
  }

  /** Requests held back may be started. */
  release(): void {
    this.#heldCount = 0;
  }

  /** The head is answered. */
  shift(): void {
    this.#ring.shift();
  }
}

/** Outbound requests, bounded by ORD. */
// RDMAP-6.1-03 RDMAPX-5.2-01 one limit for Reads and atomics in any mix.
export class OutboundRequestQueue {
  readonly #ring: Ring<OutboundRequest>;

  /** `ord`: how many requests may be outstanding at one time. */
  constructor(ord: number) {
    this.#ring = new Ring(ord, makeOutboundRequest);
  }

  get count(): number {
    return this.#ring.count;
  }

  get full(): boolean {
    return this.#ring.full;
  }

  /** The oldest outstanding request, which the next Response answers (RDMAP-5.5-14). */
  get head(): OutboundRequest | undefined {
    return this.#ring.head;
  }

  /** The entry to fill in for `push`; undefined when ORD requests are outstanding. */
  spare(): OutboundRequest | undefined {
    return this.#ring.spare();
  }

  /** Appends the entry that `spare` gave. */
  push(): void {
    this.#ring.push();
  }

  /** The oldest request is answered. */
  shift(): void {
    this.#ring.shift();
  }
}
