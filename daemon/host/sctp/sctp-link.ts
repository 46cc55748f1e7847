/**
 * A session of a DDP stream as a link: each write is one SCTP message, unordered, and messages arrive in any
 * order.
 *
 * The user calls `close` once both halves of the session have ended. `reset` ends it at once: with a
 * Terminate if the association has other sessions, otherwise with the association.
 */
import type { Delivery, Transmit } from '#base/transmit';
import { PayloadProtocol } from '#daemon/iwarp/sctp/session-message';
import { type Link, type LinkUser, NO_USER } from '../links/link.ts';
import type { Association, MessageKind } from './association.ts';

/**
 * Maximum bytes held for a session that takes no input while others do. Above it all sessions stop, since
 * the association has one window.
 */
const HELD_MAX_BYTES = 262_144;
/** Cost of a held message in addition to its bytes. */
const HELD_MESSAGE_BYTES = 128;

/** A DDP segment (SCTP-10-01). */
export const SEGMENT: MessageKind = {
  payloadProtocol: PayloadProtocol.segment,
  unordered: true,
  acknowledgeAtOnce: false,
};
/** The same, if another message follows at once. */
const FOLLOWED: MessageKind = { ...SEGMENT, followed: true };
/** A control message: the next one waits for its acknowledgement (SCTP-6.6-01). */
export const CONTROL: MessageKind = {
  payloadProtocol: PayloadProtocol.sessionControl,
  unordered: true,
  acknowledgeAtOnce: true,
};

/** The link's interface to its association's streams. */
interface LinkStreams {
  readonly association: Association;
  /** Calls `run` in a later turn of the event loop. */
  soon(run: () => void): void;
  /** Sends a message of the session; false if it must wait, and then `handleSent` follows. */
  send(link: SctpLink, kind: MessageKind, bytes: Uint8Array): boolean;
  /** The link stops or resumes taking input. */
  pause(): void;
  resume(): void;
  /** True if a link that takes no input still gets it, because there are other sessions. */
  readonly keepsReading: boolean;
  /** The link has reached its limit of held bytes, or is below it again. */
  setFull(full: boolean): void;
  /** True if everything sent was acknowledged; otherwise `handleAcknowledged` follows. */
  readonly proven: boolean;
  awaitProof(): void;
  /** Ends the association if this is its last session; returns true in that case. */
  endsWith(link: SctpLink): boolean;
  close(): void;
  /** The user has aborted the session; aborts the association if it has no other session. */
  cut(link: SctpLink): void;
  /** The user was notified of the session's end: the streams handle the rest. */
  leave(link: SctpLink): void;
}

export class SctpLink implements Link {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly lowerLayer = 'sctp';
  readonly carriesMessages = true;
  readonly streamId: number;
  /** No effect: a message is a segment. */
  segmentAligned = false;
  user: LinkUser = NO_USER;
  readonly #streams: LinkStreams;
  readonly #onGone: (() => void) | undefined;
  /** A message that did not fit; it belongs to the caller. */
  #rest: Uint8Array | undefined;
  #restKind = SEGMENT;
  #paused = false;
  readonly #delivery = { payloadProtocol: 0, unsealed: false, lent: undefined };
  readonly #held: (Delivery & { readonly bytes: Uint8Array })[] = [];
  #heldBytes = 0;
  #full = false;
  #closing = false;
  #ended = false;

  /** Called by `streams`. */
  constructor(streams: LinkStreams, streamId: number, onGone: (() => void) | undefined) {
    const { local, remote } = streams.association;
    this.#streams = streams;
    this.#onGone = onGone;
    this.streamId = streamId;
    this.localAddress = local.address;
    this.localPort = local.port;
    this.remoteAddress = remote.address;
    this.remotePort = remote.port;
  }

  /** True once the session, or the association, has ended. */
  get ended(): boolean {
    return this.#ended;
  }

  /** True once its user has closed it. */
  get closing(): boolean {
    return this.#closing;
  }

  /** The queue pair that uses the link, for watchers. */
  get queuePair(): LinkUser['queuePair'] {
    return this.user.queuePair;
  }

  // Link

