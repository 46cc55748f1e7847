/**
 * Connects one connection's endpoint, stream and link. Bytes from the link go into the stream, the
 * stream's bytes go out while the link accepts them, and the stream's events go to the endpoint.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { Delivery } from '#base/transmit';
import type { ConnectionFacts } from '../faults/fault.ts';
import type { CmEndpoint, IdAccount } from '../iwarp/cm/cm-id.ts';
import type { CmStream } from '../iwarp/cm/cm-types.ts';
import type { StreamEvent } from '../iwarp/engine/stream-api.ts';
import { type Framing, startupFrameBytes } from '../iwarp/faults/frame.ts';
import { LentStream } from '../rnic/memory/lent-stream.ts';
import type { Link, LinkUser } from './links/link.ts';
import type { ShareMember, TurnShare } from './turn-share.ts';

/**
 * Bytes that one conduit sends per turn of the event loop. A socket on loopback accepts bytes as
 * fast as they are produced, and other connections need their turn.
 */
const SEND_BUDGET_BYTES = 1_048_576;

/**
 * Bytes sent between two queries of the segment size. siw queries it before each FPDU; it changes within the
 * first bytes of a connection, as the peer's window opens, and hardly ever later.
 */
const EMSS_INTERVAL_BYTES = 1_048_576;

const MICROS_PER_SECOND = 1_000_000;

/** How long a closing host waits for peers to read sent data. */
const LEAVE_PATIENCE_MICROS = 500_000;

/** All framings: conduits share them. */
const FRAMINGS: readonly Framing[] = [false, true].flatMap((crcEnabled) =>
  [false, true].map((markers) => ({ crcEnabled, markers })),
);

function framingOf(crcEnabled: boolean, markers: boolean): Framing {
  const framing = FRAMINGS[(crcEnabled ? 2 : 0) + (markers ? 1 : 0)];
  assert(framing !== undefined, 'unknown framing');
  return framing;
}

/** The conduit's interface to its host. */
export interface ConduitHost {
  now(): Micros;
  /** An MPA Request arrived: true if a fault rejects it. */
  rejectsRequest(conduit: Conduit): boolean;
  /** The conduit's stream had input at `now`: settle it, with all consequences. */
  handleInput(conduit: Conduit, now: Micros): void;
  /** The conduit's output has waited, and may continue: settle it with the next drain. */
  handleCopied(conduit: Conduit): void;
  /** The host nudged a silent peer; for the log only. */
  handleNudged(conduit: Conduit, text: string): void;
  /** A startup failed before the peer's Request was complete; for the log only. */
  handleNoRequest(conduit: Conduit, text: string): void;
  /** The link has ended and the endpoint was notified. */
  handleGone(conduit: Conduit): void;
}

/** The resources that a connection takes, and the account charged for them. */
export interface Charged {
  readonly account: IdAccount | undefined;
  readonly descriptors: number;
  readonly ports: number;
}

export class Conduit implements LinkUser, ShareMember {
  readonly endpoint: CmEndpoint;
  readonly stream: CmStream;
  #link: Link;
  readonly #host: ConduitHost;
  /** Deadline for the peer's FIN after the stream has ended. */
  #lingerDeadline: Micros = NEVER;
  #linkClosed = false;
  /** Bytes sent since the last query of the segment size. */
  #unmeasuredBytes = 0;
  /** The stream requested an abort; the following event has the reason. */
  #aborting = false;
  /** Set by the loop while the conduit waits in its queue. */
  queued = false;
  /** Set by the loop while the conduit may not send until a later turn. */
  deferred = false;
  inputRound = -1;
  /** Returned by the host when the link has ended. */
  charged: Charged | undefined;
  /** Bytes that the stream produced, and those of its startup frame. */
  #sentBytes = 0;
  #startupBytes = 0;
  #framing: Framing = framingOf(false, false);
  #closesAfterOutput = false;
  #readingPaused = false;
  /** The turn share of the peer's address. */
  readonly #share: TurnShare;
  /** Payload lent to a peer on this host. */
  readonly #loans: LentStream | undefined;
  /** Output waits until lent payload is copied. */
  #awaitsCopies = false;
  /** FPDUs that the share has counted. */
  #inputFpdus = 0;
  /** The connection is being ended; further input does not matter. */
  #leaving = false;

