/**
 * The responder's side of a connection (RFC 8166 §3 and §4, with RFC 5666 where the options say so):
 * which messages are calls, what must be read before a call can be executed, and how its reply travels.
 *
 * Inputs are methods; `pollEffect` returns the resulting actions in order, then undefined. Time is in
 * milliseconds of any monotonic clock. Discard the responder when the connection ends: it keeps no
 * state beyond it.
 */
import { type ReadChunk, ReadChunkSource, readChunksOf, writeChunksError } from './chunks.ts';
import type { InlineThresholds } from './private-data.ts';
import { replyPlan } from './reply-plan.ts';
import {
  ResponderCounters,
  type ResponderEffect,
  type ResponderOptions,
} from './responder-types.ts';
import { MessageType } from './rpc-message.ts';
import {
  type ChunkLists,
  type MessageHeader,
  type PaddedHeader,
  parseTransportHeader,
  RPCRDMA_VERSION,
  type Segment,
  type TransportError,
} from './transport-header.ts';
import { type BulkSource, wordAt, XdrReader } from './xdr-reader.ts';
import type { Payload } from './xdr-writer.ts';

type CallState =
  /** Waits for others to release memory. */
  | { readonly type: 'waiting' }
  | { readonly type: 'pulling'; readonly deadlineMs: number }
  | { readonly type: 'running' }
  /** The reply's memory is being registered. */
  | { readonly type: 'exposing' }
  | { readonly type: 'replying'; readonly deadlineMs: number; readonly undone: boolean }
  /** The peer has the reply but has not confirmed reading it. */
  | { readonly type: 'undone'; readonly deadlineMs: number };

interface Call {
  readonly number: number;
  readonly xid: number;
  readonly version: number;
  readonly receive: number;
  readonly lists: ChunkLists;
  readonly header: MessageHeader | PaddedHeader | undefined;
  readonly chunks: readonly ReadChunk[];
  /** The message after the header. */
  readonly payload: Uint8Array;
  pulledBytes: number;
  undoneBytes: number;
  state: CallState;
}

const NO_LISTS: ChunkLists = { readList: [], writeList: [], replyChunk: undefined };
const EMPTY = new Uint8Array(0);
const NOTHING: Payload = { stream: EMPTY, items: [], lengthBytes: 0 };
const CHUNK_ERROR: TransportError = { code: 'chunk' };
/** Bytes of XID and message type. */
const MESSAGE_START_BYTES = 8;

export class Responder {
  readonly #thresholds: InlineThresholds;
  readonly #options: Required<ResponderOptions>;
  readonly #canRead: boolean;
  readonly #calls = new Map<number, Call>();
  readonly #waiting: Call[] = [];
  readonly #effects: ResponderEffect[] = [];
  #nextCall = 0;
  #pulledBytes = 0;
  #undoneBytes = 0;
  #nextDeadlineMs = Number.POSITIVE_INFINITY;
  readonly counters = new ResponderCounters();

