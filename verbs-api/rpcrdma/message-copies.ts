/** Copies of messages, as views of shared blocks: a small allocation costs more than its bytes. */

/** A view keeps its block, so the block must not be much larger than what a program keeps. */
const BLOCK_BYTES = 4096;
/** Longer messages get a separate allocation, so that little of a block's end is wasted. */
const SHARED_MAX_BYTES = 512;

export class MessageCopies {
  #block = new Uint8Array(0);
  #used = 0;

  /** A copy that nothing else refers to. */
  copy(bytes: Uint8Array): Uint8Array {
    const lengthBytes = bytes.length;
    if (lengthBytes > SHARED_MAX_BYTES) return bytes.slice();
    if (this.#used + lengthBytes > this.#block.length) {
      this.#block = new Uint8Array(BLOCK_BYTES);
      this.#used = 0;
    }
    const start = this.#used;
    this.#used += lengthBytes;
    this.#block.set(bytes, start);
    return this.#block.subarray(start, this.#used);
  }
}
