/**
 * Joins one connection's endpoint, stream and link: octets from the link go into the stream, the
 * stream's octets go out while the link takes them, and its events reach the endpoint.
 */

import type { CmStream } from '../cm/cm-types.ts';
import type { Endpoint } from '../cm/endpoint.ts';
import { type Micros, NEVER, type StreamEvent } from '../engine/stream-api.ts';
import type { ConnectionFacts, Fault } from '../faults/fault.ts';
import { type Framing, OutputWalk, startupFrameBytes } from '../faults/passage.ts';
import { StreamFaults } from '../faults/stream-faults.ts';
import type { LinkUser, TcpLink } from '../transport/tcp-link.ts';
import type { Crc32c } from '../wire/crc32c.ts';

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

/** Octets of input that faults may hold back before the socket is not read any more. */
const HELD_INPUT_MAX_BYTES = 1_048_576;

/** What a conduit needs of the event loop. */
export interface ConduitHost {
  now(): Micros;
  readonly crc32c: Crc32c;
  /** A fault that struck on the conduit asks for more than its octets to be changed. */
  handleFault(conduit: Conduit, fault: Fault, now: Micros): void;
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
  /** Octets that the stream gave out, and those of its startup frame among them. */
  #sentBytes = 0;
  #startupBytes = 0;
  #framing: Framing = { crcEnabled: false, markers: false };
  /** Undefined while no fault can meet the connection, and none has left anything behind. */
  #faults: StreamFaults | undefined;
  /** Ends of the input that faults hold back, and of the output. */
  #heldClose: 'peer-closed' | 'closed' | undefined;
  #peerClosed = false;
  #closesBehindOutput = false;
  #readingPaused = false;
  /** The connection is being ended, whatever is still held back. */
  #leaving = false;

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
    if (this.#faults === undefined) this.stream.handleOctets(octets, now);
    else this.#receiveThrough(this.#faults, octets, now);
    this.#host.handleInput(this, now);
  }

  handleFlushed(bytes: number): void {
    const now = this.#host.now();
    this.stream.handleFlushed(bytes, now);
    this.#host.handleInput(this, now);
  }

  handlePeerClosed(): void {
    const now = this.#host.now();
    if (this.#inputHeld) {
      this.#heldClose = 'peer-closed';
      return;
    }
    this.#closePeer(now);
    this.#host.handleInput(this, now);
  }

  handleClosed(errorCode: string | undefined): void {
    const now = this.#host.now();
    this.#linkClosed = true;
    if (errorCode === undefined && this.#inputHeld && !this.#leaving) {
      this.#heldClose = 'closed';
      return;
    }
    this.#faults?.inbound.clear();
    this.stream.handleClosed(errorCode, now);
    this.#host.handleInput(this, now);
    this.#host.handleGone(this);
  }

  /** See `LinkUser`. */
  get heldInput(): Uint8Array {
    const held = this.stream.heldInput;
    return this.#faults?.inbound.heldBehind(held) ?? held;
  }

  /** See `LinkUser`. */
  get queuePair(): { readonly device: string; readonly qpn: number } | undefined {
    const { device, qp } = this.endpoint;
    return qp === undefined ? undefined : { device: device.name, qpn: qp.qpn };
  }

  // From the event loop

