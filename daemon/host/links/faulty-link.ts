/**
 * A link with the faults of one connection: output passes them on its way to the inner link, input on its way
 * to the user.
 *
 * It accepts every write: held output stays in the stream's buffers and within the stream's limit. Held input
 * is copied; above a limit, reading from the inner link stops.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { PLAIN, type Transmit } from '#base/transmit';
import type { Fault } from '#daemon/faults/fault';
import type { Framing } from '#daemon/iwarp/faults/frame';
import type { StreamFaults } from '#daemon/iwarp/faults/stream-faults';
import type { Link } from './link.ts';
import { LinkAround } from './link-around.ts';
import type { Alarm, HostClock } from './network.ts';

/** Limit of held input; above it, reading from the inner link stops. */
const HELD_INPUT_MAX_BYTES = 1_048_576;
/** Timers fire up to a millisecond early, but held bytes must not be released early. */
const TIMER_SLACK_MICROS = 1000;

const NO_BYTES = new Uint8Array(0);

/** Options of a faulty link, from the host that wraps it around a link. */
interface FaultyLinkOptions {
  readonly faults: StreamFaults;
  readonly clock: HostClock;
  /** The framing of the user's present output. */
  framing(): Framing;
  /** A fault fired on output that must be executed outside the link. */
  fire(fault: Fault, now: Micros): void;
  /** No fault is active or has effects left: the wrapper can be removed. */
  spent(): void;
}

export class FaultyLink extends LinkAround {
  readonly #options: FaultyLinkOptions;
  readonly #faults: StreamFaults;
  #alarm: Alarm | undefined;
  #alarmDue: Micros = NEVER;
  /** The user wrote its last byte; `#closing`: and closed the connection. */
  #finished = false;
  #closing = false;
  /** The user wants no more input. */
  #leaving = false;
  /** The user paused reading; `#innerPaused`: reading from the inner link is paused. */
  #paused = false;
  #innerPaused = false;
  #innerClosed = false;
  /** The end of the input, which follows the held input. */
  #heldEnd: 'peer-closed' | 'closed' | undefined;
  #peerClosed = false;
  #spent = false;
  /** A fault reset the connection. */
  #broken = false;

  constructor(inner: Link, options: FaultyLinkOptions) {
    super(inner);
    this.#options = options;
    this.#faults = options.faults;
  }

  /** Replaces the faults, and releases bytes that removed ones held back. */
  setFaults(faults: readonly Fault[]): void {
    this.#faults.setFaults(faults);
    this.#pump();
  }

  // Link

