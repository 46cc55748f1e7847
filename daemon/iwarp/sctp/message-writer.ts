/**
 * The outbound half of a DDP stream over SCTP: segments and control messages, each in one SCTP message after
 * its DDP-SSN, built in place in chunks of a pool (RFC 5043 §5.2).
 *
 * `pollTransmit` returns one message at a time, which SCTP must keep whole.
 */
import { assert } from '#base/assert';
import { writeUint16 } from '#base/checked-bytes';
import { type Transmit, transmitOf } from '#base/transmit';
import type { ChunkPool } from '../engine/chunk-pool.ts';
import type { UlpduWriter } from '../engine/lower-layer.ts';
import { OutputChunk } from '../engine/output-chunk.ts';
import {
  emitSessionMessage,
  PayloadProtocol,
  type SessionMessage,
  SSN_BYTES,
  sessionMessageBytes,
} from './session-message.ts';

const NO_BYTES = new Uint8Array(0);
const SSN_MASK = 0xffff;
/** Bytes of a DATA chunk before its message. */
const DATA_HEADER_BYTES = 16;
/**
 * A packet with less room than this is sent at once. If it has more room but the next message does
 * not fit, both are sent, as two packets: libusrsctp delays only data that fills less than a
 * packet.
 */
const PACKET_FULL_BYTES = 40;
/**
 * When the current packet has at least this much room, the next segment is cut to fill it: a packet
 * costs several times as much as a segment.
 */
const FILLING_MIN_BYTES = 16_384;
const HIGH_WATER_BYTES = 524_288;
/** Entries of the ring at first; it doubles. The high-water mark bounds it. */
const RING_MIN = 64;
/** The bit of a ring entry that marks a control message; the other bits are its length. */
const CONTROL_BIT = 0x8000_0000;

interface MessageWriterOptions {
  readonly pool: ChunkPool;
  /** `begin` returns false once this many bytes wait for the transport. Default 524,288. */
  readonly highWaterBytes?: number;
  /** The longest segment that the path carries. */
  readonly segmentMaxBytes: number;
  /** 0 in every session; tests of the wrap start elsewhere. */
  readonly firstSsn?: number;
}

export class MessageWriter implements UlpduWriter {
  bytes: Uint8Array = NO_BYTES;
  ulpduStart = 0;
  /** Segments are refused if they are longer (SCTP-9-04). */
  segmentMaxBytes: number;
  readonly #transmit = transmitOf();
  readonly #pool: ChunkPool;
  #highWaterBytes: number;
  readonly #chunks: OutputChunk[] = [];
  /** Lengths of the messages committed and not polled: a ring from `#ringHead`. */
  #ring = new Uint32Array(RING_MIN);
  #ringHead = 0;
  #ringCount = 0;
  /** Bytes that the last queued messages use in their packet, if SCTP bundles them. */
  #packetUsedBytes = 0;
  #ssn: number;
  #queuedBytes = 0;
  #ulpduLength = 0;
  #open = false;
  #hasSpoken = false;

  constructor(options: MessageWriterOptions) {
    this.#pool = options.pool;
    this.#highWaterBytes = options.highWaterBytes ?? HIGH_WATER_BYTES;
    this.segmentMaxBytes = options.segmentMaxBytes;
    this.#ssn = options.firstSsn ?? 0;
  }

  // Commands

  /** Allows segments. */
  open(): void {
    this.#open = true;
  }

  /** Forbids segments. */
  close(): void {
    this.#open = false;
    this.#ulpduLength = 0;
  }

