/**
 * The DDP streams of an association: pairs of SCTP streams with one number (RFC 5043 section 6). Each carries
 * one session after the other, and each session is a link. The end of a session does not affect the others;
 * the end of the association ends all.
 *
 * SCTP acknowledges an association, not a stream. A session that needs to know whether its last control
 * message arrived waits until everything is acknowledged. If others keep the association busy, all pause
 * until then (`PROOF_MICROS`).
 */
import { readUint16 } from '#base/checked-bytes';
import { makeCutMessage } from '#daemon/iwarp/sctp/cut-message';
import { PayloadProtocol, SessionFunction } from '#daemon/iwarp/sctp/session-message';
import type { Alarm } from '../links/network.ts';
import type { Association, AssociationEnd, AssociationUser, MessageKind } from './association.ts';
import { CONTROL, SctpLink, SEGMENT } from './sctp-link.ts';

/** How long a session waits for an acknowledgement before the others pause for it. */
const PROOF_MICROS = 100_000;
/** Time limit of SHUTDOWN, after everything sent: SCTP gives up a silent peer by then. */
const CLOSE_MICROS = 20_000_000;
/** Length of a Terminate: DDP-SSN and function code. */
const CONTROL_BYTES = 4;
const SSN_MASK = 0xffff;

/** Interface of the streams to their network. */
export interface StreamsHost {
  /** Calls `run` in a later turn of the event loop. */
  soon(run: () => void): void;
  /** Calls `run` after a delay. */
  after(delayMicros: number, run: () => void): Alarm;
  /** The association is up. */
  handleUp(streams: DdpStreams): void;
  /** The association has ended. */
  handleGone(streams: DdpStreams): void;
}

/** How an association is used. */
interface StreamsOptions {
  /** Called with each session that the peer begins. Undefined: the peer may begin none. */
  readonly onSession?: (link: SctpLink) => void;
  /** How long an association without a session stays. Undefined: it ends with its session. */
  readonly idleMicros: number | undefined;
  /** The association has ended. */
  readonly onGone?: () => void;
}

/** A stream with a session, or with one whose last messages are in flight. */
class Stream {
  /** Undefined once the session has no user. */
  link: SctpLink | undefined;
  /** Our last message of the session was sent, or there is none. */
  ended = false;
  /** SSN of the peer's final message, or -1 if not received. */
  peerLast = -1;
  /** Number of received messages. */
  received = 0;
  /** Number of sent messages. */
  sent = 0;
  /** Numbers, in the association, of the last message and of the last control message. */
  lastSend = 0;
  lastControl = 0;
  /** A Terminate is pending, since the session has no user to send it. */
  pendingTerminate = false;
  /** The peer must first be notified that messages may be missing. */
  pendingCut = false;

  constructor(link: SctpLink | undefined) {
    this.link = link;
  }
}

/** It is the user of the association. */
export class DdpStreams implements AssociationUser {
  readonly association: Association;
  readonly #host: StreamsHost;
  readonly #options: StreamsOptions;
  /** By stream number; undefined for free streams. */
  readonly #streams: (Stream | undefined)[] = [];
  /** Links whose users have not been notified of an end. */
  readonly #links: SctpLink[] = [];
  /** Links with a message that did not fit, longest first. */
  readonly #waiting: SctpLink[] = [];
  /** There has been more than one link at a time. */
  #several = false;
  /** Number of links that hold back as much as they may. */
  #full = 0;
  #paused = false;
  /** Messages sent, and how many of them are known to have arrived. */
  #sends = 0;
  #proven = 0;
  /** A message was sent or received. */
  #used = false;
  /** Nothing is sent until everything is acknowledged. */
  #barred = false;
  #proofAlarm: Alarm | undefined;
  #idleAlarm: Alarm | undefined;
  /** Ends with its last session. */
  #expired = false;
  /** No new session is begun. */
  #closing = false;
  #ended = false;

  constructor(association: Association, host: StreamsHost, options: StreamsOptions) {
    this.association = association;
    this.#host = host;
    this.#options = options;
    association.user = this;
    host.handleUp(this);
  }

  // Calls of its users

