/**
 * The DDP rules of inbound segments: header length, version, queue, MSN, MO and TO wrap
 * (RFC 5041 §4, §5, §7.1). RDMAP decides what a message means and where its bytes go.
 *
 * MPA delivers each segment once and in order, so placement and delivery happen in one pass and no
 * reordering state is kept (DDP-3-03). Where the RFC leaves a choice:
 *
 *  - only the next MSN of a queue is valid (DDP-7.1-06): a gap could never be filled;
 *  - MO must equal the number of bytes received so far, stricter than DDP-5.3-04 and DDP-5.3-05:
 *    every peer over TCP sends so, siw checks the same, and no gap in a receive can show old data.
 *
 * Order of checks: length, DDP version, queue, MSN, RDMAP version and opcode, MO, and last the
 * buffers. So a bad message takes no receive and leaves memory untouched.
 */
import { readUint8, readUint32 } from '#base/checked-bytes';
import {
  DDP_VERSION,
  DDPControl,
  makeTaggedHeader,
  makeUntaggedHeader,
  TAGGED_HEADER_BYTES,
  TaggedField,
  type TaggedHeader,
  UNTAGGED_HEADER_BYTES,
  UntaggedField,
  type UntaggedHeader,
} from '../wire/ddp-header.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import { QUEUE_COUNT } from '../wire/rdmap-header.ts';
import { toWraps } from './tagged-offset.ts';

/** The layer above DDP. Bytes are borrowed for the call. */
export interface DDPReceiverUser {
  /**
   * Checks that a tagged message with this RsvdULP byte is allowed now. Called before placement.
   */
  checkTagged(ulp: number): ProtocolError | undefined;
  /**
   * The same for an untagged message on `qn`, with its first RsvdULP byte. Called before placement.
   */
  checkUntagged(ulp: number, qn: number): ProtocolError | undefined;
  /**
   * Places a tagged segment's payload, and delivers the message when `header.last`. The header is
   * borrowed for the call, too.
   */
  placeTagged(
    header: Readonly<TaggedHeader>,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined;
  /**
   * Places an untagged segment's payload at `header.mo` of its message. When `header.last`,
   * delivers the message, which is `mo + length` bytes long. The segment's header starts at
   * `segment` in `bytes`.
   */
  placeUntagged(
    header: Readonly<UntaggedHeader>,
    bytes: Uint8Array,
    segment: number,
    length: number,
  ): ProtocolError | undefined;
}

/** First length too large for a message (DDP-5.2-02). */
const MESSAGE_BYTES_LIMIT = 0x1_0000_0000;

/** Reused for every segment of all streams: no call for one lasts beyond its placement. */
const TAGGED = makeTaggedHeader();
const UNTAGGED = makeUntaggedHeader();

/** Shared until a message has several segments: most queue pairs are idle. */
const NOTHING_RECEIVED: number[] = new Array<number>(QUEUE_COUNT).fill(0);

export class DDPReceiver {
  readonly #user: DDPReceiverUser;
  readonly #queueCount: number;
  /** Per queue: the next MSN (modulo 2^32), and the bytes of its message received so far. */
  readonly #msn: number[];
  #receivedBytes = NOTHING_RECEIVED;
  /** One bit per queue: a message has started and its last segment is missing. */
  #openQueues = 0;

  /**
   * `queueCount`: number of untagged queues, 3, or 4 with RFC 7306. `firstMsn` is 1 on every
   * stream; tests of the wrap start elsewhere.
   */
  constructor(user: DDPReceiverUser, queueCount: number, firstMsn = 1) {
    this.#user = user;
    this.#queueCount = queueCount;
    this.#msn = new Array<number>(QUEUE_COUNT).fill(firstMsn);
  }

  /** True while an untagged message lacks its last segment. */
  get midMessage(): boolean {
    return this.#openQueues !== 0;
  }

  /** Handles one segment: `bytes[start, start + length)`, borrowed. Returns the rule it breaks. */
  // DDP-3-01 MPA supplies the length. DDP-7.1-16 every check precedes placement.
  handleSegment(bytes: Uint8Array, start: number, length: number): ProtocolError | undefined {
    // DDP-4.4-01 DDP-4.4-02 DDP has no error code for a segment shorter than its header.
    if (length === 0) return shortSegment(length);
    const control = readUint8(bytes, start);
    // DDP-4.1-02 T selects the placement model.
    return (control & DDPControl.tagged) !== 0
      ? this.#handleTagged(control, bytes, start, length)
      : this.#handleUntagged(control, bytes, start, length);
  }

