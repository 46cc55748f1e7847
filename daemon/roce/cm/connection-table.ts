/** The connections of a manager, by our id and by the peer's id and queue pair. */
import { assert } from '#base/assert';
import type { CmConnection } from './cm-connection.ts';
import { gidKey } from './cm-path.ts';

export class ConnectionTable {
  readonly #byId = new Map<number, CmConnection>();
  /** Passive ones, by the peer's GID and id: finds repeated requests. */
  readonly #byRemoteId = new Map<string, CmConnection>();
  /**
   * By the peer's GID and queue pair: finds connections that the peer has forgotten. Half-open ones are
   * excluded, since forged requests could use them to block others. So are those in timewait, whose peer may
   * reuse its queue pair.
   */
  readonly #byRemoteQp = new Map<string, CmConnection>();
  /** How many passive ones there are from each peer's GID. */
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

  /** The connection with this id whose peer has this GID. */
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

  /** True if a passive connection came from `gid`, in any state. */
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

  /** Records the peer's queue pair, once its RTU or REP has confirmed it. */
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
      assert(connection.localCommId === id, 'connection under a wrong id');
      assert(connection.state !== 'idle', 'idle connection in the table');
    }
    const counted = [...this.#byAddress.values()].reduce((sum, count) => sum + count, 0);
    const passive = [...this.#byId.values()].filter(({ role }) => role === 'passive');
    assert(counted === passive.length, 'passive connections per address miscounted');
    for (const { state } of this.#byRemoteQp.values()) {
      assert(state !== 'timewait', 'connection in timewait found by its queue pair');
    }
    for (const map of [this.#byRemoteId, this.#byRemoteQp]) {
      for (const connection of map.values()) {
        assert(
          this.#byId.get(connection.localCommId) === connection,
          'connection found by a peer id is not in the table',
        );
      }
    }
  }
}

function key(gid: Uint8Array, number: number): string {
  return `${gidKey(gid)}/${number}`;
}

/** A later connection may have taken over the key. */
function remove(map: Map<string, CmConnection>, of: string, connection: CmConnection): void {
  if (map.get(of) === connection) map.delete(of);
}