  emssBytes(): number {
    return this.#streams.association.messageMaxBytes;
  }

  get congested(): boolean {
    return this.#rest !== undefined;
  }

  get writable(): boolean {
    return this.#rest === undefined && !this.#closing && !this.#ended;
  }

  write(transmit: Transmit): number {
    if (!this.writable) throw new Error('the link is not writable');
    const { bytes } = transmit;
    const kind = kindOf(transmit);
    if (this.#streams.send(this, kind, bytes)) return bytes.length;
    this.#rest = bytes;
    this.#restKind = kind;
    return 0;
  }

  pauseReading(): void {
    // The end of the association is delivered in order after messages.
    if (this.#closing || this.#ended) return;
    this.#paused = true;
    this.#streams.pause();
  }

  resumeReading(): void {
    this.#paused = false;
    if (this.#held.length > 0) this.#streams.soon(() => this.#deliverHeld());
    else if (!this.#ended) this.#streams.resume();
  }

  /** Does nothing: the session control message that ends our half was already written. */
  finish(): void {}

  close(): void {
    if (this.#closing || this.#ended) return;
    this.resumeReading();
    this.#closing = true;
    this.#rest = undefined;
    if (this.#streams.endsWith(this)) this.#streams.close();
    else if (this.#streams.proven) this.#streams.soon(() => this.#finishClosing());
    else this.#streams.awaitProof();
  }

  reset(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#streams.cut(this);
    this.#streams.soon(() => this.user.handleClosed(undefined));
  }

  // Calls of the streams

  handleMessage(payloadProtocol: number, bytes: Uint8Array): void {
    if (!this.#paused || this.#closing || !this.#streams.keepsReading) {
      this.#delivery.payloadProtocol = payloadProtocol;
      this.user.handleBytes(bytes, this.#delivery);
      return;
    }
    this.#held.push({ payloadProtocol, unsealed: false, lent: undefined, bytes: bytes.slice() });
    this.#heldBytes += bytes.length + HELD_MESSAGE_BYTES;
    if (!this.#full && this.#heldBytes > HELD_MAX_BYTES) this.#setFull(true);
  }

  /** The waiting message, and its kind. */
  get rest(): Uint8Array | undefined {
    return this.#rest;
  }

  get restKind(): MessageKind {
    return this.#restKind;
  }

  /** The waiting message was sent. */
  handleSent(): void {
    const rest = this.#rest;
    if (rest === undefined) return;
    this.#rest = undefined;
    this.user.handleFlushed(rest.length);
  }

  /** Everything sent was acknowledged. */
  handleAcknowledged(): void {
    if (this.#closing) this.#finishClosing();
    else if (this.#rest === undefined) this.user.handleAcknowledged?.();
  }

  /** The association has ended. */
  handleEnded(code: string | undefined): void {
    if (this.#ended) return;
    this.#paused = false;
    // Input from before the end is delivered first.
    if (code === undefined) this.#deliverHeld();
    this.#ended = true;
    this.handleGone();
    this.user.handleClosed(code);
  }

  /** The streams have removed it. */
  handleGone(): void {
    this.#ended = true;
    this.#rest = undefined;
    this.#held.length = 0;
    if (this.#full) this.#setFull(false);
    this.#onGone?.();
  }

  #finishClosing(): void {
    if (this.#ended) return;
    this.#streams.leave(this);
    this.user.handleClosed(undefined);
  }

  #deliverHeld(): void {
    while (!this.#paused && !this.#ended) {
      const held = this.#held.shift();
      if (held === undefined) break;
      this.#heldBytes -= held.bytes.length + HELD_MESSAGE_BYTES;
      this.user.handleBytes(held.bytes, held);
    }
    if (this.#full && this.#heldBytes <= HELD_MAX_BYTES / 2) this.#setFull(false);
  }

  #setFull(full: boolean): void {
    this.#full = full;
    this.#streams.setFull(full);
  }
}

function kindOf({ payloadProtocol, followed }: Transmit): MessageKind {
  if (payloadProtocol !== PayloadProtocol.segment) return CONTROL;
  return followed ? FOLLOWED : SEGMENT;
}
