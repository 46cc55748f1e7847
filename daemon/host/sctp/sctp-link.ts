/**
 * A session of a DDP stream as a link: each write is one SCTP message, unordered, and what comes are
 * messages in any order.
 *
 * `close` comes once both halves of the session have ended, and `reset` ends it at once: with a
 * Terminate if the association has other sessions, or else with the association.
 */
import { PayloadProtocol } from '#daemon/iwarp/sctp/session-message';
import { type Link, type LinkUser, NO_USER } from '../links/link.ts';
import type { Association, MessageKind } from './association.ts';

/**
 * Most bytes that a session holds back that takes no input, while others do. More stops them, too:
 * the window is the association's.
 */
const HELD_MAX_BYTES = 262_144;
/** What a message costs beside its bytes. */
const HELD_MESSAGE_BYTES = 128;

/** A DDP segment (SCTP-10-01). */
export const SEGMENT: MessageKind = {
  payloadProtocol: PayloadProtocol.segment,
  unordered: true,
  acknowledgeAtOnce: false,
};
/** The same, when another message follows at once. */
const FOLLOWED: MessageKind = { ...SEGMENT, followed: true };
/**
 * A control message: the next one waits for the acknowledgement of this one (SCTP-6.6-01).
 */
export const CONTROL: MessageKind = {
  payloadProtocol: PayloadProtocol.sessionControl,
  unordered: true,
  acknowledgeAtOnce: true,
};

/** What a link needs of the streams that made it. */
interface LinkStreams {
  readonly association: Association;
  /** Calls `run` in a later turn of the event loop. */
  soon(run: () => void): void;
  /** Sends a message of the session; false if it waits, and `handleSent` follows. */
  send(link: SctpLink, kind: MessageKind, bytes: Uint8Array): boolean;
  /** The link takes no input for now, or takes it again. */
  pause(): void;
  resume(): void;
  /** True if a link that takes no input gets it all the same: there are other sessions. */
  readonly keepsReading: boolean;
  /** The link holds back as much as it may, or no longer. */
  setFull(full: boolean): void;
  /** True when all that was sent has arrived; until then `handleAcknowledged` follows. */
  readonly proven: boolean;
  awaitProof(): void;
  /** True if the association ends with the session of the link; and ends it. */
  endsWith(link: SctpLink): boolean;
  close(): void;
  /** The user has aborted the session: alone, it has the association aborted. */
  cut(link: SctpLink): void;
  /** The user is told of the session's end: the rest of it is handled by the streams. */
  leave(link: SctpLink): void;
}

export class SctpLink implements Link {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly carriesMessages = true;
  readonly streamId: number;
  /** Means nothing here: a message is a segment. */
  segmentAligned = false;
  user: LinkUser = NO_USER;
  readonly #streams: LinkStreams;
  readonly #onGone: (() => void) | undefined;
  /** A message that the association had no room for; the caller's. */
  #rest: Uint8Array | undefined;
  #restKind = SEGMENT;
  #paused = false;
  readonly #held: { readonly payloadProtocol: number; readonly bytes: Uint8Array }[] = [];
  #heldBytes = 0;
  #full = false;
  #closing = false;
  #ended = false;

  /** `streams` makes it. */
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

  write(
    bytes: Uint8Array,
    payloadProtocol: number = PayloadProtocol.segment,
    followed = false,
  ): number {
    if (!this.writable) throw new Error('the link is not writable');
    const kind = kindOf(payloadProtocol, followed);
    if (this.#streams.send(this, kind, bytes)) return bytes.length;
    this.#rest = bytes;
    this.#restKind = kind;
    return 0;
  }

  pauseReading(): void {
    // The end of the association comes the same way as messages.
    if (this.#closing || this.#ended) return;
    this.#paused = true;
    this.#streams.pause();
  }

  resumeReading(): void {
    this.#paused = false;
    if (this.#held.length > 0) this.#streams.soon(() => this.#deliverHeld());
    else if (!this.#ended) this.#streams.resume();
  }

  /** The end of our half is a message of the session, which has been written. */
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

  // What the streams call

  handleMessage(payloadProtocol: number, bytes: Uint8Array): void {
    if (!this.#paused || this.#closing || !this.#streams.keepsReading) {
      this.user.handleBytes(bytes, payloadProtocol);
      return;
    }
    this.#held.push({ payloadProtocol, bytes: bytes.slice() });
    this.#heldBytes += bytes.length + HELD_MESSAGE_BYTES;
    if (!this.#full && this.#heldBytes > HELD_MAX_BYTES) this.#setFull(true);
  }

  /** The message that waits, and its kind. */
  get rest(): Uint8Array | undefined {
    return this.#rest;
  }

  get restKind(): MessageKind {
    return this.#restKind;
  }

  /** The message that waited has been sent. */
  handleSent(): void {
    const rest = this.#rest;
    if (rest === undefined) return;
    this.#rest = undefined;
    this.user.handleFlushed(rest.length);
  }

  /** Everything that was sent has arrived. */
  handleAcknowledged(): void {
    if (this.#closing) this.#finishClosing();
    else if (this.#rest === undefined) this.user.handleAcknowledged?.();
  }

  /** The association has ended. */
  handleEnded(code: string | undefined): void {
    if (this.#ended) return;
    this.#paused = false;
    // What came before the end is read before it.
    if (code === undefined) this.#deliverHeld();
    this.#ended = true;
    this.handleGone();
    this.user.handleClosed(code);
  }

  /** It is no longer of the streams. */
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
      this.user.handleBytes(held.bytes, held.payloadProtocol);
    }
    if (this.#full && this.#heldBytes <= HELD_MAX_BYTES / 2) this.#setFull(false);
  }

  #setFull(full: boolean): void {
    this.#full = full;
    this.#streams.setFull(full);
  }
}

function kindOf(payloadProtocol: number, followed: boolean): MessageKind {
  if (payloadProtocol !== PayloadProtocol.segment) return CONTROL;
  return followed ? FOLLOWED : SEGMENT;
}
