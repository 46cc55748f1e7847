/**
 * Joins one connection's endpoint, stream and link: octets from the link go into the stream, the
 * stream's octets go out while the link takes them, and its events reach the endpoint.
 */

import type { CmStream } from '../cm/cm-types.ts';
import type { Endpoint } from '../cm/endpoint.ts';
import { type Micros, NEVER, type StreamEvent } from '../engine/stream-api.ts';
import type { LinkUser, TcpLink } from '../transport/tcp-link.ts';

/**
 * Octets that one conduit sends in a turn of the event loop. A socket on loopback takes octets as
 * fast as they are made, and the other connections have to get their turn.
 */
export const SEND_BUDGET_BYTES = 1_048_576;

/**
 * Octets sent between two looks at the segment size. siw looks before each FPDU; it changes within
 * the first octets of a connection, as the peer's window opens, and then hardly ever.
 */
const EMSS_INTERVAL_BYTES = 1_048_576;

/** What a conduit needs of the event loop. */
export interface ConduitHost {
  now(): Micros;
  /** The conduit's stream had an input: settle it, and everything that follows from it. */
  handleInput(conduit: Conduit, now: Micros): void;
  /** Its silent peer was nudged, which only a log tells of. */
  handleNudged(conduit: Conduit, text: string): void;
  /** The link is gone and the endpoint knows. */
  handleGone(conduit: Conduit): void;
}

/** See the module's comment. */
export class Conduit implements LinkUser {
  readonly endpoint: Endpoint;
  readonly stream: CmStream;
  readonly #link: TcpLink;
  readonly #host: ConduitHost;
  /** When the peer's FIN has been awaited long enough behind a stream that is over. */
  #lingerDeadline: Micros = NEVER;
  #linkClosed = false;
  /** Octets sent since the last look at the segment size. */
  #unmeasuredBytes = 0;
  /** The stream asked for an abort; the event behind it says why. */
  #aborting = false;
  /** Set by the host while the conduit waits in its queue. */
  queued = false;

  constructor(endpoint: Endpoint, stream: CmStream, link: TcpLink, host: ConduitHost) {
    this.endpoint = endpoint;
    this.stream = stream;
    this.#link = link;
    this.#host = host;
    link.user = this;
  }

  // From the link

  handleOctets(octets: Uint8Array): void {
    const now = this.#host.now();
    this.stream.handleOctets(octets, now);
    this.#host.handleInput(this, now);
  }

  handleFlushed(bytes: number): void {
    const now = this.#host.now();
    this.stream.handleFlushed(bytes, now);
    this.#host.handleInput(this, now);
  }

  handlePeerClosed(): void {
    const now = this.#host.now();
    this.stream.handlePeerClosed(now);
    this.#host.handleInput(this, now);
  }

  handleClosed(errorCode: string | undefined): void {
    const now = this.#host.now();
    this.#linkClosed = true;
    this.stream.handleClosed(errorCode, now);
    this.#host.handleInput(this, now);
    this.#host.handleGone(this);
  }

  /** See `LinkUser`. */
  get heldInput(): Uint8Array {
    return this.stream.heldInput;
  }

  // From the event loop

  /** Moves events and octets until there are none or the link is full; true: more in a later turn. */
  settle(now: Micros): boolean {
    let sentBytes = 0;
    for (;;) {
      this.#deliverEvents(now);
      if (!this.#link.writable) return false;
      const octets = this.stream.pollTransmit();
      if (octets === undefined) return false;
      const takenBytes = this.#link.write(octets);
      if (takenBytes > 0) this.stream.handleFlushed(takenBytes, now);
      sentBytes += takenBytes;
      this.#followEmss(octets.length);
      if (sentBytes >= SEND_BUDGET_BYTES) return true;
    }
  }

  nextDeadline(): Micros {
    return Math.min(this.stream.nextDeadline(), this.#lingerDeadline);
  }

  handleDeadline(now: Micros): void {
    if (now >= this.#lingerDeadline) this.reset();
    if (now >= this.stream.nextDeadline()) this.stream.handleDeadline(now);
  }

  /** Resets TCP, whatever the stream thinks. */
  reset(): void {
    this.#lingerDeadline = NEVER;
    this.#link.reset();
  }

  /**
   * The host goes: what the kernel has still leaves, then a FIN, as when a program on siw ends.
   * With octets that it has not, a FIN would claim an end that there was not: a reset.
   */
  leave(): void {
    this.#lingerDeadline = NEVER;
    if (this.#link.congested || this.stream.pollTransmit() !== undefined) this.#link.reset();
    else this.#link.close();
  }

  #deliverEvents(now: Micros): void {
    for (;;) {
      const event = this.stream.pollEvent();
      if (event === undefined) return;
      this.#actOn(event, now);
      this.endpoint.handleStreamEvent(event, now);
    }
  }

  #actOn(event: StreamEvent, now: Micros): void {
    if (event.type === 'established') {
      this.#align(event.crcEnabled);
      this.stream.setEmss(this.#link.emssBytes());
    } else if (event.type === 'nudged') {
      this.#host.handleNudged(this, `${event.text}; known peculiarity: ${event.quirk}`);
    } else if (event.type === 'finish') this.#link.finish();
    else if (event.type === 'abort') this.#aborting = true;
    else if (event.type === 'closed' && !this.#linkClosed) {
      if (this.#aborting) this.#abort(event.failure?.kind === 'local');
      else this.#linger(now);
    }
  }

  #followEmss(sentBytes: number): void {
    this.#unmeasuredBytes += sentBytes;
    if (this.#unmeasuredBytes < EMSS_INTERVAL_BYTES) return;
    this.#unmeasuredBytes = 0;
    this.stream.setEmss(this.#link.emssBytes());
  }

  #align(crcEnabled: boolean): void {
    this.#link.segmentAligned = crcEnabled && this.endpoint.device.wire.segmentAligned;
  }

  /**
   * A program that destroys its queue pair does not want to take back what it sent before: octets
   * that the kernel has go out, then a FIN, as with siw. Anything else that is cut off is a reset.
   */
  #abort(byConsumer: boolean): void {
    if (byConsumer && !this.#link.congested) this.#link.close();
    else this.#link.reset();
  }

  /** The stream is over and said all it had to say; the peer's FIN may still be missing. */
  #linger(now: Micros): void {
    this.#link.finish();
    this.#lingerDeadline = now + this.endpoint.device.wire.closeTimeoutMicros;
  }
}