  #handleTagged(
    control: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    if (length < TAGGED_HEADER_BYTES) return shortSegment(length);
    // DDP-4.1-12 DDP-7.2-05
    if ((control & DDPControl.version) !== DDP_VERSION) {
      return new ProtocolError('ddpTaggedVersion', `version ${control & DDPControl.version}`);
    }
    const ulp = readUint8(bytes, start + TaggedField.ulp);
    const refused = this.#user.checkTagged(ulp);
    if (refused !== undefined) return refused;
    const toHi = readUint32(bytes, start + TaggedField.toHi);
    const toLo = readUint32(bytes, start + TaggedField.toLo);
    const payloadBytes = length - TAGGED_HEADER_BYTES;
    // DDP-7.1-14 DDP-7.1-17 before any bounds check. DDP-5.2-11 without payload no TO wraps.
    if (toWraps(toHi, toLo, payloadBytes)) {
      return new ProtocolError('ddpToWrap', `${payloadBytes} bytes at the end of the space`);
    }
    const header = TAGGED;
    header.last = (control & DDPControl.last) !== 0;
    header.ulp = ulp;
    header.stag = readUint32(bytes, start + TaggedField.stag);
    header.toHi = toHi;
    header.toLo = toLo;
    return this.#user.placeTagged(header, bytes, start + TAGGED_HEADER_BYTES, payloadBytes);
  }

  #handleUntagged(
    control: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    if (length < UNTAGGED_HEADER_BYTES) return shortSegment(length);
    // DDP-4.1-12 DDP-7.2-05
    if ((control & DDPControl.version) !== DDP_VERSION) {
      return new ProtocolError('ddpUntaggedVersion', `version ${control & DDPControl.version}`);
    }
    const qn = readUint32(bytes, start + UntaggedField.qn);
    // DDP-7.1-01
    if (qn >= this.#queueCount) return new ProtocolError('ddpInvalidQn', `QN ${qn}`);
    const msn = readUint32(bytes, start + UntaggedField.msn);
    // DDP-7.1-05 DDP-7.1-06 DDP-4.3-08
    if (msn !== this.#msn[qn]) {
      return new ProtocolError('ddpInvalidMsn', `MSN ${msn} on QN ${qn}, ${this.#msn[qn]} is due`);
    }
    const ulp = readUint8(bytes, start + UntaggedField.ulp);
    const refused = this.#user.checkUntagged(ulp, qn);
    if (refused !== undefined) return refused;
    const mo = readUint32(bytes, start + UntaggedField.mo);
    // DDP-7.1-03 stricter than the buffer's length; see above.
    if (mo !== this.#receivedBytes[qn]) {
      return new ProtocolError('ddpInvalidMo', `MO ${mo} after ${this.#receivedBytes[qn]} bytes`);
    }
    const payloadBytes = length - UNTAGGED_HEADER_BYTES;
    // DDP-7.1-03 DDP-5.2-02 a 32-bit wrap must not lead to a low offset.
    if (mo + payloadBytes >= MESSAGE_BYTES_LIMIT) return new ProtocolError('ddpTooLong');
    const last = (control & DDPControl.last) !== 0;
    const header = UNTAGGED;
    header.last = last;
    header.ulp = ulp;
    header.ulpWord = readUint32(bytes, start + UntaggedField.ulpWord);
    header.qn = qn;
    header.msn = msn;
    header.mo = mo;
    // Updated before the call: delivery of a message may ask whether one is in progress.
    if (last) {
      // DDP-4.3-07 DDP-4.3-08 per message, modulo 2^32. DDP-5.3-06 delivered at most once.
      this.#msn[qn] = (msn + 1) >>> 0;
      if (mo > 0) this.#receivedBytes[qn] = 0;
      this.#openQueues &= ~(1 << qn);
    } else {
      if (this.#receivedBytes === NOTHING_RECEIVED) this.#receivedBytes = [...NOTHING_RECEIVED];
      this.#receivedBytes[qn] = mo + payloadBytes;
      this.#openQueues |= 1 << qn;
    }
    return this.#user.placeUntagged(header, bytes, start, payloadBytes);
  }
}

function shortSegment(length: number): ProtocolError {
  return new ProtocolError('ddpLocalCatastrophic', `a segment of ${length} bytes has no header`);
}
