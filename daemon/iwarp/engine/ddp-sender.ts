/**
 * The outbound half of DDP: writes the headers and counts the MSNs of segments, one segment at a
 * time (RFC 5041 §4, §5.2).
 *
 * A segment is written in place. `beginTagged` or `beginUntagged` reserves it and writes its
 * header, the caller writes the payload at the position returned, and `commit` frames it. A segment
 * that is begun and not committed leaves no trace.
 */
import {
  makeTaggedHeader,
  makeUntaggedHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
  writeTaggedHeader,
  writeUntaggedHeader,
} from '../wire/ddp-header.ts';
import { QUEUE_COUNT } from '../wire/rdmap-header.ts';
import type { UlpduWriter } from './lower-layer.ts';

/** `#endsMessageOf` when the current segment ends no untagged message. */
const NO_QUEUE = -1;

/** Reused for every segment of all streams: a header is written as soon as it is filled in. */
const TAGGED = makeTaggedHeader();
const UNTAGGED = makeUntaggedHeader();

export class DDPSender {
  readonly #writer: UlpduWriter;
  /** The next MSN of each queue, modulo 2^32. */
  readonly #msn: number[];
  #mulpduBytes: number;
  #endsMessageOf = NO_QUEUE;

  /**
   * `mulpduBytes`: the longest segment, header included, 128 to 64768. `firstMsn` is 1 on every
   * stream; tests of the wrap start elsewhere.
   */
  // DDP-4.3-06
  constructor(writer: UlpduWriter, mulpduBytes: number, firstMsn = 1) {
    this.#writer = writer;
    this.#mulpduBytes = mulpduBytes;
    this.#msn = new Array<number>(QUEUE_COUNT).fill(firstMsn);
  }

  /** A new MULPDU, for later segments (DDP-3-02). */
  set mulpduBytes(bytes: number) {
    this.#mulpduBytes = bytes;
  }

  /** Payload bytes that fit the next tagged segment. */
  get taggedRoomBytes(): number {
    return this.#writer.ulpduRoomBytes(this.#mulpduBytes) - TAGGED_HEADER_BYTES;
  }

  /** Payload bytes that fit the next untagged segment. */
  get untaggedRoomBytes(): number {
    return this.#writer.ulpduRoomBytes(this.#mulpduBytes) - UNTAGGED_HEADER_BYTES;
  }

  /** The buffer for payload, valid from `begin…` to `commit`. */
  get bytes(): Uint8Array {
    return this.#writer.bytes;
  }

  /**
   * Begins a tagged segment. Returns the position for its payload, or -1 when the output is full.
   */
  // DDP-5.2-01 the caller cuts payload to `taggedRoomBytes`.
  beginTagged(
    last: boolean,
    ulp: number,
    stag: number,
    toHi: number,
    toLo: number,
    payloadBytes: number,
  ): number {
    const writer = this.#writer;
    if (!writer.begin(TAGGED_HEADER_BYTES + payloadBytes)) return -1;
    const at = writer.ulpduStart;
    const header = TAGGED;
    header.last = last;
    header.ulp = ulp;
    header.stag = stag;
    header.toHi = toHi;
    header.toLo = toLo;
    writeTaggedHeader(writer.bytes, at, header);
    this.#endsMessageOf = NO_QUEUE;
    return at + TAGGED_HEADER_BYTES;
  }

  /**
   * Begins an untagged segment. Returns the position for its payload, or -1 when the output is full.
   */
  // DDP-4.3-09 every segment of a message carries the MSN of its queue's current message.
  beginUntagged(
    last: boolean,
    ulp: number,
    ulpWord: number,
    qn: number,
    mo: number,
    payloadBytes: number,
  ): number {
    const writer = this.#writer;
    if (!writer.begin(UNTAGGED_HEADER_BYTES + payloadBytes)) return -1;
    const at = writer.ulpduStart;
    const header = UNTAGGED;
    header.last = last;
    header.ulp = ulp;
    header.ulpWord = ulpWord;
    header.qn = qn;
    header.msn = this.#msn[qn] ?? 0;
    header.mo = mo;
    writeUntaggedHeader(writer.bytes, at, header);
    this.#endsMessageOf = last ? qn : NO_QUEUE;
    return at + UNTAGGED_HEADER_BYTES;
  }

  /** Frames the current segment. */
  commit(): void {
    this.#writer.commit();
    const qn = this.#endsMessageOf;
    if (qn === NO_QUEUE) return;
    // DDP-4.3-07 DDP-4.3-08 DDP-4.3-10 per message, per queue, modulo 2^32.
    this.#msn[qn] = ((this.#msn[qn] ?? 0) + 1) >>> 0;
    this.#endsMessageOf = NO_QUEUE;
  }
}