  /** Also true while held bytes wait for something other than time. */
  override get congested(): boolean {
    return this.inner.congested || !(this.#faults.outbound.empty || this.#faults.drains);
  }

  override get lends(): boolean {
    return false;
  }

  override get writable(): boolean {
    return !this.#finished && !this.#innerClosed;
  }

  override write({ bytes, payloadProtocol, unsealed }: Transmit): number {
    if (!this.writable) throw new Error('the link is not writable');
    if (unsealed) this.seal(bytes);
    const now = this.#options.clock.now();
    this.#faults.handleOutput(bytes, this.#options.framing(), now, payloadProtocol);
    for (;;) {
      const fault = this.#faults.pollOutcome();
      if (fault === undefined) break;
      this.#options.fire(fault, now);
    }
    const flushed = this.#flush(now);
    this.#arm(now);
    return flushed;
  }

  override pauseReading(): void {
    this.#paused = true;
    this.#pace();
  }

  override resumeReading(): void {
    this.#paused = false;
    this.#pace();
    if (!this.#faults.inbound.empty) this.#options.clock.soon(() => this.#pump());
  }

  override finish(): void {
    this.#finished = true;
    this.#endOutput();
  }

  override close(): void {
    this.#dropInput();
    this.#finished = true;
    this.#closing = true;
    // Bytes that are only delayed may still be sent; the rest is dropped.
    if (this.#faults.outbound.empty || this.#faults.drains) this.#endOutput();
    else this.reset();
  }

  override reset(): void {
    this.#finished = true;
    this.#faults.outbound.clear();
    this.#dropInput();
    this.inner.reset();
  }

  override get heldBytes(): number {
    return super.heldBytes + this.#faults.inbound.heldBytes + this.#faults.outbound.heldBytes;
  }

  override assertInvariants(): void {
    super.assertInvariants();
    const { inbound, outbound } = this.#faults;
    inbound.assertInvariants();
    outbound.assertInvariants();
    assert(!this.#innerClosed || outbound.empty, 'held output of a closed link');
    assert(!this.#leaving || inbound.empty, 'held input of a user that reads no more');
    assert(this.#heldEnd === undefined || !inbound.empty, 'held end without held input');
    assert(!this.#closing || this.#finished, 'link closes before its output is finished');
  }

  // LinkUser

  override handleBytes(bytes: Uint8Array, { payloadProtocol } = PLAIN): void {
    // The inner link keeps reading while delayed output is pending.
    if (this.#leaving) return;
    this.#faults.handleInput(bytes, this.#options.clock.now(), payloadProtocol);
    this.#pump();
  }

  /** Faults may have changed the input. */
  override get inspectsInput(): boolean {
    return true;
  }

  override handleFlushed(bytes: number): void {
    this.user.handleFlushed(bytes);
    this.#pump();
  }

  /** Held and lost bytes have not been sent to the peer. */
  override handleAcknowledged(): void {
    const { outbound } = this.#faults;
    if (outbound.empty && !outbound.ended) super.handleAcknowledged();
  }

  override handlePeerClosed(): void {
    if (this.#faults.inbound.empty) this.#passPeerClosed();
    else this.#heldEnd = 'peer-closed';
  }

  override handleClosed(errorCode: string | undefined): void {
    this.#innerClosed = true;
    const { inbound, outbound } = this.#faults;
    outbound.clear();
    if (errorCode === undefined && !inbound.empty && !this.#leaving) {
      this.#heldEnd = 'closed';
      return;
    }
    inbound.clear();
    this.#disarm();
    this.user.handleClosed(errorCode ?? (this.#broken ? 'ECONNRESET' : undefined));
  }

  override get cutOutputBytes(): number {
    return this.#faults.outbound.cutBytes;
  }

  override get heldInput(): Uint8Array {
    return this.#faults.inbound.withHeld(this.user.heldInput ?? NO_BYTES);
  }

  // Steps

  /** Releases everything due, in both directions. */
  #pump(): void {
    if (this.#spent) return;
    const now = this.#options.clock.now();
    const flushed = this.#flush(now);
    if (flushed > 0) this.user.handleFlushed(flushed);
    this.#deliver(now);
    this.#arm(now);
    this.#endWhenSpent();
  }

  /** Injects a reset, which both the user and the peer see. */
  #break(): void {
    this.#broken = true;
    this.reset();
  }

  /** Sends due output. Returns how many bytes of the user's output were sent or lost. */
  #flush(now: Micros): number {
    let flushed = 0;
    while (this.#sends) {
      const output = this.#faults.outbound.poll(now);
      if (output === undefined) break;
      if (output.type === 'bytes') {
        if (this.inner.writable) flushed += this.inner.write(output);
      } else if (output.type === 'lost') flushed += output.bytes;
      else if (output.type === 'reset') this.#break();
      else if (this.carriesMessages) this.inner.close();
      else this.inner.finish();
    }
    this.#endOutput();
    return flushed;
  }

  /** True while the inner link has room, and after an injected end, when all bytes are lost. */
  get #sends(): boolean {
    if (this.#innerClosed || this.inner.congested) return false;
    return this.inner.writable || this.#faults.outbound.ended;
  }

  #endOutput(): void {
    if (!this.#finished || !this.#faults.outbound.empty || this.#innerClosed) return;
    if (!this.#closing) this.inner.finish();
    else if (!this.inner.congested) this.inner.close();
  }

  #deliver(now: Micros): void {
    const { inbound } = this.#faults;
    while (!this.#paused) {
      const output = inbound.poll(now);
      if (output === undefined) break;
      if (output.type === 'bytes') this.user.handleBytes(output.bytes, output);
      else if (output.type === 'reset') this.#break();
      else if (output.type === 'close') {
        // SCTP has no half-close.
        if (this.carriesMessages) this.inner.close();
        else this.#passPeerClosed();
      }
    }
    this.#pace();
    if (!inbound.empty || this.#heldEnd === undefined) return;
    const end = this.#heldEnd;
    this.#heldEnd = undefined;
    if (!this.carriesMessages) this.#passPeerClosed();
    if (end === 'closed') this.handleClosed(undefined);
  }

  #passPeerClosed(): void {
    if (this.#peerClosed) return;
    this.#peerClosed = true;
    this.user.handlePeerClosed();
  }

  /** Stops reading, which slows down the peer, while too much is held. */
  #pace(): void {
    const pause = this.#paused || this.#faults.inbound.heldBytes > HELD_INPUT_MAX_BYTES;
    if (pause === this.#innerPaused) return;
    this.#innerPaused = pause;
    if (pause) this.inner.pauseReading();
    else this.inner.resumeReading();
  }

  /** Drops the held input: the user reads no more. */
  #dropInput(): void {
    this.#leaving = true;
    this.#faults.inbound.clear();
    const closed = this.#heldEnd === 'closed';
    this.#heldEnd = undefined;
    if (closed) this.#options.clock.soon(() => this.handleClosed(undefined));
  }

  #endWhenSpent(): void {
    if (this.#spent || this.#innerClosed || this.#closing) return;
    if (!this.#faults.idle || this.#heldEnd !== undefined) return;
    this.#spent = true;
    this.#disarm();
    this.#options.spent();
  }

  /** Sets the alarm for the next due time. */
  #arm(now: Micros): void {
    const { inbound, outbound } = this.#faults;
    const due = Math.min(
      this.#sends ? outbound.nextDeadline() : NEVER,
      this.#paused ? NEVER : inbound.nextDeadline(),
    );
    if (due === this.#alarmDue) return;
    this.#disarm();
    if (due === NEVER) return;
    this.#alarmDue = due;
    this.#alarm = this.#options.clock.after(Math.max(0, due - now) + TIMER_SLACK_MICROS, () => {
      this.#alarmDue = NEVER;
      this.#pump();
    });
  }

  #disarm(): void {
    this.#alarm?.cancel();
    this.#alarmDue = NEVER;
  }
}
