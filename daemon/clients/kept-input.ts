/** Counts the bytes of one connection that the daemon buffers in one place: a buffer, a list. */

export interface InputAccount {
  /** Adds to the buffered bytes; negative: subtracts. Ends a connection beyond its user's share. */
  keep(change: number): void;
}

export class KeptInput {
  readonly #account: InputAccount;
  #bytes = 0;

  constructor(account: InputAccount) {
    this.#account = account;
  }

  /** Sets the number of bytes buffered in this place. */
  note(bytes: number): void {
    if (bytes === this.#bytes) return;
    const change = bytes - this.#bytes;
    this.#bytes = bytes;
    this.#account.keep(change);
  }
}
