/**
 * Shows the messages of an association as SCTP packets, for captures, if the kernel sends
 * the real ones: one DATA chunk per message. Stream, payload protocol, flags and checksum are the
 * message's; tags, TSNs and windows are our own, and nothing is acknowledged.
 *
 * ```
 *  0                   1                   2                   3
 *  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 * |          Source port          |        Destination port       |
 * |                        Verification tag                       |
 * |                     Checksum (little-endian)                  |
 * |   Chunk type  |  Chunk flags  |         Chunk length          |
 * |                     TSN (of DATA)                             |
 * |           Stream              |     Stream sequence number    |
 * |                     Payload protocol identifier               |
 * ```
 */
import { tableCrc32c } from '#daemon/iwarp/wire/crc32c';
import { chooseCrcEngine } from '../crc-engine.ts';
import { gidBytes } from '../host-addresses.ts';
import type { MessageKind, SctpAddress } from './association.ts';
import { PacketCrc } from './packet-crc.ts';

const PACKET_MAX_BYTES = 65_535;
const IPV4_BYTES = 20;
const UDP_BYTES = 8;
const COMMON_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 4;
const DATA_HEADER_BYTES = 16;
/** Initiate tag, window, streams out and in, initial TSN, and the adaptation indication. */
const INIT_VALUE_BYTES = 16;
const ADAPTATION_BYTES = 8;
const ADAPTATION_PARAMETER = 0xc006;
/** Window in the INIT, which messages do not show. */
const WINDOW_BYTES = 2_097_152;
/** First TSNs: arbitrary; small ones are easy to read. */
const DIALER_TSN = 1000;
const LISTENER_TSN = 500_000_000;
const END_BYTES = 18;

const Chunk = { data: 0, init: 1, initAck: 2, shutdown: 7 } as const;
const DataFlag = { end: 1, beginning: 2, unordered: 4, atOnce: 8 } as const;

/** Chunks without a body. */
export const ClosingChunk = { abort: 6, shutdownAck: 8, shutdownComplete: 14 } as const;

/** One direction of an association. */
interface Half {
  readonly port: number;
  /** Verification tag of the packets to this end. */
  readonly tag: number;
  readonly firstTsn: number;
  tsn: number;
}

export type Way = 'out' | 'in';

/** Buffer for the packet and its checksum. All associations share it. */
let shared: { readonly bytes: Uint8Array; readonly crc: PacketCrc } | undefined;

function packetMemory(): { readonly bytes: Uint8Array; readonly crc: PacketCrc } {
  if (shared === undefined) {
    const bytes = new Uint8Array(PACKET_MAX_BYTES + 1);
    shared = { bytes, crc: new PacketCrc(bytes, 1, chooseCrcEngine().crc32c) };
  }
  return shared;
}

/** Both ends of an association derive the same tags and TSNs from it. */
export class MessagePackets {
  readonly #us: Half;
  readonly #peer: Half;
  /** We sent the INIT. */
  readonly #dialed: boolean;
  /** Longest part of a message in one packet. */
  readonly #partBytes: number;

  constructor(local: SctpAddress, remote: SctpAddress, dialed: boolean, inUdp: boolean) {
    this.#us = half(local, remote, dialed);
    this.#peer = half(remote, local, !dialed);
    this.#dialed = dialed;
    // IPv6 payload lengths exclude the header.
    const ipBytes = local.address.includes(':') ? 0 : IPV4_BYTES;
    const headers = ipBytes + (inUdp ? UDP_BYTES : 0) + COMMON_HEADER_BYTES + DATA_HEADER_BYTES;
    this.#partBytes = (PACKET_MAX_BYTES - headers) & ~3;
  }

