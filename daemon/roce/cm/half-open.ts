/**
 * Requests of peers that are not established yet, in all and from each address. A request costs its
 * sender one datagram, so both numbers are limited. A new request replaces one that was accepted and not
 * confirmed: honest peers confirm within milliseconds, forged ones never.
 */
import { assert } from '../../invariants/assert.ts';
import type { CmConnection } from './cm-connection.ts';
import { ownerOf } from './cm-path.ts';

export class HalfOpen {
  readonly #max: number;
  readonly #maxPerAddress: number;
  /** By address, the oldest of each first. */
  readonly #byOwner = new Map<string, Set<CmConnection>>();
  #size = 0;

  constructor(max: number, maxPerAddress: number) {
    this.#max = max;
    this.#maxPerAddress = maxPerAddress;
  }

  get size(): number {
    return this.#size;
  }

  /**
   * The request that another one from `gid` replaces: 'none' while there is room; otherwise the oldest
   * unconfirmed one, of this address if that has its share, else of the address that has the most.
   * Undefined if there is none.
   */
  placeFor(gid: Uint8Array): CmConnection | 'none' | undefined {
    const own = this.#byOwner.get(ownerOf(gid));
    const hasShare = own !== undefined && own.size >= this.#maxPerAddress;
    if (!hasShare && this.#size < this.#max) return 'none';
    let most = own;
    if (!hasShare) {
      for (const share of this.#byOwner.values()) if (share.size > (most?.size ?? 0)) most = share;
    }
    for (const connection of most ?? []) if (waitsForPeer(connection)) return connection;
    return undefined;
  }

  add(connection: CmConnection): void {
    const owner = ownerOf(connection.path.dgid);
    const share = this.#byOwner.get(owner) ?? new Set();
    this.#byOwner.set(owner, share.add(connection));
    this.#size += 1;
  }

  /** Does nothing for one that is established, or was never counted. */
  delete(connection: CmConnection): void {
    const owner = ownerOf(connection.path.dgid);
    const share = this.#byOwner.get(owner);
    if (share?.delete(connection) !== true) return;
    this.#size -= 1;
    if (share.size === 0) this.#byOwner.delete(owner);
  }

  /** Recounts, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    const states = ['req-rcvd', 'rep-sent', 'mra-rep-rcvd', 'sidr-req-rcvd'];
    let size = 0;
    for (const [owner, share] of this.#byOwner) {
      assert(
        share.size > 0 && share.size <= this.#maxPerAddress,
        'no address has more than its share',
      );
      for (const { role, state, path } of share) {
        assert(
          role === 'passive' && states.includes(state),
          'what is half open is not established',
        );
        assert(ownerOf(path.dgid) === owner, 'a connection counts for its own address');
      }
      size += share.size;
    }
    assert(size === this.#size, 'the count matches the table');
    assert(size <= this.#max, 'no more are half open than the limit');
  }
}

/** Accepted and not confirmed. Requests that the program has not answered are not replaced. */
function waitsForPeer({ state }: CmConnection): boolean {
  return state === 'rep-sent' || state === 'mra-rep-rcvd';
}
