/**
 * The words behind a send queue, in memory that the program maps: they save the preload library
 * round trips and system calls. Both are the last ones of the last page. The program may write
 * anything there, which harms its own doorbells only.
 */
import type { QPState } from '#contract/verbs/enums';
import { isIdle } from '#daemon/rnic/qp-state';

/** What `DOORBELL` holds; see shim-protocol.ts. */
const Doorbell = { command: 0, oneWay: 1, none: 2 } as const;
const DOORBELL = 0;
/** Elements taken; shows the preload library what to flush if the daemon dies. */
const PROGRESS = 1;
const WORDS = 2;
/** Bytes behind a send queue. */
export const SEND_WORDS_BYTES = 4 * WORDS;

export class SendWords {
  #words: Int32Array | undefined;

  /** The words are the last bytes of `memory`. */
  place(memory: Uint8Array): void {
    const at = memory.byteOffset + memory.length - SEND_WORDS_BYTES;
    this.#words = new Int32Array(memory.buffer, at, WORDS);
  }

  get progress(): Int32Array | undefined {
    return this.#words?.subarray(PROGRESS);
  }

  /** A doorbell may be refused below RTS, so its answer is waited for. */
  handleState(state: QPState): void {
    this.#store(isIdle(state) ? Doorbell.command : Doorbell.oneWay);
  }

  /** Whoever posts need not ring from now on, unless by a command. */
  silence(): void {
    this.#replace(Doorbell.oneWay, Doorbell.none);
  }

  /** Whoever posts after this has to ring again: look at the queue once more. */
  listen(): void {
    this.#replace(Doorbell.none, Doorbell.oneWay);
  }

  #store(value: number): void {
    if (this.#words !== undefined) Atomics.store(this.#words, DOORBELL, value);
  }

  #replace(old: number, value: number): void {
    if (this.#words !== undefined) Atomics.compareExchange(this.#words, DOORBELL, old, value);
  }
}
