/** Streams for tests: defaults, two of them back to back, and one against literal bytes. */
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { FpduReceiver } from '#daemon/iwarp/engine/fpdu-receiver';
import { FpduSender } from '#daemon/iwarp/engine/fpdu-sender';
import { MpaLayer, type StreamEnvironment } from '#daemon/iwarp/engine/mpa-layer';
import { Stream } from '#daemon/iwarp/engine/stream';
import type { StreamEvent, StreamOptions } from '#daemon/iwarp/engine/stream-api';
import type { StreamFailure } from '#daemon/iwarp/engine/stream-failure';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { dirtyPool, drain, post, RecordingSink } from './fpdu-stream.ts';
import { bytesOf } from './hex.ts';
import { ModelUser } from './model-user.ts';
import { StreamEvents } from './stream-events.ts';

/** Options with small timeouts in whole numbers, so tests can step the time. */
export function streamOptions(change: Partial<StreamOptions> = {}): StreamOptions {
  return {
    mpaRevision: 2,
    enhancedSupported: true,
    crcRequested: true,
    markersRequested: false,
    peerToPeer: false,
    rtrKinds: { send: true, write: true, read: true },
    ird: 8,
    ord: 8,
    irdMax: 32,
    ordMax: 32,
    emssBytes: 1460,
    fpduSize: { kind: 'emss' },
    startupTimeoutMicros: 5_000_000,
    closeTimeoutMicros: 1_000_000,
    ...change,
  };
}

/** A stream with a pool of leftovers. */
export function streamOf(
  change: Partial<StreamOptions> = {},
  environment: Partial<StreamEnvironment> = {},
): Stream {
  const options = streamOptions(change);
  return new Stream(options, new MpaLayer(options, { pool: dirtyPool(), crc32c, ...environment }));
}

/** Cuts the bytes of one write; by default they arrive whole. */
export type Splitter = (bytes: Uint8Array) => readonly Uint8Array[];

class End extends StreamEvents {
  readonly stream: Stream;
  readonly user: ModelUser;
  /** The socket accepts no bytes while this is set. */
  blocked = false;
  /** FIN was requested, and sent. */
  finishing = false;
  finished = false;
  aborted = false;
  gone = false;

  constructor(stream: Stream, user = new ModelUser()) {
    super();
    this.stream = stream;
    this.user = user;
  }

  collect(): boolean {
    let any = false;
    for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
      any = true;
      this.events.push(event);
      if (event.type === 'abort') this.aborted = true;
      // Without a reset, FIN follows everything that is polled.
      if (event.type === 'finish' || event.type === 'closed') this.finishing = true;
    }
    return any;
  }
}

interface PairOptions {
  readonly initiator?: Partial<StreamOptions>;
  readonly responder?: Partial<StreamOptions>;
  readonly environment?: Partial<StreamEnvironment>;
  readonly split?: Splitter;
  /** Parameters of the responder's consumer. */
  readonly wishes?: { readonly ird: number; readonly ord: number };
}

/** Two streams over a link in memory. `a` is the initiator. */
export class StreamPair {
  readonly a: End;
  readonly b: End;
  now = 0;
  readonly #split: Splitter;
  readonly #wishes: { readonly ird: number; readonly ord: number };

  constructor(options: PairOptions = {}) {
    this.a = new End(streamOf(options.initiator, options.environment));
    this.b = new End(streamOf(options.responder, options.environment));
    this.#split = options.split ?? ((bytes) => [bytes]);
    this.#wishes = options.wishes ?? { ird: 8, ord: 8 };
  }

