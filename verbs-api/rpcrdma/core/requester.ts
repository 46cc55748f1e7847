/**
 * The requester's side of a connection (RFC 8166 §3 and §4, with RFC 5666 where the options say
 * so): when a call may be sent, what travels inline and what as chunks, what a reply means, and
 * what happens to calls on a timeout or a lost connection.
 *
 * Commands and inputs are methods; `pollEffect` returns the resulting actions in order, then
 * undefined. Time is in milliseconds of any monotonic clock.
 *
 * The caller owns registered memory: `expose` asks for it, `exposed` reports its location,
 * `withdraw` asks to end the peer's access, `withdrawn` reports that it ended. A call completes
 * only after that (RFC 8166 §4.4.1).
 */
import { callMessage, type Exposed } from './call-message.ts';
import { type CallPlan, planCall } from './call-plan.ts';
import { readChunksOf } from './chunks.ts';
import { CreditWindow } from './credits.ts';
import type { InlineThresholds } from './private-data.ts';
import { failure, isReply, replyContents } from './reply-contents.ts';
import {
  type CallOutcome,
  type CallRequest,
  type ExposedRegion,
  RequesterCounters,
  type RequesterEffect,
  type RequesterOptions,
} from './requester-types.ts';
import {
  type ErrorHeader,
  type MessageHeader,
  type PaddedHeader,
  parseTransportHeader,
  type TransportHeader,
} from './transport-header.ts';
import type { Payload } from './xdr-writer.ts';

type CallState =
  /** Waits for a credit or a connection. */
  | { readonly type: 'queued' }
  | { readonly type: 'exposing'; readonly plan: CallPlan }
  | { readonly type: 'sent'; readonly exposed: Exposed }
  /** A reply by read list is being pulled. */
  | { readonly type: 'pulling'; readonly exposed: Exposed; readonly header: MessageHeader }
  /** The peer's access is ending; then the call completes or is queued again. */
  | { readonly type: 'withdrawing'; readonly next: CallOutcome | 'queued' };

interface Call {
  readonly xid: number;
  readonly request: CallRequest;
  state: CallState;
  /** How often the call was sent. */
  sends: number;
  /** Its position in the sequence of everything sent. */
  sentAt: number;
  /** Holds a credit of the current connection. */
  holdsCredit: boolean;
  hasRegions: boolean;
}

/** The state of the connection that calls depend on. */
type Connection =
  | { readonly type: 'idle' }
  | { readonly type: 'connecting' }
  | { readonly type: 'waiting'; readonly untilMs: number }
  | {
      readonly type: 'ready';
      readonly thresholds: InlineThresholds;
      readonly readsServed: boolean;
    }
  | { readonly type: 'disconnecting' }
  | { readonly type: 'closed' };

const NOTHING: Payload = { stream: new Uint8Array(0), items: [], lengthBytes: 0 };
/** Limits of a reply's read list, which only RFC 5666 has. */
const REPLY_LIMITS = { segmentsMax: 64, readBytesMax: 1 << 22 };

export class Requester {
  readonly #options: Required<RequesterOptions>;
  readonly #credits: CreditWindow;
  readonly #calls = new Map<number, Call>();
  /** Waiting calls in FIFO order; calls to be resent come first. */
  readonly #queue: Call[] = [];
  /** Calls that were given up but whose reply may still arrive: each holds its credit. */
  readonly #abandoned = new Set<number>();
  readonly #effects: RequesterEffect[] = [];
  #connection: Connection = { type: 'idle' };
  #failedConnects = 0;
  #nextDeadlineMs = Number.POSITIVE_INFINITY;
  #sequence = 0;
  /**
   * RDMA_DONEs that are still to be sent or may still occupy a receive of the server: XID →
   * sequence number when sent, or infinity if not yet sent.
   */
  readonly #dones = new Map<number, number>();
  readonly counters = new RequesterCounters();