  constructor(
    endpoint: CmEndpoint,
    stream: CmStream,
    link: Link,
    share: TurnShare,
    host: ConduitHost,
  ) {
    this.endpoint = endpoint;
    this.stream = stream;
    this.#link = link;
    this.#share = share;
    this.#host = host;
    share.join(this);
    if (link.faithful === true) {
      stream.leaveUnsealed();
      this.#loans = new LentStream(this);
      stream.lend?.(this.#loans);
    }
    link.user = this;
  }

  // From the link

  handleBytes(bytes: Uint8Array, delivery?: Delivery): void {
    const now = this.#host.now();
    this.stream.handleBytes(bytes, now, delivery);
    this.#countInput(bytes.length);
    this.paceReading();
    this.#host.handleInput(this, now);
  }

  /** True if the stream may lend payload. */
  get lends(): boolean {
    return this.#link.lends === true;
  }

  get takesLent(): boolean {
    return this.endpoint.qp?.takesLent === true;
  }

  seal(bytes: Uint8Array): void {
    this.stream.seal(bytes);
  }

  handleFlushed(bytes: number): void {
    const now = this.#host.now();
    this.stream.handleFlushed(bytes, now);
    this.#host.handleInput(this, now);
  }

  handleAcknowledged(): void {
    const now = this.#host.now();
    this.stream.handleAcknowledged(now);
    this.#host.handleInput(this, now);
  }

  handlePathChanged(): void {
    this.stream.setEmss(this.#link.emssBytes());
  }

  handlePeerClosed(): void {
    const now = this.#host.now();
    this.#loans?.hasten();
    this.stream.handlePeerClosed(now);
    this.#host.handleInput(this, now);
  }

  handleClosed(errorCode: string | undefined): void {
    const now = this.#host.now();
    this.#linkClosed = true;
    this.#lingerDeadline = NEVER;
    this.stream.handleClosed(errorCode, now);
    this.#host.handleInput(this, now);
    this.#host.handleGone(this);
  }

  get heldInput(): Uint8Array {
    return this.stream.heldInput;
  }

  get queuePair(): { readonly device: string; readonly qpn: number } | undefined {
    const { device, qp } = this.endpoint;
    return qp === undefined ? undefined : { device: device.name, qpn: qp.qpn };
  }

  // From the event loop

  /**
   * Moves events and bytes until none are left or the link is full. 'more': continues in a later turn.
   * 'held': the peer's address has used up its share of this one.
   */
  settle(now: Micros): 'done' | 'more' | 'held' {
    if (this.#readingPaused) this.paceReading();
    let sentBytes = 0;
    for (;;) {
      this.#deliverEvents(now);
      if (this.deferred) return 'done';
      if (this.#share.spent) return 'held';
      const link = this.#link;
      const writable = link.writable && !this.#awaitCopies();
      const transmit = writable ? this.stream.pollTransmit(link.unsegmented === true) : undefined;
      if (transmit === undefined) {
        if (!link.congested && !this.#awaitsCopies) this.#endOutput();
        return 'done';
      }
      const { bytes, lent } = transmit;
      if (lent?.failed === true) {
        this.reset();
        return 'done';
      }
      this.#noteSent(bytes);
      const takenBytes = link.write(transmit);
      if (takenBytes > 0) this.stream.handleFlushed(takenBytes, now);
      sentBytes += takenBytes;
      this.#share.countOutput(takenBytes);
      this.#followEmss(bytes.length);
      if (sentBytes >= SEND_BUDGET_BYTES) return 'more';
    }
  }

  /** True if output waits for lent payload, which a link that does not lend could overtake. */
  #awaitCopies(): boolean {
    const loans = this.#loans;
    if (loans === undefined || loans.lent === 0) return false;
    if (!this.lends) loans.recall();
    if (!loans.waits) return false;
    if (this.#awaitsCopies) return true;
    this.#awaitsCopies = true;
    loans.whenCopied(() => {
      this.#awaitsCopies = false;
      if (!this.#linkClosed) this.#host.handleCopied(this);
    });
    return true;
  }

  /** The connection as a fault's scope sees it. */
  get facts(): ConnectionFacts {
    const { device, qp, remote } = this.endpoint;
    return { device: device.name, qpNum: qp?.qpn, remote };
  }

  nextDeadline(): Micros {
    return Math.min(this.stream.nextDeadline(), this.#lingerDeadline);
  }

  handleDeadline(now: Micros): void {
    if (now >= this.#lingerDeadline) this.reset();
    if (now >= this.stream.nextDeadline()) this.stream.handleDeadline(now);
  }

  /** Resets TCP, in any state of the stream. */
  reset(): void {
    this.#lingerDeadline = NEVER;
    this.#leaving = true;
    this.#link.reset();
  }

  /** The link in use: a fault may wrap another one around it. */
  get link(): Link {
    return this.#link;
  }

  /** Continues over `link`, which wraps the previous link, or was wrapped by it. */
  moveTo(link: Link): void {
    this.#link = link;
    link.user = this;
    if (this.#readingPaused) link.pauseReading();
  }

  /** The stream's position in its output. A fault added now starts to parse there. */
  get output(): { readonly sentBytes: number; readonly startupBytes: number } {
    return { sentBytes: this.#sentBytes, startupBytes: this.#startupBytes };
  }

  /** Call at the end of a turn. Throws `InvariantError`. */
  assertInvariants(): void {
    assert(this.#startupBytes <= this.#sentBytes, 'startup frame longer than the bytes sent');
    assert(this.#unmeasuredBytes < EMSS_INTERVAL_BYTES, 'segment size not queried in time');
    assert(this.#inputFpdus <= this.stream.receivedFpdus, 'counted more FPDUs than were received');
    const waits = !this.#linkClosed && this.#share.waits(this);
    assert(this.#readingPaused || !waits, 'conduit reads without a share');
    assert(!this.#linkClosed || this.#lingerDeadline === NEVER, 'deadline for a closed link');
    this.#link.assertInvariants?.();
    this.#loans?.assertInvariants();
  }

  /** The framing of the stream's present output. */
  get framing(): Framing {
    return this.#framing;
  }

  /**
   * Ends the connection as the host shuts down: sends completed work, then a FIN, as when a program on siw
   * ends. A peer that does not read it in time gets a reset, since a FIN would signal a clean end.
   */
  leave(now: Micros): void {
    this.stream.abort(now);
    this.#closesAfterOutput = true;
    this.#lingerDeadline = now + LEAVE_PATIENCE_MICROS;
    this.#leaving = true;
    if (!this.#linkClosed) this.#host.handleInput(this, now);
  }

  #deliverEvents(now: Micros): void {
    for (;;) {
      const event = this.stream.pollEvent();
      if (event === undefined) return;
      this.#actOn(event, now);
      this.#reportStartup(event);
      this.endpoint.handleStreamEvent(event, now);
    }
  }

  #actOn(event: StreamEvent, now: Micros): void {
    if (event.type === 'request') {
      if (this.#host.rejectsRequest(this)) this.endpoint.rejecting = true;
    } else if (event.type === 'established') {
      this.#framing = framingOf(event.crcEnabled, event.sendMarkers);
      this.#align(event.crcEnabled);
      this.#watchPeer();
      this.stream.setEmss(this.#link.emssBytes());
    } else if (event.type === 'nudged') {
      this.#host.handleNudged(this, `${event.text}; known quirk: ${event.quirk}`);
    } else if (event.type === 'finish') this.#link.finish();
    else if (event.type === 'abort') this.#aborting = true;
    else if (event.type === 'closed' && !this.#linkClosed) {
      if (this.#aborting) this.#abort(event.failure?.kind === 'local', now);
      else this.#linger(now);
    }
  }

  // MPA-7.1.1-03, MPA-7.1.1-16, MPA-7.1.1-20, MPA-7.1.1-21: there is no consumer to report it to yet.
  #reportStartup(event: StreamEvent): void {
    if (event.type !== 'closed' || event.failure === undefined) return;
    if (this.endpoint.phase !== 'awaiting-request') return;
    this.#host.handleNoRequest(this, event.failure.text);
  }

  #followEmss(sentBytes: number): void {
    this.#unmeasuredBytes += sentBytes;
    if (this.#unmeasuredBytes < EMSS_INTERVAL_BYTES) return;
    this.#unmeasuredBytes = 0;
    this.stream.setEmss(this.#link.emssBytes());
  }

  /** Before and after Full Operation, other timeouts apply. */
  #watchPeer(): void {
    const { keepaliveIdleMicros, keepaliveIntervalMicros, keepaliveProbes } =
      this.endpoint.device.wire;
    if (keepaliveIdleMicros === 0) return;
    const idleSeconds = keepaliveIdleMicros / MICROS_PER_SECOND;
    const intervalSeconds = keepaliveIntervalMicros / MICROS_PER_SECOND;
    this.#link.keepAlive?.(idleSeconds, intervalSeconds, keepaliveProbes);
  }

  #align(crcEnabled: boolean): void {
    this.#link.segmentAligned = crcEnabled && this.endpoint.device.wire.segmentAligned;
  }

  /** Resets the link, or only closes it if the consumer cancelled the startup. */
  #abort(byConsumer: boolean, now: Micros): void {
    if (!byConsumer || this.#link.congested) {
      this.reset();
      return;
    }
    this.#lingerDeadline = now + this.endpoint.device.wire.closeTimeoutMicros;
    this.#link.close();
  }

  /**
   * The stream has ended. Destroying a queue pair does not undo completed work: that is sent first,
   * then our FIN. Input until the peer's FIN is read and dropped, since the kernel resets a
   * connection that is closed with unread input.
   */
  #linger(now: Micros): void {
    this.#closesAfterOutput = true;
    if (this.#leaving) return;
    this.#lingerDeadline = now + this.endpoint.device.wire.closeTimeoutMicros;
  }

  // RDMAP-5.5-10
  /** The stream's output is written: sends its FIN, if the stream has ended. */
  #endOutput(): void {
    if (!this.#closesAfterOutput) return;
    if (this.#leaving || this.#link.carriesMessages === true) this.#link.close();
    else this.#link.finish();
  }

  /** Records what faults added later need to know. */
  #noteSent(bytes: Uint8Array): void {
    // The first write of a byte stream is its startup frame.
    if (this.#sentBytes === 0 && this.#link.carriesMessages !== true)
      this.#startupBytes = startupFrameBytes(bytes);
    this.#sentBytes += bytes.length;
  }

  /**
   * Stops reading, which slows down the peer, while slow memory lags or the peer's address has used up its
   * share of the turn.
   */
  paceReading(): void {
    const pause = this.#share.waits(this) || this.endpoint.qp?.congested === true;
    if (pause === this.#readingPaused || this.#linkClosed) return;
    this.#readingPaused = pause;
    if (pause) this.#link.pauseReading();
    else this.#link.resumeReading();
  }

  #countInput(bytes: number): void {
    const { receivedFpdus } = this.stream;
    const fpdus = receivedFpdus - this.#inputFpdus;
    this.#inputFpdus = receivedFpdus;
    this.#share.countInput(this, bytes, fpdus);
  }
}