  // SCTP-9-04
  begin(ulpduLength: number): boolean {
    if (ulpduLength < 1 || ulpduLength > this.segmentMaxBytes) {
      const limit = this.segmentMaxBytes;
      throw new RangeError(
        `a DDP segment has 1 to ${limit} bytes on this path, not ${ulpduLength}`,
      );
    }
    this.#ulpduLength = 0;
    if (!this.#open || this.#queuedBytes >= this.#highWaterBytes) return false;
    const tail = this.#chunkWithRoom(SSN_BYTES + ulpduLength);
    this.bytes = tail.bytes;
    this.ulpduStart = tail.committed + SSN_BYTES;
    this.#ulpduLength = ulpduLength;
    return true;
  }

  // SCTP-5.2.2-01: no length, pad, marker or CRC.
  commit(): void {
    const tail = this.#chunks[this.#chunks.length - 1];
    assert(this.#ulpduLength > 0 && tail !== undefined, 'commit without begin');
    writeUint16(tail.bytes, tail.committed, this.#nextSsn());
    const length = SSN_BYTES + this.#ulpduLength;
    this.#ulpduLength = 0;
    this.#hasSpoken = true;
    this.#commit(tail, length, false);
  }

  /** Queues a control message, which must have passed `checkSessionMessage`. */
  control(message: SessionMessage): void {
    const length = sessionMessageBytes(message);
    this.#ulpduLength = 0;
    const tail = this.#chunkWithRoom(length);
    emitSessionMessage(message, this.#nextSsn(), tail.bytes, tail.committed);
    this.#commit(tail, length, true);
  }

  /**
   * Less than `mulpduBytes` when that would not fit the packet of the messages that are queued but a
   * large part of it does. So Writes of 64 KiB, a little longer than the largest segment, take one
   * packet each instead of a full one and a tiny one.
   */
  ulpduRoomBytes(mulpduBytes: number): number {
    if (this.#ringCount === 0) return mulpduBytes;
    const leftBytes = this.#packetBytes - this.#packetUsedBytes - DATA_HEADER_BYTES;
    const roomBytes = (leftBytes & ~3) - SSN_BYTES;
    return roomBytes < FILLING_MIN_BYTES ? mulpduBytes : Math.min(mulpduBytes, roomBytes);
  }

  liftHighWater(): void {
    this.#highWaterBytes = Number.POSITIVE_INFINITY;
  }

  // Inputs

  /** The transport has taken the oldest `bytes` polled bytes. */
  flushed(bytes: number): void {
    let left = bytes;
    while (left > 0) {
      const head = this.#chunks[0];
      assert(head !== undefined, 'flushed more than was polled');
      const taken = Math.min(left, head.polled - head.flushed);
      assert(taken > 0, 'flushed more than was polled');
      head.flushed += taken;
      left -= taken;
      this.#queuedBytes -= taken;
      if (head.flushed < head.committed) continue;
      if (this.#chunks.length === 1 && this.#ulpduLength > 0) continue;
      this.#chunks.shift();
      this.#pool.release(head.bytes);
      if (this.#chunks.length === 0) this.#dropViews();
    }
  }

  /** Releases all chunks. The transport must hold no view of them. */
  release(): void {
    for (const chunk of this.#chunks) this.#pool.release(chunk.bytes);
    this.#chunks.length = 0;
    this.#ringCount = 0;
    this.#queuedBytes = 0;
    this.#ulpduLength = 0;
    this.#dropViews();
  }

  // Outputs

  /** The next message, or undefined. It is reused after `flushed`. */
  pollTransmit(): Transmit | undefined {
    if (this.#ringCount === 0) return undefined;
    const entry = this.#ring[this.#ringHead] ?? 0;
    this.#ringHead = (this.#ringHead + 1) % this.#ring.length;
    this.#ringCount -= 1;
    const transmit = this.#transmit;
    transmit.followed = this.#ringCount > 0;
    if (!transmit.followed) this.#packetUsedBytes = 0;
    const control = entry >= CONTROL_BIT;
    const length = control ? entry - CONTROL_BIT : entry;
    transmit.payloadProtocol = control ? PayloadProtocol.sessionControl : PayloadProtocol.segment;
    for (const chunk of this.#chunks) {
      if (chunk.polled === chunk.committed) continue;
      const start = chunk.polled;
      chunk.polled += length;
      transmit.bytes = chunk.bytes.subarray(start, chunk.polled);
      return transmit;
    }
    return undefined;
  }

  // Getters

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** True when a segment has been written. */
  get hasSpoken(): boolean {
    return this.#hasSpoken;
  }

  #dropViews(): void {
    this.bytes = NO_BYTES;
    this.#transmit.bytes = NO_BYTES;
  }

  // SCTP-5.2.1-02: one counter for segments and control messages.
  #nextSsn(): number {
    const ssn = this.#ssn;
    this.#ssn = (ssn + 1) & SSN_MASK;
    return ssn;
  }

  #commit(tail: OutputChunk, length: number, control: boolean): void {
    tail.committed += length;
    this.#queuedBytes += length;
    if (this.#ringCount === this.#ring.length) this.#growRing();
    const at = (this.#ringHead + this.#ringCount) % this.#ring.length;
    this.#ring[at] = control ? length + CONTROL_BIT : length;
    this.#ringCount += 1;
    const chunkBytes = DATA_HEADER_BYTES + ((length + 3) & ~3);
    const leftBytes = this.#packetBytes - this.#packetUsedBytes;
    if (chunkBytes <= leftBytes) this.#packetUsedBytes += chunkBytes;
    else if (leftBytes < PACKET_FULL_BYTES) this.#packetUsedBytes = chunkBytes;
    else this.#packetUsedBytes = 0;
  }

  /** Room for chunks of segments in a packet. */
  get #packetBytes(): number {
    return DATA_HEADER_BYTES + SSN_BYTES + this.segmentMaxBytes;
  }

  #growRing(): void {
    const ring = new Uint32Array(this.#ring.length * 2);
    const first = this.#ring.subarray(this.#ringHead);
    ring.set(first);
    ring.set(this.#ring.subarray(0, this.#ringHead), first.length);
    this.#ring = ring;
    this.#ringHead = 0;
  }

  /** The current chunk if `bytes` more fit, else a new one. */
  #chunkWithRoom(bytes: number): OutputChunk {
    const tail = this.#chunks[this.#chunks.length - 1];
    if (tail?.hasRoom(bytes)) return tail;
    const chunk = new OutputChunk(this.#pool.acquire());
    this.#chunks.push(chunk);
    return chunk;
  }
}
