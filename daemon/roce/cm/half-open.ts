/**
 * Half-open requests of peers, in all and from each address. A request costs its sender one datagram, so both
 * numbers are limited. A new request replaces one that was accepted but not confirmed: honest peers confirm
 * within milliseconds, forged ones never.
 */
import { assert } from '#base/assert';
import type { CmConnection } from './cm-connection.ts';
import { ownerOf } from './cm-path.ts';

export class HalfOpen {
  readonly #max: number;
  readonly #maxPerAddress: number;
  /** By address, oldest first. */
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
   * The request that a new one from `gid` replaces: 'none' while there is room, otherwise the oldest
   * unconfirmed one, of this address if it is at its limit, else of the address with the most. Undefined if
   * no request can be replaced.
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

  /** Does nothing if it is not counted. */
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
      assert(share.size > 0 && share.size <= this.#maxPerAddress, 'an address exceeds its share');
      for (const { role, state, path } of share) {
        assert(
          role === 'passive' && states.includes(state),
          'established connection counted as half open',
        );
        assert(ownerOf(path.dgid) === owner, 'connection counted for another address');
      }
      size += share.size;
    }
    assert(size === this.#size, 'half-open connections miscounted');
    assert(size <= this.#max, 'too many half-open connections');
  }
}

/** True if it was accepted and not confirmed. Requests that the program has not answered are not replaced. */
function waitsForPeer({ state }: CmConnection): boolean {
  return state === 'rep-sent' || state === 'mra-rep-rcvd';
}
