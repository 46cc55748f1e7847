/**
 * Each sender's share of a turn that reads a socket. The kernel has one queue for all senders. While several
 * send, a turn reads past the packets of a fast one and drops those above its share unread, which costs
 * little. A single sender loses nothing: the kernel keeps the rest.
 *
 * Senders are distinguished by a hash of their address, so memory is bounded. Two with the same hash have one
 * share.
 */

/** Packets of one sender per turn: six connections with full windows. */
const SOURCE_PACKETS = 384;
/** Number of hashes; a power of two. */
const SOURCES = 1024;
/** Turns for which a sender counts as present after its last packet. */
const PRESENT_TURNS = 64;
/** Multiplier and prime of FNV-1a. */
const [FNV_BASIS, FNV_PRIME] = [0x811c9dc5, 0x01000193];

export class SourceShares {
  readonly #counts = new Uint16Array(SOURCES);
  #turn = 0;
  /** The sender of the last packet, and the last turn in which the sender changed. */
  #last = -1;
  #changed = Number.NEGATIVE_INFINITY;

  /** Begins a turn. */
  begin(): void {
    this.#turn += 1;
    this.#counts.fill(0);
  }

  /** True while several senders are present. */
  get shared(): boolean {
    return this.#turn - this.#changed <= PRESENT_TURNS;
  }

  /** Counts a packet of this sender. False if it is above its share of the turn. */
  take(gid: Uint8Array): boolean {
    const source = hashOf(gid);
    if (source !== this.#last) {
      if (this.#last >= 0) this.#changed = this.#turn;
      this.#last = source;
    }
    const count = (this.#counts[source] as number) + 1;
    this.#counts[source] = count;
    return count <= SOURCE_PACKETS || !this.shared;
  }
}

function hashOf(gid: Uint8Array): number {
  let hash = FNV_BASIS;
  for (let at = 0; at < gid.length; at += 1) {
    hash = Math.imul(hash ^ (gid[at] as number), FNV_PRIME);
  }
  return (hash ^ (hash >>> 16)) & (SOURCES - 1);
}
