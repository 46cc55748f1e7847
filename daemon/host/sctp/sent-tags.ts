/**
 * The tags of recently sent packets of a path. An ICMP message counts only if it quotes one (RFC 9260 section
 * 10): nothing else proves that its sender has seen one of our packets, since both UDP ports are known.
 */
import { tagOf } from './packet-gate.ts';

/** Tags kept per path. ICMP messages about more associations than that may be ignored. */
const TAGS_MAX = 16;

export class SentTags {
  #last = 0;
  #next = 0;
  readonly #tags = new Uint32Array(TAGS_MAX);

  /** Records a packet of `length` bytes at `start` that is being sent. */
  note(bytes: Uint8Array, start: number, length: number): void {
    const tag = tagOf(bytes, start, length);
    if (tag === this.#last) return;
    this.#last = tag;
    this.#tags[this.#next] = tag;
    this.#next = (this.#next + 1) % TAGS_MAX;
  }

  /** True if `quoted`, the start of a packet, has the tag of a sent one. */
  has(quoted: Uint8Array): boolean {
    const tag = tagOf(quoted, 0, quoted.length);
    return tag !== 0 && this.#tags.includes(tag);
  }
}
