/**
 * Requests that arrive before a program listens for their service, held for a short while. Programs connect
 * in steps: perftest's server, for one, listens for its queue pairs once the connection that announces them
 * is up. The kernel does not repeat a request that was rejected.
 *
 * Only requests from addresses that have connected here are held. Others have no earlier step, and are
 * rejected at once.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { type CmPort, gidKey, ownerOf } from './cm-path.ts';

/**
 * How long a request is held. Less than the 4.3 s in which rdma_cm expects an answer, so no MRA is needed,
 * and less than the 6.4 s after which the peer repeats it.
 */
const EARLY_MICROS = 3_000_000;

/** Source and destination of a MAD. */
export interface MadArrival {
  readonly port: CmPort;
  readonly sourceGid: Uint8Array;
  readonly destGid: Uint8Array;
}

/** A REQ without a listener. */
interface EarlyRequest {
  readonly mad: Uint8Array;
  readonly arrival: MadArrival;
  readonly serviceId: number;
  /** Charged for the request: the owner of its source address. */
  readonly owner: string;
  readonly since: Micros;
  readonly until: Micros;
}

/** Ordered by expiry. */
export class EarlyRequests {
  readonly #max: number;
  readonly #maxPerAddress: number;
  readonly #held = new Map<string, EarlyRequest>();
  readonly #byOwner = new Map<string, number>();

  constructor(max: number, maxPerAddress: number) {
    this.#max = max;
    this.#maxPerAddress = maxPerAddress;
  }

  get size(): number {
    return this.#held.size;
  }

  /** True if request `commId` from `gid` is held. */
  has(gid: Uint8Array, commId: number): boolean {
    return this.#held.has(keyOf(gid, commId));
  }

  /** Holds a new request. False if there is no room. */
  hold(
    mad: Uint8Array,
    { port, sourceGid, destGid }: MadArrival,
    { serviceId, commId }: { readonly serviceId: number; readonly commId: number },
    now: Micros,
  ): boolean {
    const owner = ownerOf(sourceGid);
    const share = this.#byOwner.get(owner) ?? 0;
    if (this.#held.size >= this.#max || share >= this.#maxPerAddress) return false;
    // The caller reuses these buffers.
    const arrival = { port, sourceGid: sourceGid.slice(), destGid: destGid.slice() };
    const until = now + EARLY_MICROS;
    this.#held.set(keyOf(sourceGid, commId), {
      mad: mad.slice(),
      arrival,
      serviceId,
      owner,
      since: now,
      until,
    });
    this.#byOwner.set(owner, share + 1);
    return true;
  }

  /** Drops a request that its peer has withdrawn. False if it is not held. */
  withdraw(gid: Uint8Array, commId: number): boolean {
    return this.#take(keyOf(gid, commId));
  }

  /** Releases the requests for a service that `matches` accepts. */
  takeMatching(
    serviceId: number,
    matches: (arrival: MadArrival) => boolean,
  ): readonly EarlyRequest[] {
    return this.#takeAll((held) => held.serviceId === serviceId && matches(held.arrival));
  }

  takeExpired(now: Micros): readonly EarlyRequest[] {
    return now < this.nextDeadline() ? [] : this.#takeAll(({ until }) => until <= now);
  }

  nextDeadline(): Micros {
    if (this.#held.size === 0) return NEVER;
    for (const { until } of this.#held.values()) return until;
    return NEVER;
  }

  #takeAll(wanted: (held: EarlyRequest) => boolean): readonly EarlyRequest[] {
    const found = [...this.#held].filter((entry) => wanted(entry[1]));
    for (const [key] of found) this.#take(key);
    return found.map((entry) => entry[1]);
  }

  #take(key: string): boolean {
    const held = this.#held.get(key);
    if (held === undefined) return false;
    this.#held.delete(key);
    const share = (this.#byOwner.get(held.owner) ?? 0) - 1;
    if (share <= 0) this.#byOwner.delete(held.owner);
    else this.#byOwner.set(held.owner, share);
    return true;
  }

  /** For tests. Throws `InvariantError`. */
  assertInvariants(): void {
    assert(this.#held.size <= this.#max, 'too many requests held');
    const shares = [...this.#byOwner.values()];
    const counted = shares.reduce((sum, share) => sum + share, 0);
    assert(counted === this.#held.size, 'held requests per address miscounted');
    assert(
      shares.every((share) => share <= this.#maxPerAddress),
      'an address exceeds its share',
    );
  }
}

function keyOf(gid: Uint8Array, commId: number): string {
  return `${gidKey(gid)}/${commId}`;
}
