/**
 * What each sender gets of a turn that reads a socket. The kernel has one queue for all of them: while
 * several send, a turn reads on behind what a fast one has queued, and drops what is beyond its share
 * unread, which costs little. A sender that is alone loses nothing: the kernel keeps the rest.
 *
 * Senders are told apart by a hash of their address, so the memory is bounded whatever comes; two with
 * the same hash have one share.
 */

/** Packets of one sender that a turn takes: eight connections with all that they may have under way. */
const SOURCE_PACKETS = 256;
/** Hashes; a power of two. */
const SOURCES = 1024;
/** Turns for which a sender counts as present after its last packet. */
const PRESENT_TURNS = 64;
/** Multiplier and prime of FNV-1a. */
const [FNV_BASIS, FNV_PRIME] = [0x811c9dc5, 0x01000193];

export class SourceShares {
  readonly #counts = new Uint16Array(SOURCES);
  #turn = 0;
  /** The sender of the last packet, and the turn in which it last was another than before. */
  #last = -1;
  #changed = Number.NEGATIVE_INFINITY;

  /** A turn begins. */
  begin(): void {
    this.#turn += 1;
    this.#counts.fill(0);
  }

  /** True while several senders are present. */
  get shared(): boolean {
    return this.#turn - this.#changed <= PRESENT_TURNS;
  }

  /** A packet of this sender. False if it is beyond its share of the turn. */
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
