/**
 * The words after a send queue, in memory that the program maps: they save the preload library round
 * trips and system calls. They are the last words of the last page. The program may write anything
 * there, which harms only its own doorbells.
 */
import type { QPState } from '#contract/verbs/enums';
import { isIdle } from '#contract/verbs/qp-state';

/** Values of `DOORBELL`; see shim-protocol.ts. */
const Doorbell = { command: 0, oneWay: 1, none: 2 } as const;
const DOORBELL = 0;
/** Elements taken: shows the preload library what to flush if the daemon dies. */
const PROGRESS = 1;
const WORDS = 2;
/** Bytes after a send queue. */
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

  /** Below RTS, a doorbell may be refused, so the program waits for the reply. */
  handleState(state: QPState): void {
    this.#store(isIdle(state) ? Doorbell.command : Doorbell.oneWay);
  }

  /** Makes doorbells unnecessary, except by a command. */
  silence(): void {
    this.#replace(Doorbell.oneWay, Doorbell.none);
  }

  /** Makes doorbells necessary again; check the queue once more after this. */
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
