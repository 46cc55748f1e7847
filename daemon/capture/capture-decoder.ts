/**
 * Decodes the iWARP connections and the RoCEv2 and SCTP packets in a capture: takes packets, emits one
 * line per event of a connection and one per RoCEv2 or SCTP packet. A connection over TCP is iWARP if
 * its first bytes are an MPA Request.
 */
import { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Crc32 } from '../roce/wire/crc32.ts';
import { type CapturedPacket, CaptureFileParser } from './capture-file.ts';
import { DatagramTrace } from './datagram-trace.ts';
import { ipStart } from './ip-header.ts';
import { SctpTrace } from './sctp-trace.ts';
import { type Sender, StreamTrace, type TraceKind } from './stream-trace.ts';
import { TcpReassembly } from './tcp-reassembly.ts';
import { findTcpSegment, type TcpSegment } from './tcp-segment.ts';

export interface DecodedLine {
  /** Nanoseconds since the first packet of the capture. */
  readonly timeNanos: bigint;
  /** `address:port` of the sender; `destination` is its peer's. */
  readonly source: string;
  readonly destination: string;
  readonly kind: TraceKind | 'packet';
  readonly text: string;
}

export class CaptureSummary {
  packets = 0;
  connections = 0;
  fpdus = 0;
  /** RoCEv2 packets, including those in error. */
  rocePackets = 0;
  /** SCTP packets, in UDP or not, including those in error. */
  sctpPackets = 0;
  /** Places where decoding had to stop, and packets that a receiver would drop. */
  errors = 0;
  /** TCP connections that are not iWARP or lack their beginning. */
  otherConnections = 0;
  /** Packets that contain no complete TCP segment, no RoCEv2 and no SCTP. */
  otherPackets = 0;
}

interface CaptureDecoderOptions {
  readonly line: (line: DecodedLine) => void;
  readonly crc32c?: Crc32c;
  readonly crc32?: Crc32;
}

/** Maximum connections tracked at a time; a new one replaces the one idle longest. */
export const CONNECTIONS_MAX = 4096;
/** First bytes of the key of an MPA Request (RFC 5044 §7.1.1). */
const REQUEST_KEY = Uint8Array.from('MPA ID Req Frame', (letter) => letter.charCodeAt(0));

interface Connection {
  /** `address:port` of the side that sent the SYN or the MPA Request. */
  readonly initiator: string;
  readonly responder: string;
  readonly trace: StreamTrace;
  readonly streams: Partial<Record<Sender, TcpReassembly>>;
  /** First bytes from the initiator, until the key can be checked. */
  head: Uint8Array;
  verdict: 'open' | 'iwarp' | 'other';
}

export class CaptureDecoder {
  readonly summary = new CaptureSummary();
  readonly #parser = new CaptureFileParser();
  readonly #options: CaptureDecoderOptions;
  readonly #pool = new ChunkPool();
  readonly #datagrams: DatagramTrace;
  readonly #sctp: SctpTrace;
  /** By both ends, least recently active first. */
  readonly #connections = new Map<string, Connection>();
  #firstNanos: bigint | undefined;
  #nowNanos = 0n;

  constructor(options: CaptureDecoderOptions) {
    this.#options = options;
    this.#datagrams = new DatagramTrace(options.crc32);
    this.#sctp = new SctpTrace(options.crc32c);
  }

  /** Takes the next bytes of the file and owns them from then on. Throws `CaptureError`. */
  push(bytes: Uint8Array): void {
    this.#parser.push(bytes);
    for (;;) {
      const packet = this.#parser.poll();
      if (packet === undefined) return;
      this.summary.packets += 1;
      this.#firstNanos ??= packet.timeNanos;
      this.#nowNanos = packet.timeNanos - this.#firstNanos;
      const segment = findTcpSegment(packet.linkType, packet.bytes, packet.originalBytes);
      if (segment !== undefined) this.#takeSegment(segment);
      else if (!this.#takeDatagram(packet)) this.summary.otherPackets += 1;
    }
  }

  /** Ends the file. Throws `CaptureError` if it is truncated. */
  finish(): void {
    for (const connection of this.#connections.values()) this.#forget(connection);
    this.#connections.clear();
    this.#parser.finish();
  }

  /** Returns false if the packet is neither RoCEv2 nor SCTP. */
  #takeDatagram({ linkType, bytes }: CapturedPacket): boolean {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const at = ipStart(linkType, view);
    if (at === undefined) return false;
    const roce = this.#datagrams.take(bytes, at);
    const traced = roce ?? this.#sctp.take(bytes, at);
    if (traced === undefined) return false;
    const { source, destination, kind, text } = traced;
    this.summary[roce === undefined ? 'sctpPackets' : 'rocePackets'] += 1;
    if (kind === 'error') this.summary.errors += 1;
    this.#options.line({ timeNanos: this.#nowNanos, source, destination, kind, text });
    return true;
  }

  #takeSegment(segment: TcpSegment): void {
    const { source, destination } = segment;
    const key = source < destination ? `${source} ${destination}` : `${destination} ${source}`;
    let connection = this.#connections.get(key);
    this.#connections.delete(key);
    if (segment.syn && !segment.ack) {
      // A retransmitted SYN belongs to the connection that it opened.
      const repeated = connection?.initiator === source && connection.verdict === 'open';
      if (connection !== undefined && !repeated) this.#forget(connection);
      if (!repeated) connection = this.#open(source, destination);
    } else connection ??= this.#joined(segment);
    if (connection === undefined) return;
    this.#connections.set(key, connection);
    this.#makeRoom();
    if (connection.verdict !== 'other') this.#takeInto(connection, segment);
  }

