/** Requester and responder of RPC over RDMA without any device: memory and time are the test's. */
import type { SegmentWrite } from '#verbs-api/rpcrdma/core/chunks';
import type { InlineThresholds } from '#verbs-api/rpcrdma/core/private-data';
import { Requester } from '#verbs-api/rpcrdma/core/requester';
import type {
  CallOutcome,
  CallRequest,
  RequesterEffect,
  RequesterOptions,
} from '#verbs-api/rpcrdma/core/requester-types';
import { Responder } from '#verbs-api/rpcrdma/core/responder';
import type { ResponderEffect, ResponderOptions } from '#verbs-api/rpcrdma/core/responder-types';
import { NO_AUTH, writeCallHeader, writeReplyHeader } from '#verbs-api/rpcrdma/core/rpc-message';
import {
  emitMessage,
  type MessageHeader,
  messageSizeBytes,
  parseTransportHeader,
  type Segment,
  type TransportHeader,
} from '#verbs-api/rpcrdma/core/transport-header';
import type { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { emitPayload, type Payload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

/** The thresholds that hold without private data. */
export const THRESHOLDS: InlineThresholds = { callBytes: 1024, replyBytes: 1024 };

/** A Send's bytes, in a buffer that shows bytes never written. */
export function messageBytes(header: TransportHeader, payload: Payload = NOTHING): Uint8Array {
  const bytes = new Uint8Array(messageSizeBytes(header, payload)).fill(0xa5);
  emitMessage(new XdrWriter(), header, payload, bytes);
  return bytes;
}

export const NOTHING: Payload = { stream: new Uint8Array(0), items: [], lengthBytes: 0 };

/** The output of `write`, as a separate payload. */
export function payloadOf(write: (writer: XdrWriter) => void): Payload {
  const writer = new XdrWriter();
  write(writer);
  return writer.payload();
}

/** The unreduced stream of a payload. */
export function wholeOf(payload: Payload): Uint8Array {
  const bytes = new Uint8Array(payload.lengthBytes).fill(0xa5);
  emitPayload(payload, bytes, 0);
  return bytes;
}

/** A call with AUTH_NONE: a header of 40 bytes. */
export function callPayload(
  xid: number,
  writeArgs: (writer: XdrWriter) => void = () => undefined,
  procedure = 0,
): Payload {
  return payloadOf((writer) => {
    const header = { xid, program: 0x2000_0001, version: 1, procedure };
    writeCallHeader(writer, { ...header, credential: NO_AUTH, verifier: NO_AUTH });
    writeArgs(writer);
  });
}

/** A call of STORE with its bytes in a read chunk, and the position of the chunk. */
export function storePayload(bytes: Uint8Array): { reduced: Payload; position: number } {
  const writeArgs = (writer: XdrWriter): void => {
    writer.string('x');
    writer.bulk(bytes);
    writer.uint32(3);
  };
  const { stream, items } = callPayload(1, writeArgs, 2);
  const reduced = { stream, items: [], lengthBytes: stream.length };
  return { reduced, position: items[0]?.position ?? 0 };
}

/** A successful reply: a header of 24 bytes. */
export function replyPayload(
  xid: number,
  writeResult: (writer: XdrWriter) => void = () => undefined,
): Payload {
  return payloadOf((writer) => {
    writeReplyHeader(writer, xid, { status: 'success' });
    writeResult(writer);
  });
}

export function shortReply(xid: number, credits = 32, payload = replyPayload(xid)): Uint8Array {
  const lists = { readList: [], writeList: [], replyChunk: undefined };
  return messageBytes({ type: 'msg', xid, credits, ...lists }, payload);
}

export function shortCall(xid: number, payload = callPayload(xid)): Uint8Array {
  const lists = { readList: [], writeList: [], replyChunk: undefined };
  return messageBytes({ type: 'msg', xid, credits: 32, ...lists }, payload);
}

/** Registered memory of one end, which the other reaches by handle and offset. */
export class FakeMemory {
  readonly regions = new Map<number, { readonly bytes: Uint8Array; readonly offset: bigint }>();
  #nextHandle = 0x1000;

  register(bytes: Uint8Array): { readonly handle: number; readonly offset: bigint } {
    this.#nextHandle += 0x101;
    const handle = this.#nextHandle;
    const offset = BigInt(handle) << 20n;
    this.regions.set(handle, { bytes, offset });
    return { handle, offset };
  }

  /** Bytes of a segment. Throws outside registered memory. */
  view(handle: number, offset: bigint, lengthBytes: number): Uint8Array {
    const region = this.regions.get(handle);
    if (region === undefined) throw new Error(`no region ${handle.toString(16)}`);
    const start = Number(offset - region.offset);
    if (start < 0 || start + lengthBytes > region.bytes.length) throw new Error('outside');
    return region.bytes.subarray(start, start + lengthBytes);
  }

  read(segments: readonly Segment[]): Uint8Array {
    return Buffer.concat(segments.map((s) => this.view(s.handle, s.offset, s.lengthBytes)));
  }

  write(source: Uint8Array, writes: readonly SegmentWrite[]): void {
    for (const { handle, offset, start, lengthBytes } of writes) {
      this.view(handle, offset, lengthBytes).set(source.subarray(start, start + lengthBytes));
    }
  }
}

/** A message that a requester or responder sent. */
export interface Sent {
  readonly header: TransportHeader;
  readonly bytes: Uint8Array;
  /** Bytes after the header. */
  readonly payload: Uint8Array;
}

function sentOf(header: TransportHeader, payload: Payload): Sent {
  const bytes = messageBytes(header, payload);
  const parsed = parseTransportHeader(bytes);
  if ('error' in parsed) throw new Error(`we sent a bad header: ${parsed.text}`);
  return { header: parsed.header, bytes, payload: bytes.subarray(parsed.headerBytes) };
}

/** A requester whose memory is available at once, unless `holdExposures` or `holdWithdrawals`. */
export class RequesterRig {
  readonly requester: Requester;
  readonly memory = new FakeMemory();
  readonly sent: Sent[] = [];
  readonly outcomes = new Map<number, CallOutcome>();
  /** Effects that the rig does not carry out: connect, disconnect, pull, and held effects. */
  readonly effects: RequesterEffect[] = [];
  readonly #handles = new Map<number, number[]>();
  holdExposures = false;
  holdWithdrawals = false;
  nowMs = 0;

  /** Connected with `thresholds`, from the start on. */
  constructor(
    options: RequesterOptions = {},
    thresholds: InlineThresholds | 'unconnected' = THRESHOLDS,
  ) {
    this.requester = new Requester(options);
    if (thresholds === 'unconnected') return;
    this.requester.open();
    this.drain();
    this.effects.length = 0;
    this.connect(thresholds);
  }

  connect(thresholds: InlineThresholds = THRESHOLDS, readsServed = true): void {
    this.requester.connected(thresholds, readsServed);
    this.drain();
  }

  lose(text = 'lost'): void {
    this.requester.disconnected(this.nowMs, text);
    this.drain();
  }

  /** Makes a call; by default one without results. */
  call(xid: number, request: Partial<CallRequest> = {}): void {
    this.requester.call(xid, {
      payload: callPayload(xid),
      resultBytes: [],
      replyMaxBytes: 24,
      idempotent: false,
      deadlineMs: this.nowMs + 1000,
      ...request,
    });
    this.drain();
  }

  handle(bytes: Uint8Array): void {
    this.requester.handleMessage(bytes);
    this.drain();
  }

  advanceTo(nowMs: number): void {
    this.nowMs = nowMs;
    this.requester.handleDeadline(nowMs);
    this.drain();
  }

  /** The last message, which must exist. */
  get last(): Sent {
    const last = this.sent.at(-1);
    if (last === undefined) throw new Error('nothing was sent');
    return last;
  }

  /** XIDs of sent messages, in order. */
  get xids(): readonly number[] {
    return this.sent.map(({ header }) => header.xid);
  }

  /** Removes and returns the effects of a type that were not carried out. */
  take<T extends RequesterEffect['type']>(type: T): (RequesterEffect & { readonly type: T })[] {
    const isOfType = (effect: RequesterEffect): effect is RequesterEffect & { readonly type: T } =>
      effect.type === type;
    const taken = this.effects.filter(isOfType);
    const rest = this.effects.filter((effect) => !isOfType(effect));
    this.effects.splice(0, this.effects.length, ...rest);
    return taken;
  }

  /** Registers the memory of an `expose` effect. */
  expose(effect: RequesterEffect & { readonly type: 'expose' }): void {
    const handles: number[] = [];
    const regions = effect.regions.map((region) => {
      const bytes = region.kind === 'source' ? region.bytes : new Uint8Array(region.lengthBytes);
      const memory = this.memory.register(bytes);
      handles.push(memory.handle);
      return { ...memory, bytes };
    });
    this.#handles.set(effect.xid, handles);
    this.requester.exposed(effect.xid, regions);
    this.drain();
  }

  withdraw(xid: number): void {
    for (const handle of this.#handles.get(xid) ?? []) this.memory.regions.delete(handle);
    this.requester.withdrawn(xid);
    this.drain();
  }

  drain(): void {
    for (;;) {
      const effect = this.requester.pollEffect();
      if (effect === undefined) return;
      if (effect.type === 'transmit') this.sent.push(sentOf(effect.header, effect.payload));
      else if (effect.type === 'complete') this.outcomes.set(effect.xid, effect.outcome);
      else if (effect.type === 'expose' && !this.holdExposures) this.expose(effect);
      else if (effect.type === 'withdraw' && !this.holdWithdrawals) this.withdraw(effect.xid);
      else this.effects.push(effect);
    }
  }
}

export interface Dispatched {
  readonly call: number;
  readonly xid: number;
  readonly reader: XdrReader;
}

/** A responder that reads and writes `memory` at once, unless `holdPulls`. */
export class ResponderRig {
  readonly responder: Responder;
  readonly memory: FakeMemory;
  readonly sent: Sent[] = [];
  readonly dispatched: Dispatched[] = [];
  readonly reposted: number[] = [];
  readonly released: number[] = [];
  readonly order: ResponderEffect['type'][] = [];
  readonly effects: ResponderEffect[] = [];
  /** Memory with replies that the peer fetches by a read list. */
  readonly own = new FakeMemory();
  readonly #ownHandles = new Map<number, number>();
  holdPulls = false;
  holdSent = false;
  nowMs = 0;
  #receive = 0;

  constructor(
    options: ResponderOptions = {},
    memory = new FakeMemory(),
    thresholds = THRESHOLDS,
    canRead = true,
  ) {
    this.responder = new Responder(thresholds, options, canRead);
    this.memory = memory;
  }

  /** Delivers a message in a new receive; returns the receive's number. */
  handle(bytes: Uint8Array): number {
    this.#receive += 1;
    this.responder.handleMessage(bytes, this.#receive, this.nowMs);
    this.drain();
    return this.#receive;
  }

  reply(dispatched: Dispatched, payload: Payload = replyPayload(dispatched.xid)): void {
    this.responder.reply(dispatched.call, payload, this.nowMs);
    this.drain();
  }

  pull(effect: ResponderEffect & { readonly type: 'pull' }): void {
    const chunks = effect.chunks.map((chunk) => this.memory.read(chunk.segments));
    this.responder.pulled(effect.call, chunks, this.nowMs);
    this.drain();
  }

  advanceTo(nowMs: number): void {
    this.nowMs = nowMs;
    this.responder.handleDeadline(nowMs);
    this.drain();
  }

  get last(): Sent {
    const last = this.sent.at(-1);
    if (last === undefined) throw new Error('nothing was sent');
    return last;
  }

  get lastDispatched(): Dispatched {
    const last = this.dispatched.at(-1);
    if (last === undefined) throw new Error('nothing was dispatched');
    return last;
  }

  drain(): void {
    for (;;) {
      const effect = this.responder.pollEffect();
      if (effect === undefined) return;
      this.order.push(effect.type);
      this.#carryOut(effect);
    }
  }

  #carryOut(effect: ResponderEffect): void {
    switch (effect.type) {
      case 'pull':
        if (this.holdPulls) this.effects.push(effect);
        else this.pull(effect);
        return;
      case 'dispatch':
        this.dispatched.push(effect);
        return;
      case 'push': {
        const { bytes } = effect;
        this.memory.write(bytes instanceof Uint8Array ? bytes : wholeOf(bytes), effect.writes);
        return;
      }
      case 'transmit':
        this.sent.push(sentOf(effect.header, effect.payload));
        this.reposted.push(effect.receive);
        if (this.holdSent) this.effects.push(effect);
        else this.responder.sent(effect.call, this.nowMs);
        return;
      case 'repost':
        this.reposted.push(effect.receive);
        return;
      case 'expose': {
        const bytes = wholeOf(effect.payload);
        const memory = this.own.register(bytes);
        this.#ownHandles.set(effect.call, memory.handle);
        this.responder.exposed(effect.call, { ...memory, lengthBytes: bytes.length }, this.nowMs);
        return;
      }
      case 'release':
        this.released.push(effect.call);
        this.own.regions.delete(this.#ownHandles.get(effect.call) ?? -1);
        return;
      case 'disconnect':
        this.effects.push(effect);
        return;
    }
  }
}

/** The header of a message with lists of chunks. */
export function messageHeader({ header }: { readonly header: TransportHeader }): MessageHeader {
  if (header.type !== 'msg' && header.type !== 'nomsg') throw new Error(`type ${header.type}`);
  return header;
}
