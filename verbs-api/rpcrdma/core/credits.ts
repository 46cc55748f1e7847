/** The requester's account of credits (RFC 8166 §3.3.1). */

/** How many calls may be without a reply. */
export class CreditWindow {
  #requested: number;
  /** RPCR-6.1-02 Until the first reply there is one credit, whatever was asked for. */
  #granted = 1;
  #inFlight = 0;

  /** `requested` credits, at least 1. */
  constructor(requested: number) {
    this.#requested = requested;
  }

  /** What calls ask for. */
  get requested(): number {
    return this.#requested;
  }

  /** The latest grant. */
  get granted(): number {
    return this.#granted;
  }

  /** Calls without a reply. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** True when one more call may be sent. */
  get open(): boolean {
    // RPCR2-3.3.1-02 The smaller of request and grant, less what is in flight.
    return this.#inFlight < Math.min(this.#requested, this.#granted);
  }

  /** Asks for another number from now on, at least 1. */
  request(credits: number): void {
    this.#requested = credits;
  }

  /** A call is on its way. */
  take(): void {
    this.#inFlight += 1;
  }

  /** A call is not in flight any more. */
  giveBack(): void {
    this.#inFlight -= 1;
  }

  /** A reply granted `credits`: absolute, and in the order of arrival (RFC 5666 §3.3). */
  grant(credits: number): void {
    // RPCR2-3.3.1-01 A grant of 0 breaks the rule; 1 is what the server must have meant, since it
    // has a receive for the next call.
    this.#granted = Math.max(credits, 1);
  }

  /** A new connection starts with one credit. */
  reset(): void {
    this.#granted = 1;
    this.#inFlight = 0;
  }
}
