/**
 * The tags of packets that were sent lately on a path. An ICMP message is believed if it quotes one (RFC
 * 9260 section 10): nothing else in it shows that its sender has seen a packet of ours, since both UDP
 * ports are known.
 */
import { tagOf } from './packet-gate.ts';

/** Associations of a path send at once; of more than these, messages may be ignored. */
const TAGS_MAX = 16;

/** See the module's comment. */
export class SentTags {
  #last = 0;
  #next = 0;
  readonly #tags = new Uint32Array(TAGS_MAX);

  /** The packet of `length` bytes at `start` leaves. */
  note(bytes: Uint8Array, start: number, length: number): void {
    const tag = tagOf(bytes, start, length);
    if (tag === this.#last) return;
    this.#last = tag;
    this.#tags[this.#next] = tag;
    this.#next = (this.#next + 1) % TAGS_MAX;
  }

  /** True if these first bytes of a packet are those of one that was sent. */
  has(quoted: Uint8Array): boolean {
    const tag = tagOf(quoted, 0, quoted.length);
    return tag !== 0 && this.#tags.includes(tag);
  }
}