  /** Counts a message that no capture sees. */
  skip(way: Way, bytes: number): void {
    const from = this.#sender(way);
    from.tsn = (from.tsn + Math.max(1, Math.ceil(bytes / this.#partBytes))) >>> 0;
  }

  /** Shows a message, in one packet if it fits. The packet is borrowed. */
  showMessage(
    way: Way,
    streamId: number,
    kind: MessageKind,
    message: Uint8Array,
    show: (way: Way, packet: Uint8Array) => void,
  ): void {
    const from = this.#sender(way);
    const whole =
      (kind.unordered ? DataFlag.unordered : 0) | (kind.acknowledgeAtOnce ? DataFlag.atOnce : 0);
    for (let at = 0; at === 0 || at < message.length; at += this.#partBytes) {
      const part = message.subarray(at, at + this.#partBytes);
      const first = at === 0 ? DataFlag.beginning : 0;
      const last = at + this.#partBytes >= message.length ? DataFlag.end : 0;
      const fields = this.#begin(
        way,
        Chunk.data,
        whole | first | last,
        DATA_HEADER_BYTES + part.length,
      );
      fields.setUint32(16, from.tsn);
      fields.setUint16(20, streamId);
      // The sequence number is unknown; DDP sends only unordered messages.
      fields.setUint32(24, kind.payloadProtocol);
      packetMemory().bytes.set(part, COMMON_HEADER_BYTES + DATA_HEADER_BYTES);
      from.tsn = (from.tsn + 1) >>> 0;
      show(way, this.#end(DATA_HEADER_BYTES + part.length));
    }
  }

  /** Shows INIT and INIT ACK, with the indications of both ends. */
  showOpening(
    streamCount: number,
    adaptations: { readonly us: number; readonly peer: number | undefined },
    show: (way: Way, packet: Uint8Array) => void,
  ): void {
    const first = this.#dialed ? 'out' : 'in';
    for (const way of [first, first === 'out' ? 'in' : 'out'] as const) {
      const from = this.#sender(way);
      const adaptation = way === 'out' ? adaptations.us : adaptations.peer;
      const parameterBytes = adaptation === undefined ? 0 : ADAPTATION_BYTES;
      const chunkBytes = CHUNK_HEADER_BYTES + INIT_VALUE_BYTES + parameterBytes;
      const type = way === first ? Chunk.init : Chunk.initAck;
      const fields = this.#begin(way, type, 0, chunkBytes);
      if (type === Chunk.init) fields.setUint32(4, 0);
      fields.setUint32(16, from.tag);
      fields.setUint32(20, WINDOW_BYTES);
      fields.setUint16(24, streamCount);
      fields.setUint16(26, streamCount);
      fields.setUint32(28, from.firstTsn);
      if (adaptation !== undefined) {
        fields.setUint16(32, ADAPTATION_PARAMETER);
        fields.setUint16(34, ADAPTATION_BYTES);
        fields.setUint32(36, adaptation);
      }
      show(way, this.#end(chunkBytes));
    }
  }

  /** Shows a SHUTDOWN after everything that the other end has sent. */
  showShutdown(way: Way, show: (way: Way, packet: Uint8Array) => void): void {
    const chunkBytes = CHUNK_HEADER_BYTES + 4;
    const fields = this.#begin(way, Chunk.shutdown, 0, chunkBytes);
    fields.setUint32(16, (this.#receiver(way).tsn - 1) >>> 0);
    show(way, this.#end(chunkBytes));
  }

  showClosing(way: Way, type: number, show: (way: Way, packet: Uint8Array) => void): void {
    this.#begin(way, type, 0, CHUNK_HEADER_BYTES);
    show(way, this.#end(CHUNK_HEADER_BYTES));
  }

  #sender(way: Way): Half {
    return way === 'out' ? this.#us : this.#peer;
  }

  #receiver(way: Way): Half {
    return way === 'out' ? this.#peer : this.#us;
  }

  /** Writes the header of a packet and of its chunk; the rest is zero. */
  #begin(way: Way, type: number, flags: number, chunkBytes: number): DataView {
    const { bytes } = packetMemory();
    const [from, to] = [this.#sender(way), this.#receiver(way)];
    const fields = new DataView(bytes.buffer);
    bytes.fill(0, 0, COMMON_HEADER_BYTES + CHUNK_HEADER_BYTES + INIT_VALUE_BYTES);
    fields.setUint16(0, from.port);
    fields.setUint16(2, to.port);
    fields.setUint32(4, to.tag);
    fields.setUint8(12, type);
    fields.setUint8(13, flags);
    fields.setUint16(14, chunkBytes);
    return fields;
  }

  /** The finished packet, with padding and checksum. */
  #end(chunkBytes: number): Uint8Array {
    const { bytes, crc } = packetMemory();
    const end = COMMON_HEADER_BYTES + chunkBytes;
    const padded = (end + 3) & ~3;
    bytes.fill(0, end, padded);
    crc.write(0, 0, padded);
    return bytes.subarray(0, padded);
  }
}

function half(end: SctpAddress, other: SctpAddress, dialer: boolean): Half {
  const firstTsn = dialer ? DIALER_TSN : LISTENER_TSN;
  return { port: end.port, tag: tagOf(end, other), firstTsn, tsn: firstTsn };
}

/** A tag that both ends derive independently. */
function tagOf(end: SctpAddress, other: SctpAddress): number {
  const bytes = new Uint8Array(2 * END_BYTES);
  const fields = new DataView(bytes.buffer);
  bytes.set(gidBytes(end.address));
  fields.setUint16(16, end.port);
  bytes.set(gidBytes(other.address), END_BYTES);
  fields.setUint16(END_BYTES + 16, other.port);
  // 0 is the tag of an INIT.
  return tableCrc32c(bytes, 0, bytes.length) >>> 0 || 1;
}
