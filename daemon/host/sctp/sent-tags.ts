/**
 * The tags of packets sent lately on a path. An ICMP message counts only if it quotes one (RFC 9260
 * section 10): nothing else in it shows that its sender has seen a packet of ours, since both UDP ports
 * are known.
 */
import { tagOf } from './packet-gate.ts';

/** Associations of a path that may send at once; ICMP messages about further ones may be ignored. */
const TAGS_MAX = 16;

export class SentTags {
  #last = 0;
  #next = 0;
  readonly #tags = new Uint32Array(TAGS_MAX);

  /** Notes a packet of `length` bytes at `start` that is being sent. */
  note(bytes: Uint8Array, start: number, length: number): void {
    const tag = tagOf(bytes, start, length);
    if (tag === this.#last) return;
    this.#last = tag;
    this.#tags[this.#next] = tag;
    this.#next = (this.#next + 1) % TAGS_MAX;
  }

  /** True if `bytes`, the start of a packet, quote one that was sent. */
  has(quoted: Uint8Array): boolean {
    const tag = tagOf(quoted, 0, quoted.length);
    return tag !== 0 && this.#tags.includes(tag);
  }
}