  /** Moves events and octets until there are none or the link is full; true: more in a later turn. */
  settle(now: Micros): boolean {
    if (this.#faults !== undefined) return this.#settleThrough(this.#faults, now);
    let sentBytes = 0;
    for (;;) {
      this.#deliverEvents(now);
      if (!this.#link.writable) return false;
      const octets = this.stream.pollTransmit();
      if (octets === undefined) return false;
      this.#noteSent(octets);
      const takenBytes = this.#link.write(octets);
      if (takenBytes > 0) this.stream.handleFlushed(takenBytes, now);
      sentBytes += takenBytes;
      this.#followEmss(octets.length);
      if (sentBytes >= SEND_BUDGET_BYTES) return true;
    }
  }

  /** The connection as a fault's scope sees it. */
  get facts(): ConnectionFacts {
    const { device, qp, remote } = this.endpoint;
    return { device: device.name, qpNum: qp?.qpn, remote };
  }

  nextDeadline(): Micros {
    const due = Math.min(this.stream.nextDeadline(), this.#lingerDeadline);
    const faults = this.#faults;
    if (faults === undefined) return due;
    // What waits to leave a socket that is full goes on when that has room, not in time.
    const outbound = this.#link.writable ? faults.outbound.nextDeadline() : NEVER;
    return Math.min(due, outbound, faults.inbound.nextDeadline());
  }

  handleDeadline(now: Micros): void {
    if (now >= this.#lingerDeadline) this.reset();
    if (now >= this.stream.nextDeadline()) this.stream.handleDeadline(now);
    if (this.#faults !== undefined) this.#deliverInput(this.#faults, now);
  }

  /** Resets TCP, whatever the stream thinks. */
  reset(): void {
    this.#lingerDeadline = NEVER;
    this.#link.reset();
    this.#dropHeldInput();
  }

  /**
   * These faults can meet the connection from now on; undefined when none can. What others held back
   * goes on when the conduit is settled next.
   */
  setFaults(faults: readonly Fault[] | undefined, now: Micros): void {
    if (faults === undefined && this.#faults === undefined) return;
    this.#faults ??= new StreamFaults(
      new OutputWalk(this.#sentBytes, this.#startupBytes),
      () => this.facts,
      this.#host.crc32c,
    );
    this.#faults.setFaults(faults ?? []);
    this.#deliverInput(this.#faults, now);
  }

  /**
   * The host goes: what the kernel has still leaves, then a FIN, as when a program on siw ends.
   * With octets that it has not, a FIN would claim an end that there was not: a reset.
   */
  leave(): void {
    this.#lingerDeadline = NEVER;
    const held = this.#faults?.outbound.empty === false;
    if (held || this.#link.congested || this.stream.pollTransmit() !== undefined) {
      this.#link.reset();
    } else this.#link.close();
    this.#dropHeldInput();
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
    if (event.type === 'request') {
      if (this.#faults?.rejectsRequest() === true) this.endpoint.rejecting = true;
    } else if (event.type === 'established') {
      this.#framing = { crcEnabled: event.crcEnabled, markers: event.sendMarkers };
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
    const faults = this.#faults;
    if (byConsumer && faults?.outbound.empty === false && faults.drains) {
      this.#closesBehindOutput = true;
    } else if (byConsumer && !this.#link.congested && faults?.outbound.empty !== false) {
      this.#link.close();
    } else this.reset();
  }

  /** The stream is over and said all it had to say; the peer's FIN may still be missing. */
  #linger(now: Micros): void {
    this.#link.finish();
    this.#lingerDeadline = now + this.endpoint.device.wire.closeTimeoutMicros;
  }

  /** Keeps what a fault that comes later has to know. */
  #noteSent(octets: Uint8Array): void {
    // The first octets of a stream are those of its startup frame.
    if (this.#sentBytes === 0) this.#startupBytes = startupFrameBytes(octets);
    this.#sentBytes += octets.length;
  }

  // With faults

  /** As `settle`: the stream's output goes through the faults to the link. */
  #settleThrough(faults: StreamFaults, now: Micros): boolean {
    let sentBytes = 0;
    for (;;) {
      this.#deliverEvents(now);
      this.#takeOutput(faults, now);
      for (;;) {
        const fault = faults.pollOutcome();
        if (fault === undefined) break;
        this.#host.handleFault(this, fault, now);
      }
      const bytes = this.#sendOutput(faults, now);
      if (bytes === undefined) break;
      sentBytes += bytes;
      if (sentBytes >= SEND_BUDGET_BYTES) return true;
    }
    if (this.#closesBehindOutput && faults.outbound.empty && !this.#link.congested) {
      this.#closesBehindOutput = false;
      this.#link.close();
    }
    if (faults.idle && this.#heldClose === undefined) this.#faults = undefined;
    return false;
  }

  #takeOutput(faults: StreamFaults, now: Micros): void {
    for (;;) {
      const octets = this.stream.pollTransmit();
      if (octets === undefined) return;
      this.#noteSent(octets);
      faults.handleOutput(octets, this.#framing, now);
    }
  }

  /** Does the next thing that is due: octets that it was about; undefined when nothing can be done. */
  #sendOutput({ outbound }: StreamFaults, now: Micros): number | undefined {
    if (!this.#link.writable && !outbound.ended) return undefined;
    if (this.#link.congested) return undefined;
    const output = outbound.poll(now);
    switch (output?.type) {
      case undefined:
        return undefined;
      case 'octets': {
        const takenBytes = this.#link.writable ? this.#link.write(output.octets) : 0;
        if (takenBytes > 0) this.stream.handleFlushed(takenBytes, now);
        return takenBytes;
      }
      case 'lost':
        this.stream.handleFlushed(output.bytes, now);
        return output.bytes;
      case 'close':
        this.#link.finish();
        return 0;
      case 'reset':
        this.reset();
        return undefined;
      default:
        output satisfies never;
        return undefined;
    }
  }

  #receiveThrough(faults: StreamFaults, octets: Uint8Array, now: Micros): void {
    faults.handleInput(octets, now);
    this.#deliverInput(faults, now);
  }

  /** Gives the stream what is due, and the end behind it. */
  #deliverInput({ inbound }: StreamFaults, now: Micros): void {
    for (;;) {
      const output = inbound.poll(now);
      if (output === undefined) break;
      if (output.type === 'octets') this.stream.handleOctets(output.octets, now);
      else if (output.type === 'close') this.#closePeer(now);
      else if (output.type === 'reset') this.reset();
    }
    this.#paceReading(inbound.heldBytes);
    if (!inbound.empty || this.#heldClose === undefined) return;
    const how = this.#heldClose;
    this.#heldClose = undefined;
    this.#closePeer(now);
    if (how === 'closed') this.handleClosed(undefined);
  }

  #paceReading(heldBytes: number): void {
    const pause = heldBytes > HELD_INPUT_MAX_BYTES;
    if (pause === this.#readingPaused) return;
    this.#readingPaused = pause;
    if (pause) this.#link.pauseReading();
    else this.#link.resumeReading();
  }

  #closePeer(now: Micros): void {
    if (this.#peerClosed) return;
    this.#peerClosed = true;
    this.stream.handlePeerClosed(now);
  }

  /** Nobody wants what faults hold back of the input: the end of the socket ends the conduit. */
  #dropHeldInput(): void {
    this.#leaving = true;
    if (this.#heldClose !== 'closed') return;
    this.#heldClose = undefined;
    this.handleClosed(undefined);
  }

  get #inputHeld(): boolean {
    return this.#faults?.inbound.empty === false;
  }
}
