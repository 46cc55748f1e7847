/** The requester's credit accounting (RFC 8166 §3.3.1). */

/** Limits how many calls may be unanswered. */
export class CreditWindow {
  #requested: number;
  /** RPCR-6.1-02 One credit until the first reply, regardless of the request. */
  #granted = 1;
  #inFlight = 0;

  /** `requested`: credits to request, at least 1. */
  constructor(requested: number) {
    this.#requested = requested;
  }

  get requested(): number {
    return this.#requested;
  }

  get granted(): number {
    return this.#granted;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** True when another call may be sent. */
  get open(): boolean {
    // RPCR2-3.3.1-02 The smaller of request and grant, minus calls in flight.
    return this.#inFlight < Math.min(this.#requested, this.#granted);
  }

  /** Changes the number of credits requested from now on, at least 1. */
  request(credits: number): void {
    this.#requested = credits;
  }

  take(): void {
    this.#inFlight += 1;
  }

  /** A call is no longer in flight. */
  giveBack(): void {
    this.#inFlight -= 1;
  }

  /** A reply granted `credits`: an absolute number, applied in order of arrival (RFC 5666 §3.3). */
  grant(credits: number): void {
    // RPCR2-3.3.1-01 A grant of 0 is a violation; treat it as 1, since the server has a receive for
    // the next call.
    this.#granted = Math.max(credits, 1);
  }

  /** A new connection starts with one credit. */
  reset(): void {
    this.#granted = 1;
    this.#inFlight = 0;
  }
}