  /** Goes through startup; both ends are then in Full Operation. */
  establish(): this {
    this.b.stream.listen(this.now);
    this.a.stream.connect(new Uint8Array(0), this.a.user, this.now);
    this.run();
    this.b.stream.accept(new Uint8Array(0), this.b.user, this.#wishes, this.now);
    this.run();
    return this;
  }

  /** Carries bytes, FINs and resets until both ends have nothing to send. */
  run(): this {
    for (let rounds = 0; ; rounds++) {
      if (rounds > 100_000) throw new Error('the pair does not come to rest');
      this.a.stream.pump(this.now);
      this.b.stream.pump(this.now);
      const moved = this.#carry(this.a, this.b);
      if (!this.#carry(this.b, this.a) && !moved) return this;
    }
  }

  /** Advances the time. */
  pass(micros: number): this {
    this.now += micros;
    this.a.stream.handleDeadline(this.now);
    this.b.stream.handleDeadline(this.now);
    return this.run();
  }

  #carry(from: End, to: End): boolean {
    let moved = from.collect();
    while (!from.blocked && !from.gone) {
      const bytes = from.stream.pollTransmit()?.bytes;
      if (bytes === undefined) break;
      moved = true;
      // A socket's buffer is reused: no view of it may be kept.
      for (const part of this.#split(bytes)) {
        const lent = part.slice();
        if (!to.gone) to.stream.handleBytes(lent, this.now);
        lent.fill(0xdb);
      }
      from.stream.handleFlushed(bytes.length, this.now);
    }
    if (from.collect()) moved = true;
    if (from.aborted && !from.gone) {
      from.gone = true;
      from.stream.handleClosed(undefined, this.now);
      if (!to.gone) {
        to.gone = true;
        to.stream.handleClosed('ECONNRESET', this.now);
      }
      return true;
    }
    if (from.finishing && !from.finished && !from.blocked) {
      from.finished = true;
      if (!to.gone) to.stream.handlePeerClosed(this.now);
      return true;
    }
    return moved;
  }
}

const REQUEST_REVISION_1 = '4d504120494420526571204672616d65 40 01 0000';
const REPLY_REVISION_1 = '4d504120494420526570204672616d65 40 01 0000';
const STARTUP_FRAME_BYTES = 20;

/** One stream in Full Operation whose peer is written out byte by byte. CRCs are on. */
export class LiteralPeer {
  readonly stream: Stream;
  readonly user: ModelUser;
  readonly events: StreamEvent[] = [];
  now = 0;
  readonly #sender: FpduSender;
  readonly #receiver: FpduReceiver;
  readonly #sink = new RecordingSink();
  #skip = STARTUP_FRAME_BYTES;
  #taken = 0;

  private constructor(stream: Stream, user: ModelUser) {
    this.stream = stream;
    this.user = user;
    const pool = new ChunkPool();
    this.#sender = new FpduSender({ pool, crc32c });
    this.#sender.enterFullOperation(true, false);
    this.#receiver = new FpduReceiver({ pool, crc32c, crcEnabled: true, markers: false });
  }

  /** The stream is the responder: it may not send before it has been fed an FPDU. */
  static ofResponder(change: Partial<StreamOptions> = {}, user = new ModelUser()): LiteralPeer {
    const peer = new LiteralPeer(streamOf(change), user);
    peer.stream.listen(0);
    peer.stream.handleBytes(bytesOf(REQUEST_REVISION_1), 0);
    const { ird = 8, ord = 8 } = change;
    peer.stream.accept(new Uint8Array(0), user, { ird, ord }, 0);
    peer.run();
    return peer;
  }

  /** The stream is the initiator: it may send at once. */
  static ofInitiator(change: Partial<StreamOptions> = {}, user = new ModelUser()): LiteralPeer {
    const peer = new LiteralPeer(streamOf({ mpaRevision: 1, ...change }), user);
    peer.stream.connect(new Uint8Array(0), user, 0);
    peer.stream.handleBytes(bytesOf(REPLY_REVISION_1), 0);
    peer.run();
    return peer;
  }

  /** Sends ULPDUs, each in hexadecimal, in FPDUs with right CRCs, in one piece. */
  feed(...ulpdus: readonly string[]): this {
    for (const ulpdu of ulpdus) post(this.#sender, bytesOf(ulpdu));
    return this.feedBytes(drain(this.#sender));
  }

  /** Sends bytes as they are. */
  feedBytes(bytes: Uint8Array): this {
    const lent = bytes.slice();
    this.stream.handleBytes(lent, this.now);
    lent.fill(0xdb);
    return this.run();
  }

  /** Our FIN. */
  finish(): this {
    this.stream.handlePeerClosed(this.now);
    return this.run();
  }

  /** Takes the output of the stream, as a socket that is never full. */
  run(): this {
    this.stream.pump(this.now);
    for (let out = this.stream.pollTransmit(); out; out = this.stream.pollTransmit()) {
      const { bytes } = out;
      const start = Math.min(this.#skip, bytes.length);
      this.#skip -= start;
      const error = this.#receiver.push(bytes, start, bytes.length, this.#sink);
      if (error !== undefined) throw new Error(`the stream sent a bad FPDU: ${error.text}`);
      this.stream.handleFlushed(bytes.length, this.now);
    }
    for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
      this.events.push(event);
    }
    return this;
  }

  /** The ULPDUs received since the last call, in hexadecimal. */
  take(): string[] {
    const ulpdus = this.#sink.hex.slice(this.#taken);
    this.#taken = this.#sink.ulpdus.length;
    return ulpdus;
  }

  /** The events' types, in order. */
  get types(): string[] {
    return this.events.map((event) => event.type);
  }

  /** The failure reported by the last event that has one. */
  get failure(): StreamFailure | undefined {
    for (const event of this.events.toReversed()) {
      if ((event.type === 'closed' || event.type === 'terminated') && event.failure) {
        return event.failure;
      }
    }
    return undefined;
  }
}

/** Hexadecimal without blanks, for comparisons. */
export function compact(text: string): string {
  return text.replaceAll(/\s/g, '');
}