  /** Begins a session on a free stream, as its active side; undefined if there is none. */
  begin(onGone?: () => void): SctpLink | undefined {
    if (this.#closing || this.#ended) return undefined;
    for (let id = 0; id < this.association.streamCount; id += 1) {
      if (this.#streams[id] === undefined) return this.#make(id, onGone);
    }
    return undefined;
  }

  /** The session on a stream, or the only session. */
  sessionOn(streamId: number | undefined): SctpLink | undefined {
    if (streamId !== undefined) return this.#streams[streamId]?.link;
    return this.#links.length === 1 ? this.#links[0] : undefined;
  }

  /** Ends the association, and with it its sessions, if any. */
  close(): void {
    if (this.#closing || this.#ended) return;
    this.#closing = true;
    this.#idleAlarm?.cancel();
    this.#setPaused(false);
    this.association.shutdown();
    this.#idleAlarm = this.#host.after(CLOSE_MICROS, () => this.#giveUp());
  }

  /** No more sessions will be begun: the association ends with the last one. */
  expire(): void {
    this.#expired = true;
    if (this.idle) this.close();
  }

  /** Aborts the association, which has no session. */
  abort(): void {
    if (this.#ended) return;
    this.association.abort();
    this.#end(undefined);
  }

  /** True if no session is open. */
  get idle(): boolean {
    return this.#links.length === 0;
  }

  // Calls of links, in the terms of links

  soon(run: () => void): void {
    this.#host.soon(run);
  }

  send(link: SctpLink, kind: MessageKind, bytes: Uint8Array): boolean {
    if (this.#waiting.length > 0 || !this.#put(link, kind, bytes)) {
      this.#waiting.push(link);
      return false;
    }
    return true;
  }

  pause(): void {
    if (!this.#several) this.#setPaused(true);
  }

  resume(): void {
    if (this.#full === 0) this.#setPaused(false);
  }

  setFull(full: boolean): void {
    this.#full += full ? 1 : -1;
    this.#setPaused(this.#full > 0);
  }

  get keepsReading(): boolean {
    return this.#several;
  }

  endsWith(link: SctpLink): boolean {
    return this.#options.idleMicros === undefined && this.#isAlone(link);
  }

  get proven(): boolean {
    return this.#proven === this.#sends;
  }

  awaitProof(): void {
    if (this.#several) this.#proofAlarm ??= this.#host.after(PROOF_MICROS, this.#handleUnproven);
  }

  cut(link: SctpLink): void {
    if (!this.#isAlone(link)) {
      const stream = this.#streams[link.streamId];
      // No segments are expected before both ends have sent a message.
      if (stream?.link === link && !stream.ended) {
        stream.pendingCut = stream.sent > 0 && stream.received > 0;
      }
      this.leave(link);
      return;
    }
    this.association.abort();
    remove(this.#links, link);
    link.handleGone();
    this.#end(undefined);
  }

  leave(link: SctpLink): void {
    remove(this.#links, link);
    remove(this.#waiting, link);
    link.handleGone();
    if (this.#ended) return;
    const { streamId } = link;
    const stream = this.#streams[streamId];
    if (stream?.link === link) {
      stream.link = undefined;
      stream.pendingTerminate = !stream.ended;
      // Neither end has sent a message.
      if (stream.sent + stream.received === 0) this.#streams[streamId] = undefined;
      this.#settle(streamId);
    }
    this.resume();
    if (this.#links.length > 0) return;
    // Do not wait for a peer that has never begun a session.
    if (this.#used) this.#startIdling();
    else this.close();
  }

  // AssociationUser

  handleMessage(
    streamId: number,
    payloadProtocol: number,
    _unordered: boolean,
    bytes: Uint8Array,
  ): void {
    // The stream has no opposite direction.
    if (streamId >= this.association.streamCount) return;
    this.#used = true;
    const code = controlCode(payloadProtocol, bytes);
    const isFirst = isInitiate(code) && readUint16(bytes, 0) === 0;
    const before = this.#streams[streamId];
    if (isFirst && (before === undefined || isOver(before))) {
      this.#admit(streamId);
    } else if (before === undefined) {
      if (code !== SessionFunction.terminate) this.#refuse(streamId);
    } else {
      before.received += 1;
      if (isLast(code)) noteLast(before, code, bytes);
    }
    const link = this.#streams[streamId]?.link;
    if (link === undefined) this.#settle(streamId);
    else link.handleMessage(payloadProtocol, bytes);
  }

  handleWritable(): void {
    for (let id = 0; id < this.#streams.length; id += 1) this.#settle(id);
    this.#serveWaiting();
  }

  handleAcknowledged(): void {
    const before = this.#proven;
    this.#proven = this.#sends;
    this.#barred = false;
    this.#proofAlarm?.cancel();
    this.#proofAlarm = undefined;
    for (let id = 0; id < this.#streams.length; id += 1) this.#settle(id);
    for (let index = this.#links.length - 1; index >= 0; index -= 1) {
      const link = this.#links[index];
      if (link === undefined) continue;
      const sent = this.#streams[link.streamId]?.lastSend ?? 0;
      if (link.closing || sent > before) link.handleAcknowledged();
    }
    this.#serveWaiting();
  }

  handlePathChanged(): void {
    for (const link of [...this.#links]) link.user.handlePathChanged?.();
  }

  /** The end follows, once queued messages have been sent. */
  handlePeerShutdown(): void {
    this.#closing = true;
  }

  // SCTP-11.3-01
  handleEnded({ kind, code }: AssociationEnd): void {
    if (kind === 'shutdown') this.#end(undefined);
    else this.#end(code ?? 'ECONNRESET');
  }

  // Sessions

  #make(streamId: number, onGone: (() => void) | undefined): SctpLink {
    this.#idleAlarm?.cancel();
    this.#idleAlarm = undefined;
    const link = new SctpLink(this, streamId, onGone);
    this.#streams[streamId] = new Stream(link);
    this.#links.push(link);
    if (this.#links.length > 1 && !this.#several) {
      this.#several = true;
      // Links that take no input hold it from now on.
      this.#setPaused(false);
    }
    return link;
  }

  /** Accepts or refuses a session that the peer begins. */
  #admit(streamId: number): void {
    const { onSession } = this.#options;
    if (onSession === undefined || this.#closing) {
      this.#refuse(streamId);
      return;
    }
    const link = this.#make(streamId, undefined);
    const stream = this.#streams[streamId];
    if (stream !== undefined) stream.received = 1;
    onSession(link);
  }

  // SCTP-6.1-02, SCTP-5.2.3-06
  /** Answers a message that belongs to no session with a Terminate: once, until that is acknowledged. */
  #refuse(streamId: number): void {
    if (this.#streams[streamId] !== undefined) return;
    const stream = new Stream(undefined);
    stream.pendingTerminate = true;
    // The peer sends nothing more.
    stream.peerLast = 0;
    stream.received = 1;
    this.#streams[streamId] = stream;
    this.#settle(streamId);
  }

  /** Sends the Terminate of a session without a user, and frees its stream once everything has arrived. */
  #settle(streamId: number): void {
    const stream = this.#streams[streamId];
    if (stream === undefined || stream.link !== undefined) return;
    // SCTP-6.6-01
    if (stream.pendingTerminate) {
      const unproven = stream.lastControl > this.#proven;
      if (unproven || !this.#tellCut(streamId, stream) || !this.#terminate(streamId, stream)) {
        this.awaitProof();
        return;
      }
    }
    // SCTP-6.6-03
    if (isOver(stream) && stream.lastSend <= this.#proven) this.#streams[streamId] = undefined;
    else if (stream.lastSend > this.#proven) this.awaitProof();
  }

  #tellCut(streamId: number, stream: Stream): boolean {
    if (!stream.pendingCut) return true;
    const bytes = makeCutMessage(stream.sent & SSN_MASK);
    if (!this.association.send(streamId, SEGMENT, bytes)) return false;
    stream.pendingCut = false;
    this.#noteSent(stream, PayloadProtocol.segment, bytes);
    return true;
  }

  #terminate(streamId: number, stream: Stream): boolean {
    const ssn = stream.sent & SSN_MASK;
    const bytes = Uint8Array.of(ssn >> 8, ssn & 0xff, 0, SessionFunction.terminate);
    if (!this.association.send(streamId, CONTROL, bytes)) return false;
    stream.pendingTerminate = false;
    this.#noteSent(stream, PayloadProtocol.sessionControl, bytes);
    return true;
  }

  #put(link: SctpLink, kind: MessageKind, bytes: Uint8Array): boolean {
    const stream = this.#streams[link.streamId];
    // The peer has begun another session, so this message belongs to none.
    if (stream?.link !== link) return true;
    if (this.#barred) return false;
    if (!this.association.send(link.streamId, kind, bytes)) return false;
    this.#noteSent(stream, kind.payloadProtocol, bytes);
    return true;
  }

  #noteSent(stream: Stream, payloadProtocol: number, bytes: Uint8Array): void {
    this.#used = true;
    this.#sends += 1;
    stream.sent += 1;
    stream.lastSend = this.#sends;
    if (payloadProtocol === PayloadProtocol.segment) return;
    stream.lastControl = this.#sends;
    this.awaitProof();
    if (!isLast(controlCode(payloadProtocol, bytes))) return;
    stream.ended = true;
    // Neither a Reject nor a refusal is answered.
    if (stream.sent === 1 && stream.peerLast < 0)
      stream.peerLast = (stream.received - 1) & SSN_MASK;
  }

  /** An acknowledgement is overdue while other sessions keep sending: pause them. */
  readonly #handleUnproven = (): void => {
    this.#proofAlarm = undefined;
    if (this.proven || this.#ended) return;
    this.#barred =
      this.#links.some((link) => link.closing) ||
      this.#streams.some(
        (stream) =>
          stream !== undefined && (stream.pendingTerminate || stream.lastControl > this.#proven),
      );
  };

  #serveWaiting(): void {
    while (this.#waiting.length > 0 && !this.#barred) {
      const link = this.#waiting[0] as SctpLink;
      const { rest } = link;
      if (rest !== undefined && !this.#put(link, link.restKind, rest)) return;
      this.#waiting.shift();
      link.handleSent();
    }
  }

  // The association

  /** True if no other session is open. */
  #isAlone(link: SctpLink): boolean {
    if (this.#links.some((other) => other !== link)) return false;
    return this.#streams.every(
      (stream) =>
        stream === undefined ||
        stream.link === link ||
        (!stream.pendingTerminate && stream.lastSend <= this.#proven),
    );
  }

  #setPaused(paused: boolean): void {
    if (paused === this.#paused) return;
    this.#paused = paused;
    if (paused) this.association.pauseReading();
    else this.association.resumeReading();
  }

  #startIdling(): void {
    const { idleMicros } = this.#options;
    if (this.#closing || this.#idleAlarm !== undefined) return;
    if (idleMicros === undefined || this.#expired) this.close();
    else this.#idleAlarm = this.#host.after(idleMicros, () => this.close());
  }

  #giveUp(): void {
    if (this.#ended) return;
    this.association.abort();
    this.#end('ETIMEDOUT');
  }

  #end(code: string | undefined): void {
    this.#ended = true;
    this.#proofAlarm?.cancel();
    this.#idleAlarm?.cancel();
    this.#waiting.length = 0;
    const links = this.#links.splice(0);
    this.#host.handleGone(this);
    this.#options.onGone?.();
    for (const link of links) link.handleEnded(code);
  }
}

/** True once both ends have sent all their messages, and all of the peer's were received. */
function isOver({ ended, peerLast, received }: Stream): boolean {
  return ended && peerLast >= 0 && ((received - 1) & SSN_MASK) === peerLast;
}

/** Records the peer's last message of a session. Earlier ones may arrive later. */
function noteLast(stream: Stream, code: number, bytes: Uint8Array): void {
  const ssn = readUint16(bytes, 0);
  stream.peerLast = ssn;
  // It answers our Initiate, and we send nothing after it.
  const isRefusal = ssn === 0 && stream.received === 1;
  if (code !== SessionFunction.terminate || isRefusal) stream.ended = true;
}

/** The function code of a control message; 0 for any other message. */
function controlCode(payloadProtocol: number, bytes: Uint8Array): number {
  const isControl = payloadProtocol === PayloadProtocol.sessionControl;
  return isControl && bytes.length >= CONTROL_BYTES ? readUint16(bytes, 2) : 0;
}

function isInitiate(code: number): boolean {
  return code === SessionFunction.initiate || code === SessionFunction.enhancedInitiate;
}

/** True for messages after which their sender sends nothing. */
function isLast(code: number): boolean {
  return (
    code === SessionFunction.terminate ||
    code === SessionFunction.reject ||
    code === SessionFunction.enhancedReject
  );
}

function remove(links: SctpLink[], link: SctpLink): void {
  const at = links.indexOf(link);
  if (at >= 0) links.splice(at, 1);
}
