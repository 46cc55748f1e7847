/**
 * How many requests of peers are not established yet, in all and from each address. A request costs
 * its sender one datagram, so both are limited.
 */
import { assert } from '../../invariants/assert.ts';
import type { CmConnection } from './cm-connection.ts';
import { ownerOf } from './cm-path.ts';

/** See the module's comment. */
export class HalfOpen {
  readonly #max: number;
  readonly #maxPerAddress: number;
  readonly #open = new Set<CmConnection>();
  readonly #byOwner = new Map<string, number>();

  constructor(max: number, maxPerAddress: number) {
    this.#max = max;
    this.#maxPerAddress = maxPerAddress;
  }

  get size(): number {
    return this.#open.size;
  }

  /** True while another one from `gid` may come. */
  hasRoom(gid: Uint8Array): boolean {
    if (this.#open.size >= this.#max) return false;
    return (this.#byOwner.get(ownerOf(gid)) ?? 0) < this.#maxPerAddress;
  }

  add(connection: CmConnection): void {
    this.#open.add(connection);
    this.#count(connection, 1);
  }

  /** Does nothing for one that is established, or was never counted. */
  delete(connection: CmConnection): void {
    if (this.#open.delete(connection)) this.#count(connection, -1);
  }

  #count({ path }: CmConnection, by: number): void {
    const owner = ownerOf(path.dgid);
    const count = (this.#byOwner.get(owner) ?? 0) + by;
    if (count === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, count);
  }

  /** Recounts, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    const states = ['req-rcvd', 'rep-sent', 'mra-rep-rcvd', 'sidr-req-rcvd'];
    for (const { role, state } of this.#open) {
      assert(role === 'passive' && states.includes(state), 'what is half open is not established');
    }
    const counted = [...this.#byOwner.values()].reduce((sum, count) => sum + count, 0);
    assert(counted === this.#open.size, 'as many are counted as there are');
    assert(this.#open.size <= this.#max, 'no more are half open than the limit');
  }
}
