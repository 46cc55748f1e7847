/**
 * The two queues of requests that await an answer (RFC 5040 §6.1, RFC 7306 §5.2):
 *
 *  - IRRQ: the peer's Read and Atomic Requests that we must answer, at most IRD of them;
 *  - ORRQ: our own that the peer must answer, at most ORD of them.
 *
 * Both are rings that create entries when first needed and reuse them: an idle stream holds none,
 * and a busy one allocates none.
 */
import type { AtomicAccess } from '#daemon/rnic/wire-port';
import { AtomicRequest } from '../wire/atomic-header.ts';
import { UNTAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import { ReadRequest } from '../wire/rdmap-header.ts';

export const RequestKind = { read: 0, atomic: 1 } as const;
export type RequestKind = (typeof RequestKind)[keyof typeof RequestKind];

/** A request of the peer. Valid until it is shifted out. */
export class InboundRequest {
  kind: RequestKind = RequestKind.read;
  /** DDP header of the request as received, for a Terminate about it. */
  readonly ddpHeader: Uint8Array = new Uint8Array(UNTAGGED_HEADER_BYTES);
  /** ULPDU length of the request. */
  segmentLength = 0;
  readonly read = new ReadRequest();
  /** Bytes of the read already framed. */
  sentBytes = 0;
  /** For an atomic: the access for the RNIC, with room for its result. */
  readonly atomic: AtomicAccess & { identifier: number } = {
    ...new AtomicRequest(),
    originalHi: 0,
    originalLo: 0,
  };
}

/** An outbound request. Valid until it is shifted out. */
export class OutboundRequest {
  kind: RequestKind = RequestKind.read;
  /** True for the Read of an RTR indication, which no consumer waits for. */
  internal = false;
  sinkStag = 0;
  sinkToHi = 0;
  sinkToLo = 0;
  /** Bytes requested, and bytes received. */
  lengthBytes = 0;
  receivedBytes = 0;
  /** For an atomic: the identifier that its Response must carry. */
  identifier = 0;
}

/** The entries of a new ring; never filled. */
const NO_ENTRIES: never[] = [];

/** A bounded FIFO of reused entries. */
abstract class Ring<T> {
  readonly #capacity: number;
  #entries: T[] = NO_ENTRIES;
  #first = 0;
  #count = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  protected abstract make(): T;

  /** Requests that wait or are in progress. */
  get count(): number {
    return this.#count;
  }

  get full(): boolean {
    return this.#count >= this.#capacity;
  }

  /** The oldest entry; of our own requests, the one that the next Response answers (RDMAP-5.5-14). */
  get head(): T | undefined {
    return this.#count === 0 ? undefined : this.#entries[this.#first];
  }

  /** The entry that the next `push` will append; undefined when the ring is full. */
  spare(): T | undefined {
    if (this.full) return undefined;
    const length = this.#entries.length;
    // The ring grows at its end, and the next entry goes there only while nothing has wrapped. A
    // full ring that starts in the middle is rotated first.
    if (this.#count === length) {
      if (this.#first !== 0) {
        this.#entries.push(...this.#entries.splice(0, this.#first));
        this.#first = 0;
      }
      if (length === 0) this.#entries = [this.make()];
      else this.#entries.push(this.make());
    }
    return this.#entries[(this.#first + this.#count) % this.#entries.length];
  }

  /** Appends the entry that `spare` returned. */
  push(): void {
    this.#count++;
  }

  /** Removes the oldest entry. A later `spare` overwrites it. */
  shift(): void {
    if (this.#count === 0) return;
    this.#first = (this.#first + 1) % this.#entries.length;
    this.#count--;
  }
}

/** Inbound requests, bounded by IRD. */
// RDMAP-6.1-04 RDMAPX-5.2.2-03 one limit for Reads and atomics in any mix.
export class InboundRequestQueue extends Ring<InboundRequest> {
  /** Number of entries at the tail that must not start yet. */
  #heldCount = 0;

  /** `ird`: most requests that may wait or be in progress. */
  constructor(ird: number) {
    super(ird);
  }

  protected override make(): InboundRequest {
    return new InboundRequest();
  }

  /** The request to answer next, if it may start. */
  override get head(): InboundRequest | undefined {
    return this.#heldCount < this.count ? super.head : undefined;
  }

  /**
   * Appends the entry that `spare` returned. `held` keeps it from starting until `release`, because
   * an earlier message is not delivered yet.
   */
  override push(held = false): void {
    super.push();
    if (held || this.#heldCount > 0) this.#heldCount++;
  }

  /** Lets held requests start. */
  release(): void {
    this.#heldCount = 0;
  }
}

/** Outbound requests, bounded by ORD. */
// RDMAP-6.1-03 RDMAPX-5.2-01 one limit for Reads and atomics in any mix.
export class OutboundRequestQueue extends Ring<OutboundRequest> {
  /** `ord`: most requests that may be outstanding. */
  constructor(ord: number) {
    super(ord);
  }

  protected override make(): OutboundRequest {
    return new OutboundRequest();
  }
}
