/**
 * The DDP rules of inbound segments: header length, version, queue, MSN, MO and TO wrap
 * (RFC 5041 §4, §5, §7.1). What a message means, and where its octets go, is RDMAP's.
 *
 * MPA delivers each segment once and in order, so placement and delivery happen in one pass and no
 * reordering state is kept (DDP-3-03). Two choices that the RFC leaves open:
 *
 *  - the next MSN of each queue is the only valid one (DDP-7.1-06): a gap could never be filled;
 *  - MO has to be the number of octets that came before (DDP-5.3-04, DDP-5.3-05 allow more): nobody
 *    sends otherwise over TCP, siw is as strict, and no hole of a receive can show old data.
 *
 * Order of checks: length, DDP version, queue, MSN, then RDMAP version and opcode, then MO, and
 * only then buffers, so that a bad message takes no receive and leaves memory untouched.
 */
import {
  DDP_VERSION,
  DDPControl,
  TAGGED_HEADER_BYTES,
  TaggedField,
  UNTAGGED_HEADER_BYTES,
  UntaggedField,
} from '../wire/ddp-header.ts';
import { readUint8, readUint32 } from '../wire/octets.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import { QUEUE_COUNT } from '../wire/rdmap-header.ts';
import { toWraps } from './tagged-offset.ts';

/** The layer above DDP, as far as it takes part in receiving. Octets are borrowed for the call. */
export interface DDPReceiverUser {
  /** May a tagged message with this RsvdULP octet come now? Called before placement. */
  checkTagged(ulp: number): ProtocolError | undefined;
  /** May an untagged message with this first RsvdULP octet come on `qn`? Called before placement. */
  checkUntagged(ulp: number, qn: number): ProtocolError | undefined;
  /** Places a tagged segment's payload, and delivers the message when `last`. */
  placeTagged(
    ulp: number,
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined;
  /**
   * Places an untagged segment's payload at `mo` of its message, and delivers the message, of
   * `mo + length` octets, when `last`. `ulpWord` is RsvdULP's other 32 bits, `segment` is where the
   * segment's header starts in `octets`.
   */
  placeUntagged(
    qn: number,
    ulp: number,
    ulpWord: number,
    mo: number,
    octets: Uint8Array,
    segment: number,
    length: number,
    last: boolean,
  ): ProtocolError | undefined;
}

/** Largest length of a message, exclusive (DDP-5.2-02). */
const MESSAGE_BYTES_LIMIT = 0x1_0000_0000;

/** The inbound half of DDP. */
export class DDPReceiver {
  readonly #user: DDPReceiverUser;
  readonly #queueCount: number;
  /** Per queue: the MSN due next (modulo 2^32), and the octets of its message so far. */
  readonly #msn = new Uint32Array(QUEUE_COUNT);
  readonly #receivedBytes = new Float64Array(QUEUE_COUNT);
  /** Bit per queue: a message has begun and its last segment is missing. */
  #openQueues = 0;

  /**
   * `queueCount`: untagged queues that exist, 3, or 4 with RFC 7306. `firstMsn` is 1 on every
   * stream; tests of the wrap start elsewhere.
   */
  constructor(user: DDPReceiverUser, queueCount: number, firstMsn = 1) {
    this.#user = user;
    this.#queueCount = queueCount;
    this.#msn.fill(firstMsn);
  }

  /** True while an untagged message lacks its last segment. */
  get midMessage(): boolean {
    return this.#openQueues !== 0;
  }

  /** Takes one segment: `octets[start, start + length)`, borrowed. Returns the rule it breaks. */
  // DDP-3-01 the length comes from MPA. DDP-7.1-16 every check precedes placement.
  handleSegment(octets: Uint8Array, start: number, length: number): ProtocolError | undefined {
    // DDP-4.4-01 DDP-4.4-02 no DDP code exists for a segment shorter than its header.
    if (length === 0) return shortSegment(length);
    const control = readUint8(octets, start);
    // DDP-4.1-02 T decides the placement model.
    return (control & DDPControl.tagged) !== 0
      ? this.#handleTagged(control, octets, start, length)
      : this.#handleUntagged(control, octets, start, length);
  }

