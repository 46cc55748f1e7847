/** One stream over SCTP whose peer is written out byte by byte. */
import { Stream } from '#daemon/iwarp/engine/stream';
import type { StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { SctpLayer } from '#daemon/iwarp/sctp/sctp-layer';
import { dirtyPool } from './fpdu-stream.ts';
import { bytesOf, hexOf } from './hex.ts';
import { ModelUser } from './model-user.ts';
import { StreamEvents } from './stream-events.ts';
import { streamOptions } from './streams.ts';

const DDP = 1;
const CONTROL = 17;
const SEGMENT = 16;
/** Overwrites a message once it has been handled: a view of it must not be kept. */
const POISON = 0xdb;

export class LiteralSession extends StreamEvents {
  readonly stream: Stream;
  readonly layer: SctpLayer;
  readonly user = new ModelUser();
  readonly pool = dirtyPool();
  now = 0;
  readonly #out: string[] = [];

  constructor(
    change: Partial<StreamOptions> = {},
    { peerAdaptation }: { readonly peerAdaptation: number | undefined } = { peerAdaptation: DDP },
  ) {
    super();
    const options = streamOptions({ emssBytes: 1444, ...change });
    this.layer = new SctpLayer(options, { pool: this.pool, peerAdaptation });
    this.stream = new Stream(options, this.layer);
  }

  /** The active end, whose Initiate is out. */
  static connecting(change: Partial<StreamOptions> = {}, privateData = ''): LiteralSession {
    const session = new LiteralSession(change);
    session.stream.connect(bytesOf(privateData), session.user, 0);
    return session.run();
  }

  /** The passive end, which waits for Initiate. */
  static listening(change: Partial<StreamOptions> = {}): LiteralSession {
    const session = new LiteralSession(change);
    session.stream.listen(0);
    return session.run();
  }

  /** The active end of a plain session that the peer has accepted; its Initiate is taken. */
  static open(change: Partial<StreamOptions> = {}): LiteralSession {
    const session = LiteralSession.connecting({ mpaRevision: 1, ...change });
    session.take();
    return session.control('0000 0002');
  }

  /** The passive end of a plain session that it has accepted; its Accept is taken. */
  static accepted(change: Partial<StreamOptions> = {}): LiteralSession {
    const session = LiteralSession.listening(change).control('0000 0001');
    session.accept();
    session.take();
    return session;
  }

  accept(privateData = '', wishes = { ird: 8, ord: 8 }): this {
    this.stream.accept(bytesOf(privateData), this.user, wishes, this.now);
    return this.run();
  }

  /** A session control message of the peer. */
  control(hex: string): this {
    return this.feed(CONTROL, bytesOf(hex));
  }

  /** A DDP segment of the peer, after its DDP-SSN. */
  segment(hex: string): this {
    return this.feed(SEGMENT, bytesOf(hex));
  }

  feed(payloadProtocol: number, bytes: Uint8Array): this {
    const lent = bytes.slice();
    this.stream.handleBytes(lent, this.now, { payloadProtocol, unsealed: false, lent: undefined });
    lent.fill(POISON);
    this.layer.assertInvariants();
    return this.run();
  }

  /** SCTP has acknowledged all that was sent. */
  acknowledge(): this {
    this.stream.handleAcknowledged(this.now);
    return this.run();
  }

  pass(micros: number): this {
    this.now += micros;
    this.stream.handleDeadline(this.now);
    return this.run();
  }

  run(): this {
    this.stream.pump(this.now);
    for (;;) {
      this.#collect();
      const message = this.stream.pollTransmit();
      if (message === undefined) break;
      // A link accepts no message after `finish`.
      if (this.types.includes('finish')) throw new Error('a message followed the finish');
      this.#out.push(`${message.payloadProtocol} ${hexOf(message.bytes)}`);
      this.stream.handleFlushed(message.bytes.length, this.now);
    }
    return this;
  }

  /** The messages sent since the last call: payload protocol and bytes. */
  take(): string[] {
    return this.#out.splice(0);
  }

  #collect(): void {
    for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
      this.events.push(event);
    }
  }
}
