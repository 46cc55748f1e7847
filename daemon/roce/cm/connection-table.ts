/** The connections of a manager, by their own number and by what their peers call them. */
import { assert } from '../../invariants/assert.ts';
import type { CmConnection } from './cm-connection.ts';
import { gidKey } from './cm-path.ts';

export class ConnectionTable {
  readonly #byId = new Map<number, CmConnection>();
  /** Passive ones, by the peer's GID and number: finds requests that came twice. */
  readonly #byRemoteId = new Map<string, CmConnection>();
  /**
   * By the peer's GID and queue pair: finds connections that their peer has forgotten. Half-open ones are
   * not here, since forged requests could use them to block others; nor are those in timewait, whose peer
   * may reuse its queue pair.
   */
  readonly #byRemoteQp = new Map<string, CmConnection>();
  /** How many passive ones there are with each peer's GID. */
  readonly #byAddress = new Map<string, number>();

  get size(): number {
    return this.#byId.size;
  }

  all(): Iterable<CmConnection> {
    return this.#byId.values();
  }

  has(localCommId: number): boolean {
    return this.#byId.has(localCommId);
  }

  /** The connection with this number whose peer has this GID. */
  find(localCommId: number, gid: Uint8Array): CmConnection | undefined {
    const found = this.#byId.get(localCommId);
    return found !== undefined && gidKey(found.path.dgid) === gidKey(gid) ? found : undefined;
  }

  findRemoteId(gid: Uint8Array, remoteCommId: number): CmConnection | undefined {
    return this.#byRemoteId.get(key(gid, remoteCommId));
  }

  findRemoteQp(gid: Uint8Array, qpn: number): CmConnection | undefined {
    return this.#byRemoteQp.get(key(gid, qpn));
  }

  /** True if there is a connection that came from `gid`, in whatever state. */
  hasComeFrom(gid: Uint8Array): boolean {
    return this.#byAddress.has(gidKey(gid));
  }

  add(connection: CmConnection): void {
    const { localCommId, remoteCommId, path, role } = connection;
    this.#byId.set(localCommId, connection);
    if (role === 'passive') {
      this.#byRemoteId.set(key(path.dgid, remoteCommId), connection);
      this.#count(path.dgid, 1);
    }
  }

  /** The peer's queue pair is that of this connection: its RTU has come, or its REP. */
  noteRemoteQp(connection: CmConnection): void {
    const { remote, path } = connection;
    if (remote === undefined) return;
    this.#byRemoteQp.set(key(path.dgid, remote.qpn), connection);
  }

  /** The peer may reuse its queue pair for another connection. */
  forgetRemoteQp(connection: CmConnection): void {
    const { remote, path } = connection;
    if (remote !== undefined) remove(this.#byRemoteQp, key(path.dgid, remote.qpn), connection);
  }

  delete(connection: CmConnection): void {
    const { localCommId, remoteCommId, path, role } = connection;
    const known = this.#byId.delete(localCommId);
    if (known && role === 'passive') this.#count(path.dgid, -1);
    remove(this.#byRemoteId, key(path.dgid, remoteCommId), connection);
    this.forgetRemoteQp(connection);
  }

  #count(gid: Uint8Array, by: number): void {
    const address = gidKey(gid);
    const count = (this.#byAddress.get(address) ?? 0) + by;
    if (count === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, count);
  }

  /** For tests. Throws `InvariantError`. */
  assertInvariants(): void {
    for (const [id, connection] of this.#byId) {
      assert(connection.localCommId === id, 'a connection is found by its number');
      assert(connection.state !== 'idle', 'what is over is forgotten');
    }
    const counted = [...this.#byAddress.values()].reduce((sum, count) => sum + count, 0);
    const passive = [...this.#byId.values()].filter(({ role }) => role === 'passive');
    assert(counted === passive.length, 'each passive connection counts for one address');
    for (const { state } of this.#byRemoteQp.values()) {
      assert(state !== 'timewait', 'a connection in timewait holds no queue pair');
    }
    for (const map of [this.#byRemoteId, this.#byRemoteQp]) {
      for (const connection of map.values()) {
        assert(this.#byId.get(connection.localCommId) === connection, 'what a peer names exists');
      }
    }
  }
}

function key(gid: Uint8Array, number: number): string {
  return `${gidKey(gid)}/${number}`;
}

/** The key may have been taken over by a later connection. */
function remove(map: Map<string, CmConnection>, of: string, connection: CmConnection): void {
  if (map.get(of) === connection) map.delete(of);
}
