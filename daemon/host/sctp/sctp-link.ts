/**
 * A DDP stream of an association as a link: each write is one SCTP message, unordered, and what
 * comes are messages in any order.
 *
 * The association has one stream, and ends with it: `close` shuts it down once both halves of the
 * session have ended, `reset` aborts it.
 */
import { PayloadProtocol } from '../../iwarp/sctp/session-message.ts';
import { type Link, type LinkUser, NO_USER } from '../links/link.ts';
import type { Association, AssociationEnd, AssociationUser, MessageKind } from './association.ts';

/** The stream of DDP: the first, and the only one. */
const STREAM_ID = 0;

/** A DDP segment (SCTP-10-01). */
export const SEGMENT: MessageKind = {
  payloadProtocol: PayloadProtocol.segment,
  unordered: true,
  acknowledgeAtOnce: false,
};
/**
 * A control message: the next one waits for the acknowledgement of this one (SCTP-6.6-01).
 */
export const CONTROL: MessageKind = {
  payloadProtocol: PayloadProtocol.sessionControl,
  unordered: true,
  acknowledgeAtOnce: true,
};

/** What a link needs of its network. */
export interface SctpLinkHost {
  /** Calls `run` in a later turn of the event loop. */
  soon(run: () => void): void;
  /** There is a link. */
  handleMade(link: SctpLink): void;
  /** Its association has ended. */
  handleGone(link: SctpLink): void;
}

/** See the module's comment. */
export class SctpLink implements Link, AssociationUser {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly carriesMessages = true;
  /** Means nothing here: a message is a segment. */
  segmentAligned = false;
  user: LinkUser = NO_USER;
  readonly #association: Association;
  readonly #host: SctpLinkHost;
  /** A message that the association had no room for; the caller's. */
  #rest: Uint8Array | undefined;
  #restKind = SEGMENT;
  #closing = false;
  #ended = false;

  /** Becomes the user of the association. */
  constructor(association: Association, host: SctpLinkHost) {
    this.#association = association;
    this.#host = host;
    this.localAddress = association.local.address;
    this.localPort = association.local.port;
    this.remoteAddress = association.remote.address;
    this.remotePort = association.remote.port;
    association.user = this;
    host.handleMade(this);
  }

  /** True once the association has ended, or was aborted. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The queue pair that uses the link, for watchers. */
  get queuePair(): LinkUser['queuePair'] {
    return this.user.queuePair;
  }

  // Link

  emssBytes(): number {
    return this.#association.messageMaxBytes;
  }

  get congested(): boolean {
    return this.#rest !== undefined;
  }

  get writable(): boolean {
    return this.#rest === undefined && !this.#closing && !this.#ended;
  }

  write(bytes: Uint8Array, payloadProtocol: number = PayloadProtocol.segment): number {
    if (!this.writable) throw new Error('the link is not writable');
    const kind = payloadProtocol === PayloadProtocol.segment ? SEGMENT : CONTROL;
    if (this.#association.send(STREAM_ID, kind, bytes)) return bytes.length;
    this.#rest = bytes;
    this.#restKind = kind;
    return 0;
  }

  pauseReading(): void {
    // The end of the association comes the same way as messages.
    if (!this.#closing) this.#association.pauseReading();
  }

  resumeReading(): void {
    this.#association.resumeReading();
  }

  /** The end of our half is a message of the session, which has been written. */
  finish(): void {}

  close(): void {
    if (this.#closing || this.#ended) return;
    this.#closing = true;
    this.#rest = undefined;
    this.#association.resumeReading();
    this.#association.shutdown();
  }

  reset(): void {
    if (this.#ended) return;
    this.#association.abort();
    this.#end();
    this.#host.soon(() => this.user.handleClosed(undefined));
  }

  // AssociationUser

  handleMessage(
    _streamId: number,
    payloadProtocol: number,
    _unordered: boolean,
    bytes: Uint8Array,
  ): void {
    this.user.handleBytes(bytes, payloadProtocol);
  }

  handleWritable(): void {
    const rest = this.#rest;
    if (rest === undefined || !this.#association.send(STREAM_ID, this.#restKind, rest)) return;
    this.#rest = undefined;
    this.user.handleFlushed(rest.length);
  }

  handleAcknowledged(): void {
    if (this.#rest === undefined) this.user.handleAcknowledged?.();
  }

  handlePathChanged(): void {
    this.user.handlePathChanged?.();
  }

  /** The end follows, once what is queued here has been sent. */
  handlePeerShutdown(): void {}

  handleEnded({ kind, code }: AssociationEnd): void {
    this.#end();
    this.user.handleClosed(kind === 'shutdown' ? undefined : (code ?? 'ECONNRESET'));
  }

  #end(): void {
    this.#ended = true;
    this.#rest = undefined;
    this.#host.handleGone(this);
  }
}