  /** `canRead`: false if no outbound RDMA Reads were negotiated. */
  constructor(thresholds: InlineThresholds, options: ResponderOptions = {}, canRead = true) {
    this.#thresholds = thresholds;
    this.#options = {
      credits: 32,
      limits: { segmentsMax: 64, readBytesMax: 4 << 20 },
      pulledBytesMax: 32 << 20,
      stallTimeoutMs: 30_000,
      readListReplies: false,
      doneTimeoutMs: 5000,
      undoneBytesMax: 16 << 20,
      ...options,
    };
    this.#canRead = canRead;
  }

  // Inputs

  /** A message from the peer in receive buffer `receive`, which is in use until reposted. */
  handleMessage(bytes: Uint8Array, receive: number, nowMs: number): void {
    const parsed = parseTransportHeader(bytes);
    if ('error' in parsed) {
      // RPCR2-4.5-01 Not even the XID of such a message can be trusted.
      if (parsed.error === 'short') {
        this.#discard(receive);
        return;
      }
      const call = this.#newCall(parsed.xid, parsed.version, receive);
      this.#sendError(call, parsed.error === 'version' ? VERSION_ERROR : CHUNK_ERROR, nowMs);
      return;
    }
    const { header, headerBytes } = parsed;
    switch (header.type) {
      case 'error':
        // RPCR2-4.2.4-02 A requester has no errors to report.
        this.#discard(receive);
        return;
      case 'done':
        this.#handleDone(header.xid, nowMs);
        this.#discard(receive);
        return;
      default:
        this.#handleCall(header, bytes.subarray(headerBytes), receive, nowMs);
    }
  }

  /** The chunks of a call were read, in the order of the `pull` effect. */
  pulled(number: number, chunks: readonly Uint8Array[], nowMs: number): void {
    const call = this.#calls.get(number);
    if (call?.state.type !== 'pulling') return;
    this.counters.pulledBytes += call.pulledBytes;
    const items = call.chunks.map((chunk, i) => ({
      position: chunk.position,
      bytes: chunks[i] ?? EMPTY,
    }));
    const whole = call.header?.type === 'nomsg' ? items.shift()?.bytes : undefined;
    const stream = whole ?? call.payload;
    if (whole !== undefined && messageKind(stream, call.xid) !== 'call') {
      this.#sendError(call, CHUNK_ERROR, nowMs);
      return;
    }
    this.#dispatch(call, stream, items.length === 0 ? undefined : new ReadChunkSource(items));
  }

  /** The reply of a call. It must not change until the call is released. */
  reply(number: number, payload: Payload, nowMs: number): void {
    const call = this.#calls.get(number);
    if (call?.state.type !== 'running') return;
    const plan = replyPlan(payload, call.lists, this.#thresholds.replyBytes);
    if (plan !== undefined) {
      for (const { bytes, writes, lengthBytes } of plan.pushes) {
        this.counters.pushedBytes += lengthBytes;
        this.#effects.push({ type: 'push', call: number, bytes, writes });
      }
      const { xid, credits } = this.#words(call);
      const { readList, writeList, replyChunk } = plan.lists;
      const header = { type: plan.type, xid, credits, readList, writeList, replyChunk };
      this.#transmit(call, header, plan.payload, false, nowMs);
      return;
    }
    if (this.#mayExpose(payload.lengthBytes)) {
      this.#undoneBytes += payload.lengthBytes;
      call.undoneBytes = payload.lengthBytes;
      call.state = { type: 'exposing' };
      this.#effects.push({ type: 'expose', call: number, payload });
      return;
    }
    // RPCR-3.4-05 Detected before sending a message the peer could not receive, or writing past its
    // memory.
    this.#sendError(call, CHUNK_ERROR, nowMs);
  }

  /**
   * The dispatched message is not a call, or its reply cannot be produced or registered:
   * RPCR-4.2-05 the client gets an error.
   */
  refuse(number: number, nowMs: number): void {
    const call = this.#calls.get(number);
    if (call?.state.type !== 'running' && call?.state.type !== 'exposing') return;
    this.#sendError(call, CHUNK_ERROR, nowMs);
  }

  /** The payload of an `expose` effect is registered. */
  exposed(number: number, memory: Segment, nowMs: number): void {
    const call = this.#calls.get(number);
    if (call?.state.type !== 'exposing') return;
    const readList = [{ position: 0, ...memory }];
    const lists = { ...NO_LISTS, readList };
    this.#transmit(call, { type: 'nomsg', ...this.#words(call), ...lists }, NOTHING, true, nowMs);
  }

  /** A `transmit` effect and everything before it has been sent. */
  sent(number: number, nowMs: number): void {
    const call = this.#calls.get(number);
    if (call?.state.type !== 'replying') return;
    if (call.state.undone) {
      const deadlineMs = this.#due(nowMs + this.#options.doneTimeoutMs);
      call.state = { type: 'undone', deadlineMs };
      return;
    }
    this.#release(call, nowMs);
  }

  /** The time is now `nowMs`; see `nextDeadlineMs`. */
  handleDeadline(nowMs: number): void {
    if (nowMs < this.#nextDeadlineMs) return;
    this.#nextDeadlineMs = Number.POSITIVE_INFINITY;
    for (const call of [...this.#calls.values()]) {
      const { state } = call;
      if (!('deadlineMs' in state)) continue;
      if (state.deadlineMs > nowMs) {
        this.#due(state.deadlineMs);
      } else if (state.type === 'undone') {
        // RPCR-11-05 A peer that withholds RDMA_DONE cannot hold our memory longer.
        this.#release(call, nowMs);
      } else {
        const what = state.type === 'pulling' ? 'its RDMA Reads end' : 'take its reply';
        this.#effects.push({ type: 'disconnect', text: `the client does not let ${what}` });
        return;
      }
    }
  }

  // Outputs

  pollEffect(): ResponderEffect | undefined {
    return this.#effects.shift();
  }

  /** The latest time to call `handleDeadline`; infinity for never. */
  get nextDeadlineMs(): number {
    return this.#nextDeadlineMs;
  }

  /** Calls that are not yet released. */
  get callCount(): number {
    return this.#calls.size;
  }

  /** Bytes of pulled read chunks held now. */
  get pulledBytes(): number {
    return this.#pulledBytes;
  }

  // Calls

  #newCall(
    xid: number,
    version: number,
    receive: number,
    header?: MessageHeader | PaddedHeader,
    payload: Uint8Array = EMPTY,
    chunks: readonly ReadChunk[] = [],
  ): Call {
    this.#nextCall += 1;
    const call: Call = {
      number: this.#nextCall,
      xid,
      version,
      receive,
      lists: header ?? NO_LISTS,
      header,
      chunks,
      payload,
      pulledBytes: 0,
      undoneBytes: 0,
      state: { type: 'running' },
    };
    this.#calls.set(call.number, call);
    return call;
  }

  #handleCall(
    header: MessageHeader | PaddedHeader,
    payload: Uint8Array,
    receive: number,
    nowMs: number,
  ): void {
    const kind = header.type === 'nomsg' ? 'call' : messageKind(payload, header.xid);
    if (kind === 'reply') {
      // We sent this client no call, so no reply is expected.
      this.#discard(receive);
      return;
    }
    const chunks = this.#checked(header, kind);
    if (chunks === undefined) {
      const refused = this.#newCall(header.xid, RPCRDMA_VERSION, receive);
      this.#sendError(refused, CHUNK_ERROR, nowMs);
      return;
    }
    const call = this.#newCall(header.xid, RPCRDMA_VERSION, receive, header, payload, chunks);
    if (chunks.length === 0) {
      this.#dispatch(call, payload, undefined);
      return;
    }
    for (const chunk of chunks) call.pulledBytes += chunk.lengthBytes;
    call.state = { type: 'waiting' };
    this.#waiting.push(call);
    this.#pullNext(nowMs);
  }

  /** RPCR-4.2-01 The read chunks of a valid header, else undefined. */
  #checked(
    header: MessageHeader | PaddedHeader,
    kind: 'call' | 'other',
  ): readonly ReadChunk[] | undefined {
    // RPCR2-4.6.1-01 Only RFC 5666 has RDMA_MSGP.
    if (header.type === 'msgp' && !this.#options.readListReplies) return undefined;
    // RPCR2-4.5.2-01 The XID differs from the header's, or this is not an RPC call.
    if (kind !== 'call') return undefined;
    const { limits } = this.#options;
    const chunks = readChunksOf(header.readList, limits);
    if (typeof chunks === 'string') return undefined;
    // RPCR2-4.2.4-01 A long call has its message in a position-zero chunk; other calls have none.
    if ((chunks[0]?.position === 0) !== (header.type === 'nomsg')) return undefined;
    if (chunks.length > 0 && !this.#canRead) return undefined;
    if (writeChunksError(header.writeList, limits) !== undefined) return undefined;
    if (header.replyChunk && writeChunksError([header.replyChunk], limits)) return undefined;
    return chunks;
  }

  /** Starts reading for calls in order, while memory lasts. */
  #pullNext(nowMs: number): void {
    for (;;) {
      const call = this.#waiting[0];
      if (call === undefined) return;
      const full = this.#pulledBytes + call.pulledBytes > this.#options.pulledBytesMax;
      if (full && this.#pulledBytes > 0) return;
      this.#waiting.shift();
      this.#pulledBytes += call.pulledBytes;
      const deadlineMs = this.#due(nowMs + this.#options.stallTimeoutMs);
      call.state = { type: 'pulling', deadlineMs };
      this.#effects.push({ type: 'pull', call: call.number, chunks: call.chunks });
    }
  }

  /** RPCR-3.8-02 All of the call's data has arrived. */
  #dispatch(call: Call, stream: Uint8Array, bulk: BulkSource | undefined): void {
    this.counters.calls += 1;
    call.state = { type: 'running' };
    const reader = new XdrReader(stream, bulk);
    if (call.header?.type === 'msgp') reader.expectPadding(call.header);
    this.#effects.push({ type: 'dispatch', call: call.number, reader, xid: call.xid });
  }

  // Replies

  #words(call: Call): { readonly xid: number; readonly credits: number } {
    // RPCR2-3.3.1-01 Never 0: this call's receive is reposted before its reply is sent.
    return { xid: call.xid, credits: this.#options.credits };
  }

  #transmit(
    call: Call,
    header: (ResponderEffect & { readonly type: 'transmit' })['header'],
    payload: Payload,
    undone: boolean,
    nowMs: number,
  ): void {
    const deadlineMs = this.#due(nowMs + this.#options.stallTimeoutMs);
    call.state = { type: 'replying', deadlineMs, undone };
    const { number, receive } = call;
    this.#effects.push({ type: 'transmit', call: number, header, payload, receive });
  }

  /** RPCR2-4.5-03 The error carries XID and version of the call. */
  #sendError(call: Call, error: TransportError, nowMs: number): void {
    this.counters.errors += 1;
    const { version } = call;
    const header = { type: 'error', version, error, ...this.#words(call) } as const;
    this.#transmit(call, header, NOTHING, false, nowMs);
  }

  #mayExpose(lengthBytes: number): boolean {
    const { readListReplies, undoneBytesMax } = this.#options;
    // RPCR-11-05 Bounds the memory that peers can make us hold.
    return readListReplies && this.#undoneBytes + lengthBytes <= undoneBytesMax;
  }

  #handleDone(xid: number, nowMs: number): void {
    // RPCR2-4.6.2-01 Without replies by read list RDMA_DONE has no meaning.
    for (const call of this.#calls.values()) {
      const { state } = call;
      const undone = state.type === 'undone' || (state.type === 'replying' && state.undone);
      if (!undone || call.xid !== xid) continue;
      this.#release(call, nowMs);
      return;
    }
  }

  #discard(receive: number): void {
    this.counters.discarded += 1;
    this.#effects.push({ type: 'repost', receive });
  }

  #release(call: Call, nowMs: number): void {
    this.#calls.delete(call.number);
    this.#pulledBytes -= call.pulledBytes;
    this.#undoneBytes -= call.undoneBytes;
    this.#effects.push({ type: 'release', call: call.number });
    this.#pullNext(nowMs);
  }

  #due(deadlineMs: number): number {
    this.#nextDeadlineMs = Math.min(this.#nextDeadlineMs, deadlineMs);
    return deadlineMs;
  }
}

const VERSION_ERROR: TransportError = {
  code: 'version',
  low: RPCRDMA_VERSION,
  high: RPCRDMA_VERSION,
};

/**
 * The kind of RPC message that bytes start with; `other` also if the XID differs from the header's.
 */
function messageKind(bytes: Uint8Array, xid: number): 'call' | 'reply' | 'other' {
  if (bytes.length < MESSAGE_START_BYTES) return 'other';
  const type = wordAt(bytes, 4);
  if (type === MessageType.reply) return 'reply';
  return type === MessageType.call && wordAt(bytes, 0) === xid ? 'call' : 'other';
}