  #handleTagged(
    control: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    if (length < TAGGED_HEADER_BYTES) return shortSegment(length);
    // DDP-4.1-12 DDP-7.2-05
    if ((control & DDPControl.version) !== DDP_VERSION) {
      return new ProtocolError('ddpTaggedVersion', `version ${control & DDPControl.version}`);
    }
    const ulp = readUint8(octets, start + TaggedField.ulp);
    const refused = this.#user.checkTagged(ulp);
    if (refused !== undefined) return refused;
    const toHi = readUint32(octets, start + TaggedField.toHi);
    const toLo = readUint32(octets, start + TaggedField.toLo);
    const payloadBytes = length - TAGGED_HEADER_BYTES;
    // DDP-7.1-14 DDP-7.1-17 before any bounds check. DDP-5.2-11 no TO wraps with no payload.
    if (toWraps(toHi, toLo, payloadBytes)) {
      return new ProtocolError('ddpToWrap', `${payloadBytes} octets at the end of the space`);
    }
    return this.#user.placeTagged(
      ulp,
      readUint32(octets, start + TaggedField.stag),
      toHi,
      toLo,
      octets,
      start + TAGGED_HEADER_BYTES,
      payloadBytes,
      (control & DDPControl.last) !== 0,
    );
  }

  #handleUntagged(
    control: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    if (length < UNTAGGED_HEADER_BYTES) return shortSegment(length);
    // DDP-4.1-12 DDP-7.2-05
    if ((control & DDPControl.version) !== DDP_VERSION) {
      return new ProtocolError('ddpUntaggedVersion', `version ${control & DDPControl.version}`);
    }
    const qn = readUint32(octets, start + UntaggedField.qn);
    // DDP-7.1-01
    if (qn >= this.#queueCount) return new ProtocolError('ddpInvalidQn', `QN ${qn}`);
    const msn = readUint32(octets, start + UntaggedField.msn);
    // DDP-7.1-05 DDP-7.1-06 DDP-4.3-08
    if (msn !== this.#msn[qn]) {
      return new ProtocolError('ddpInvalidMsn', `MSN ${msn} on QN ${qn}, ${this.#msn[qn]} is due`);
    }
    const ulp = readUint8(octets, start + UntaggedField.ulp);
    const refused = this.#user.checkUntagged(ulp, qn);
    if (refused !== undefined) return refused;
    const mo = readUint32(octets, start + UntaggedField.mo);
    // DDP-7.1-03 a stricter rule than the buffer's length, see above.
    if (mo !== this.#receivedBytes[qn]) {
      return new ProtocolError('ddpInvalidMo', `MO ${mo} after ${this.#receivedBytes[qn]} octets`);
    }
    const payloadBytes = length - UNTAGGED_HEADER_BYTES;
    // DDP-7.1-03 DDP-5.2-02 no 32-bit wrap to a low offset.
    if (mo + payloadBytes >= MESSAGE_BYTES_LIMIT) return new ProtocolError('ddpTooLong');
    const last = (control & DDPControl.last) !== 0;
    const ulpWord = readUint32(octets, start + UntaggedField.ulpWord);
    // Noted before the call: delivery of a message may ask whether one is under way.
    if (last) {
      // DDP-4.3-07 DDP-4.3-08 per message and modulo 2^32. DDP-5.3-06 delivered at most once.
      this.#msn[qn] = msn + 1;
      this.#receivedBytes[qn] = 0;
      this.#openQueues &= ~(1 << qn);
    } else {
      this.#receivedBytes[qn] = mo + payloadBytes;
      this.#openQueues |= 1 << qn;
    }
    return this.#user.placeUntagged(qn, ulp, ulpWord, mo, octets, start, payloadBytes, last);
  }
}

function shortSegment(length: number): ProtocolError {
  return new ProtocolError('ddpLocalCatastrophic', `a segment of ${length} octets has no header`);
}