  constructor(options: RequesterOptions = {}) {
    this.#options = {
      credits: 32,
      segmentBytesMax: 0xffff_ffff,
      sendsMax: 3,
      connectsMax: 5,
      reconnectDelayMs: 100,
      readListReplies: false,
      ...options,
    };
    this.#credits = new CreditWindow(this.#options.credits);
  }

  // Commands

  /** Connects before the first call. */
  open(): void {
    if (this.#connection.type === 'idle') this.#connect();
  }

  /**
   * Makes a call. Its XID is the first word of the payload and must be unused. The call completes
   * once, by an effect.
   */
  call(xid: number, request: CallRequest): void {
    const call: Call = {
      xid,
      request,
      state: { type: 'queued' },
      sends: 0,
      sentAt: 0,
      holdsCredit: false,
      hasRegions: false,
    };
    this.#calls.set(xid, call);
    if (this.#connection.type === 'closed') {
      this.#finish(call, failure('closed', 'the client is closed', false));
      return;
    }
    this.#nextDeadlineMs = Math.min(this.#nextDeadlineMs, request.deadlineMs);
    this.#queue.push(call);
    if (this.#connection.type === 'idle') this.#connect();
    this.#advance();
  }

  /** True while a call, or the reply memory of an abandoned call, uses this XID. */
  uses(xid: number): boolean {
    return this.#calls.has(xid) || this.#abandoned.has(xid);
  }

  /** Aborts a call; no effect on a completed one. */
  abort(xid: number, text: string): void {
    const call = this.#calls.get(xid);
    if (call === undefined) return;
    this.#giveUp(call, 'aborted', text);
    this.#advance();
  }

  /** Changes the number of credits to request from the next call on, at least 1. */
  requestCredits(credits: number): void {
    this.#credits.request(credits);
    this.#advance();
  }

  close(): void {
    const before = this.#connection.type;
    if (before === 'closed') return;
    this.#connection = { type: 'closed' };
    for (const call of [...this.#calls.values()]) {
      this.#conclude(call, failure('closed', 'the client was closed', call.sends > 0));
    }
    this.#queue.length = 0;
    if (before === 'ready' || before === 'connecting') {
      this.#effects.push({ type: 'disconnect', text: 'the client was closed' });
    }
  }

  // Inputs

  /**
   * A connection was established with these thresholds. `readsServed`: whether the peer may read
   * our memory; false when no inbound reads were negotiated.
   */
  connected(thresholds: InlineThresholds, readsServed = true): void {
    if (this.#connection.type !== 'connecting') return;
    this.#failedConnects = 0;
    this.counters.connections += 1;
    this.#connection = { type: 'ready', thresholds, readsServed };
    this.#credits.reset();
    this.#dones.clear();
    this.#abandoned.clear();
    this.#advance();
  }

  /** The connection ended or failed to establish. Its memory must still be withdrawn. */
  disconnected(nowMs: number, text: string): void {
    if (this.#connection.type === 'closed') return;
    const connecting = this.#connection.type === 'connecting';
    this.#connection = { type: 'idle' };
    this.#abandoned.clear();
    // Last one first, since each goes to the head of the queue.
    for (const call of [...this.#calls.values()].reverse()) {
      call.holdsCredit = false;
      if (call.state.type === 'queued' || call.state.type === 'withdrawing') continue;
      // RPCR-8-01 Resends calls the server cannot have seen, and others only if they are
      // idempotent: RPC over RDMA has no retransmission.
      const replay =
        call.sends === 0 || (call.request.idempotent && call.sends < this.#options.sendsMax);
      this.#conclude(call, replay ? 'queued' : failure('connectionLost', text, true));
    }
    if (connecting) this.#failedConnects += 1;
    if (this.#failedConnects >= this.#options.connectsMax) {
      this.#failedConnects = 0;
      for (const call of this.#queue.splice(0)) {
        this.#finish(call, failure('connectionLost', text, call.sends > 0));
      }
      return;
    }
    if (this.#failedConnects > 0) {
      const waitMs = this.#options.reconnectDelayMs * 2 ** (this.#failedConnects - 1);
      this.#connection = { type: 'waiting', untilMs: nowMs + waitMs };
      this.#nextDeadlineMs = Math.min(this.#nextDeadlineMs, nowMs + waitMs);
      return;
    }
    if (this.#calls.size > 0) this.#connect();
  }

  /** The regions of a call are registered, in the order of the `expose` effect. */
  exposed(xid: number, regions: readonly ExposedRegion[]): void {
    const call = this.#calls.get(xid);
    if (call === undefined) return;
    this.counters.exposed += regions.length;
    if (call.state.type !== 'exposing') return;
    this.#transmit(call, call.state.plan, regions);
  }

  /** The regions of a call cannot be registered. The call fails; nothing was sent. */
  exposeFailed(xid: number, text: string): void {
    const call = this.#calls.get(xid);
    if (call?.state.type !== 'exposing') return;
    // RPCR2-6.2-01 Without room for the reply the call must not be sent.
    this.#conclude(call, failure('unfit', text, false));
    this.#advance();
  }

  /** The peer no longer has access to the call's regions. */
  withdrawn(xid: number): void {
    const call = this.#calls.get(xid);
    if (call?.state.type !== 'withdrawing') return;
    const { next } = call.state;
    call.hasRegions = false;
    if (next === 'queued') {
      this.#requeue(call);
      if (this.#connection.type === 'idle') this.#connect();
    } else {
      this.#finish(call, next);
    }
    this.#advance();
  }

  /** The access could not be withdrawn: RPCR2-4.5.4-01 ending the connection ends it. */
  withdrawFailed(xid: number, text: string): void {
    this.#disconnect(`memory of call ${hex(xid)} could not be withdrawn: ${text}`);
    this.withdrawn(xid);
  }

  /**
   * A message from the peer. It is kept until the call completes if it holds a reply: pass a copy
   * if the receive buffer will be reused.
   */
  handleMessage(bytes: Uint8Array): void {
    const parsed = parseTransportHeader(bytes);
    // RPCR2-4.5-02 A requester does not respond to unparsable messages.
    if ('error' in parsed) {
      this.counters.discarded += 1;
      return;
    }
    const { header, headerBytes } = parsed;
    const payload = bytes.subarray(headerBytes);
    const taken = this.#handleParsed(header, payload);
    if (!taken) this.counters.discarded += 1;
    this.#advance();
  }

  /** The chunks of a reply were read, in the order of the `pull` effect. */
  pulled(xid: number, chunks: readonly Uint8Array[]): void {
    const call = this.#calls.get(xid);
    if (call?.state.type !== 'pulling') return;
    const { exposed, header } = call.state;
    // RPCR-3.5-04 The server keeps the reply's memory until it receives this.
    this.#effects.push({
      type: 'transmit',
      xid,
      header: { type: 'done', xid, credits: this.#credits.requested },
      payload: NOTHING,
    });
    this.#sequence += 1;
    this.#dones.set(xid, this.#sequence);
    const [reply] = chunks;
    if (reply === undefined) {
      this.#conclude(call, failure('badReply', 'the read list contains no reply', true));
    } else {
      this.#conclude(call, replyContents(header, exposed, reply));
    }
    this.#advance();
  }

  /** The time is now `nowMs`; see `nextDeadlineMs`. */
  handleDeadline(nowMs: number): void {
    if (nowMs < this.#nextDeadlineMs) return;
    for (const call of [...this.#calls.values()]) {
      if (call.state.type === 'withdrawing' || call.request.deadlineMs > nowMs) continue;
      this.#giveUp(call, 'timeout', 'no reply in time');
    }
    const connection = this.#connection;
    if (connection.type === 'waiting' && connection.untilMs <= nowMs) {
      if (this.#calls.size > 0) this.#connect();
      else this.#connection = { type: 'idle' };
    }
    this.#nextDeadlineMs = this.#earliest();
    this.#advance();
  }

  // Outputs

  pollEffect(): RequesterEffect | undefined {
    return this.#effects.shift();
  }

  /** The latest time to call `handleDeadline`; infinity for never. */
  get nextDeadlineMs(): number {
    return this.#nextDeadlineMs;
  }

  get callCount(): number {
    return this.#calls.size;
  }

  /** Unanswered calls, including abandoned ones. */
  get inFlight(): number {
    return this.#credits.inFlight;
  }

  // Sending

  #connect(): void {
    this.#connection = { type: 'connecting' };
    this.#effects.push({ type: 'connect' });
  }

  #disconnect(text: string): void {
    if (this.#connection.type !== 'ready') return;
    this.#connection = { type: 'disconnecting' };
    this.#effects.push({ type: 'disconnect', text });
  }

  /** RPCR-3.3-05 Sends waiting calls while credits last. */
  #advance(): void {
    while (this.#connection.type === 'ready' && this.#creditFree()) {
      const call = this.#queue.shift();
      if (call === undefined) return;
      const plan = planCall(
        call.request,
        this.#connection.thresholds,
        this.#options.segmentBytesMax,
      );
      const regions = plan.regions.length > 0;
      const reads = regions && plan.regions.some((region) => region.kind === 'source');
      // RPCR-6.2-08 No read chunks for a peer that cannot read.
      if (reads && !this.#connection.readsServed) {
        this.#finish(call, failure('unfit', 'the call needs RDMA Reads: none negotiated', false));
        continue;
      }
      this.#credits.take();
      call.holdsCredit = true;
      if (!regions) {
        this.#transmit(call, plan, []);
        continue;
      }
      call.state = { type: 'exposing', plan };
      call.hasRegions = true;
      this.#effects.push({ type: 'expose', xid: call.xid, regions: plan.regions });
    }
  }

  #creditFree(): boolean {
    if (!this.#credits.open) return false;
    // RPCR-3.8-06 An RDMA_DONE uses a receive as a call does. Keep one credit for a call, since
    // only a reply shows that the server has reposted its receives.
    const granted = this.#creditsTotal;
    return this.#credits.inFlight + Math.min(this.#dones.size, granted - 1) < granted;
  }

  #transmit(call: Call, plan: CallPlan, memory: readonly ExposedRegion[]): void {
    const { xid } = call;
    const credits = this.#credits.requested;
    const { segmentBytesMax } = this.#options;
    const { header, exposed } = callMessage({ xid, credits, plan, memory, segmentBytesMax });
    call.sends += 1;
    this.#sequence += 1;
    call.sentAt = this.#sequence;
    this.counters.sent += 1;
    call.state = { type: 'sent', exposed };
    this.#effects.push({ type: 'transmit', xid, header, payload: plan.payload });
  }

  get #creditsTotal(): number {
    return Math.min(this.#credits.granted, this.#credits.requested);
  }

  // Replies

  /** Returns false when the message does not belong to a call. */
  #handleParsed(header: TransportHeader, payload: Uint8Array): boolean {
    switch (header.type) {
      case 'done':
        return false;
      case 'msgp':
        // RPCR2-4.6.1-01 Discarded unless RFC 5666 was requested.
        if (!this.#options.readListReplies) return false;
        break;
      case 'error':
        return this.#handleError(header.xid, header);
      default:
    }
    // A reverse-direction call says nothing about our calls or credits (RPCB-4.1-02).
    if (header.type !== 'nomsg' && !isReply(payload)) return false;
    const call = this.#answered(header.xid, header.credits);
    if (call === 'abandoned') return true;
    if (call?.state.type !== 'sent') return false;
    const { exposed } = call.state;
    if (header.readList.length > 0) return this.#pullReply(call, exposed, header);
    this.#conclude(call, replyContents(header, exposed, payload));
    return true;
  }

  /** The call that this reply answers; frees its credit. */
  #answered(xid: number, credits: number): Call | 'abandoned' | undefined {
    const call = this.#calls.get(xid);
    const sent = call?.state.type === 'sent';
    if (!sent && !this.#abandoned.has(xid)) return undefined;
    this.counters.replies += 1;
    this.#credits.grant(credits);
    this.#credits.giveBack();
    if (call === undefined || !sent) {
      this.#abandoned.delete(xid);
      return 'abandoned';
    }
    // A reply proves that everything sent before its call has left the server's receives.
    for (const [done, sentAt] of this.#dones) {
      if (sentAt < call.sentAt) this.#dones.delete(done);
    }
    call.holdsCredit = false;
    return call;
  }

  #handleError(xid: number, header: ErrorHeader): boolean {
    // RPCR2-4.5-04 Drop what cannot be understood.
    if (header.error.code === 'other') return false;
    const call = this.#answered(xid, header.credits);
    if (call === 'abandoned') return true;
    if (call === undefined) return false;
    const outcome =
      header.error.code === 'version'
        ? failure('ERR_VERS', `the server supports versions ${range(header.error)}`, false)
        : // RFC 8166 §4.5.3: unknown whether the server executed it.
          failure('ERR_CHUNK', 'the server could not use the chunks', true);
    this.#conclude(call, outcome);
    return true;
  }

  /** RFC 5666 §3.5: the reply or some of its results are in the server's memory. */
  #pullReply(call: Call, exposed: Exposed, header: MessageHeader | PaddedHeader): boolean {
    const chunks = readChunksOf(header.readList, REPLY_LIMITS);
    if (
      !this.#options.readListReplies ||
      header.type !== 'nomsg' ||
      typeof chunks === 'string' ||
      chunks.length !== 1 ||
      chunks[0]?.position !== 0
    ) {
      // RPCR2-4.3.1-01 The call is answered, even though the reply cannot be used.
      this.#conclude(call, failure('badReply', 'the reply has a read list', true));
      return true;
    }
    this.#dones.set(call.xid, Number.POSITIVE_INFINITY);
    call.state = { type: 'pulling', exposed, header };
    this.#effects.push({ type: 'pull', xid: call.xid, chunks });
    return true;
  }

  // Ends

  #giveUp(call: Call, reason: 'timeout' | 'aborted', text: string): void {
    if (call.state.type === 'withdrawing') return;
    if (call.state.type === 'queued') {
      this.#queue.splice(this.#queue.indexOf(call), 1);
    }
    const sent = call.state.type === 'sent';
    this.#dones.delete(call.xid);
    if (sent && call.holdsCredit) {
      this.#abandoned.add(call.xid);
      call.holdsCredit = false;
    }
    this.#conclude(call, failure(reason, text, call.sends > 0));
    // If unanswered abandoned calls held every credit, nothing could ever be sent again.
    if (this.#abandoned.size > 0 && this.#abandoned.size >= this.#creditsTotal) {
      this.#disconnect('the server does not answer calls');
    }
  }

  /** Ends the peer's access, if any, before the call completes or is queued again. */
  #conclude(call: Call, next: CallOutcome | 'queued'): void {
    if (call.holdsCredit) {
      call.holdsCredit = false;
      this.#credits.giveBack();
    }
    if (call.state.type === 'withdrawing') {
      call.state = { type: 'withdrawing', next };
      return;
    }
    if (call.hasRegions) {
      call.state = { type: 'withdrawing', next };
      this.#effects.push({ type: 'withdraw', xid: call.xid });
    } else if (next === 'queued') {
      this.#requeue(call);
    } else {
      this.#finish(call, next);
    }
  }

  #requeue(call: Call): void {
    call.state = { type: 'queued' };
    this.#nextDeadlineMs = Math.min(this.#nextDeadlineMs, call.request.deadlineMs);
    this.#queue.unshift(call);
  }

  #finish(call: Call, outcome: CallOutcome): void {
    this.#calls.delete(call.xid);
    this.#effects.push({ type: 'complete', xid: call.xid, outcome });
  }

  #earliest(): number {
    let earliest =
      this.#connection.type === 'waiting' ? this.#connection.untilMs : Number.POSITIVE_INFINITY;
    for (const call of this.#calls.values()) {
      if (call.state.type === 'withdrawing') continue;
      earliest = Math.min(earliest, call.request.deadlineMs);
    }
    return earliest;
  }
}

function range(versions: { readonly low: number; readonly high: number }): string {
  return `${versions.low} to ${versions.high}`;
}

function hex(xid: number): string {
  return `0x${xid.toString(16)}`;
}
