/** Bytes of one connection that the daemon keeps for later, in one place: a buffer, a list. */

/** The part of a connection that counts them. */
export interface InputAccount {
  /** So many more bytes are kept, or fewer if negative. Ends a connection beyond its user's share. */
  keep(change: number): void;
}

export class KeptInput {
  readonly #account: InputAccount;
  #bytes = 0;

  constructor(account: InputAccount) {
    this.#account = account;
  }

  /** The place holds `bytes` now. */
  note(bytes: number): void {
    if (bytes === this.#bytes) return;
    const change = bytes - this.#bytes;
    this.#bytes = bytes;
    this.#account.keep(change);
  }
}
