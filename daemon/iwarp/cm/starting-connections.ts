/**
 * Incoming connections whose MPA Request has not arrived yet. A silent peer costs a socket, so
 * their number is limited. Each address has a share: one address cannot shut out the others.
 */
import { addressOwner } from '#base/address';
import { assert } from '#base/assert';
import type { SocketAddress } from '#contract/verbs/provider';

/** A connection with its peer's address. */
interface Starting {
  readonly remote: SocketAddress;
}

/** Starting connections by peer address, the oldest of each address first. */
export class StartingConnections<Connection extends Starting> {
  readonly #max: number;
  readonly #shares = new Map<string, Set<Connection>>();
  #size = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#size;
  }

  add(connection: Connection): void {
    const key = addressOwner(connection.remote.address);
    const share = this.#shares.get(key) ?? new Set();
    this.#shares.set(key, share.add(connection));
    this.#size += 1;
  }

  delete(connection: Connection): void {
    const key = addressOwner(connection.remote.address);
    const share = this.#shares.get(key);
    if (share?.delete(connection) !== true) return;
    this.#size -= 1;
    if (share.size === 0) this.#shares.delete(key);
  }

  /** All of them; the pool may change during iteration. */
  all(): Connection[] {
    return [...this.#shares.values()].flatMap((share) => [...share]);
  }

  /** Recounts, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    let size = 0;
    for (const [key, share] of this.#shares) {
      assert(share.size > 0, 'empty share');
      for (const { remote } of share) {
        assert(addressOwner(remote.address) === key, 'connection counted for another address');
      }
      size += share.size;
    }
    assert(size === this.#size, 'connections miscounted');
  }

  /**
   * The connection that a new one from `address` replaces: 'none' while there is room, otherwise
   * the oldest of the address with the most. Undefined if no address has more than this one.
   */
  placeFor(address: string): Connection | 'none' | undefined {
    if (this.#size < this.#max) return 'none';
    let largest = this.#shares.get(addressOwner(address));
    const own = largest?.size ?? 0;
    for (const share of this.#shares.values()) {
      if (share.size > (largest?.size ?? 0)) largest = share;
    }
    if (largest === undefined || largest.size <= own + 1) return undefined;
    const [oldest] = largest;
    return oldest;
  }
}