  /** A connection without a recorded SYN must begin with an MPA Request; others are not iWARP. */
  #joined(segment: TcpSegment): Connection | undefined {
    if (segment.payload.length < REQUEST_KEY.length || !beginsWithKey(segment.payload)) {
      return undefined;
    }
    return this.#open(segment.source, segment.destination);
  }

  #open(initiator: string, responder: string): Connection {
    const trace = new StreamTrace({
      pool: this.#pool,
      ...(this.#options.crc32c === undefined ? {} : { crc32c: this.#options.crc32c }),
      line: (sender, kind, text) => {
        const [source, destination] =
          sender === 'initiator' ? [initiator, responder] : [responder, initiator];
        if (kind === 'fpdu') this.summary.fpdus += 1;
        if (kind === 'error') this.summary.errors += 1;
        this.#options.line({ timeNanos: this.#nowNanos, source, destination, kind, text });
      },
    });
    return { initiator, responder, trace, streams: {}, head: new Uint8Array(0), verdict: 'open' };
  }

  #takeInto(connection: Connection, segment: TcpSegment): void {
    const sender: Sender = segment.source === connection.initiator ? 'initiator' : 'responder';
    const first = segment.syn ? (segment.sequence + 1) >>> 0 : segment.sequence;
    if (connection.streams[sender] === undefined) {
      connection.streams[sender] = new TcpReassembly(first, (bytes) =>
        this.#deliver(connection, sender, bytes),
      );
    }
    const stream = connection.streams[sender];
    const known = stream.lostBytes === 0;
    const whole = stream.take(first, segment.payload, segment.payloadBytes);
    if (known && !whole) this.#lost(connection, sender, stream.lostBytes);
    if (connection.verdict !== 'iwarp') return;
    if (segment.rst) connection.trace.reset(sender);
    else if (segment.fin) connection.trace.finished(sender);
  }

  #deliver(connection: Connection, sender: Sender, bytes: Uint8Array): void {
    if (connection.verdict === 'iwarp') {
      connection.trace.take(sender, bytes);
      return;
    }
    if (connection.verdict === 'other') return;
    // The responder sends no MPA before the Request.
    if (sender === 'responder') {
      this.#isOther(connection);
      return;
    }
    const head = new Uint8Array(connection.head.length + bytes.length);
    head.set(connection.head);
    head.set(bytes, connection.head.length);
    connection.head = head;
    if (!beginsWithKey(head)) this.#isOther(connection);
    else if (head.length >= REQUEST_KEY.length) {
      connection.verdict = 'iwarp';
      connection.head = new Uint8Array(0);
      this.summary.connections += 1;
      connection.trace.take('initiator', head);
    }
  }

  #isOther(connection: Connection): void {
    connection.verdict = 'other';
    connection.head = new Uint8Array(0);
    this.summary.otherConnections += 1;
  }

  #lost(connection: Connection, sender: Sender, bytes: number): void {
    if (connection.verdict === 'iwarp') {
      connection.trace.broken(sender, `${bytes} bytes are missing from the capture`);
    } else if (connection.verdict === 'open') this.#isOther(connection);
  }

  #forget(connection: Connection): void {
    for (const sender of ['initiator', 'responder'] as const) {
      const stream = connection.streams[sender];
      if (stream === undefined || stream.lostBytes > 0) continue;
      stream.finish();
      if (stream.lostBytes > 0) this.#lost(connection, sender, stream.lostBytes);
    }
  }

  #makeRoom(): void {
    if (this.#connections.size <= CONNECTIONS_MAX) return;
    const [oldest] = this.#connections;
    if (oldest === undefined) return;
    this.#forget(oldest[1]);
    this.#connections.delete(oldest[0]);
  }
}

/** True if the bytes are a prefix of, or start with, an MPA Request. */
function beginsWithKey(bytes: Uint8Array): boolean {
  return REQUEST_KEY.every((byte, index) => index >= bytes.length || bytes[index] === byte);
}
