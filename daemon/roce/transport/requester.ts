/**
 * The requester of a reliable connection (IBTA 9.7.3, 9.7.5, 9.7.7): sends the messages of its queue pair, and
 * retransmits them until they are acknowledged.
 *
 * Every packet of a message has a PSN; a Read has those of its response. Unacknowledged packets lie between
 * `#unackedPsn` and `#sendPsn`, at most a window. After a NAK or a timeout, sending goes back to `#unackedPsn`
 * (go-back-N). Reads longer than the first window are requested in parts, so that the answers cannot outrun the
 * receiver either.
 */
import { assert } from '#base/assert';
import { Deadlines } from '#base/deadlines';
import { type Micros, NEVER } from '#base/time';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import {
  AccessRefusal,
  type DeferringUser,
  MessageFailure,
  OutboundKind,
  OutboundMessage,
  type WireCause,
} from '#daemon/rnic/wire-port';
import { opcodeTraits, operationOf, PacketOperation, Service, Trait } from '../wire/opcode.ts';
import { Packet, packetBytes, writeHeaders } from '../wire/packet.ts';
import { pathMtuBytes } from '../wire/path-mtu.ts';
import { addPsn, psnDistance } from '../wire/psn.ts';
import {
  ackTimeoutMicros,
  NakCode,
  rnrTimerMicros,
  SyndromeKind,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome.ts';
import { addressAddHi, addressAddLo } from './address.ts';
import type { Outcome } from './outcome.ts';
import { type OutgoingMessage, OutgoingMessages } from './outgoing-messages.ts';
import { Pacing } from './pacing.ts';
import { describeSegment, isSegmented, spanOf, writeLentSegment, writeSegment } from './segment.ts';

/** Unacknowledged messages; a power of two. More would only fill memory with WQEs. */
const MESSAGES_MAX = 128;
/** Reads and atomics in flight, whatever the queue pair asks for. */
const REQUESTS_MAX = 128;
/** The longest message, 2^31 bytes (IBTA 9.7.1: half of the PSN space at the smallest MTU). */
const MESSAGE_BYTES_MAX = 2 ** 31;
/** Lent payload that may be unacknowledged, for the copies of several messages to overlap with the rest. */
const LENT_BYTES_MAX = 2_097_152;
/** The value of `rnrRetry` that means "unlimited". */
const RNR_RETRY_FOREVER = 7;
const ATOMIC_FETCH_ADD = 0;
const NONE = -1;

const Timer = {
  /** The program's, for an acknowledgment. */
  ack: 0,
  /** When a paced connection retransmits, earlier than the program's timer. */
  ask: 1,
  /** Until the receiver may be ready. */
  rnr: 2,
} as const;

/** The failure for a NAK that ends the connection; undefined for other NAKs. */
const NAK_FAILURES: Readonly<Partial<Record<number, MessageFailure>>> = {
  [NakCode.invalidRequest]: MessageFailure.remoteInvalidRequest,
  [NakCode.remoteAccess]: MessageFailure.remoteAccess,
  [NakCode.remoteOperation]: MessageFailure.remoteOperation,
};
/** Kinds by which a host counts failures. Default: 'protocol'. */
const FAILURE_KINDS: Readonly<Partial<Record<MessageFailure, string>>> = {
  [MessageFailure.retriesExceeded]: 'timeout',
  [MessageFailure.rnrRetriesExceeded]: 'receiver-not-ready',
};
const FAILURE_TEXTS: Readonly<Record<MessageFailure, string>> = {
  [MessageFailure.remoteAccess]: 'the peer denied access to its memory',
  [MessageFailure.remoteInvalidRequest]: 'the peer rejected the request as invalid',
  [MessageFailure.remoteOperation]: 'the peer failed to execute the request',
  [MessageFailure.retriesExceeded]: 'no response from the peer after all retries (retry_cnt)',
  [MessageFailure.rnrRetriesExceeded]: 'receiver not ready after all retries (rnr_retry)',
  [MessageFailure.badResponse]: 'the peer sent an invalid response',
};

export class Requester {
  /** How often packets were retransmitted after a timeout. */
  timeouts = 0;
  readonly #user: DeferringUser;
  readonly #outcome: Outcome;
  /** Packets of a part of a Read. Unless paced, also how many packets may be unacknowledged. */
  #window: number;
  /** Undefined on a lossless network. */
  #pacing: Pacing | undefined = undefined;
  readonly #messages = new OutgoingMessages(MESSAGES_MAX);
  readonly #message = new OutboundMessage();
  readonly #packet = new Packet();
  #open = false;
  #mtu = 256;
  #timeoutMicros: Micros = NEVER;
  #retryCnt = 0;
  #rnrRetry = 0;
  #requestsMax = 1;
  /** The PSN of the next message. */
  #nextPsn = 0;
  /** The PSN of the next packet, and the index of its message. */
  #sendPsn = 0;
  #cursor = 0;
  /** All PSNs before this one are acknowledged. */
  #unackedPsn = 0;
  /** All PSNs before this one were sent at least once. */
  #highPsn = 0;
  /** Last PSN of each request in flight, as a ring. */
  readonly #requestEnds = new Uint32Array(REQUESTS_MAX);
  #requestsFirst = 0;
  #requests = 0;
  #retriesLeft = 0;
  #rnrLeft = 0;
  /** `#unackedPsn` at the last rewind without a timeout, or `NONE`. */
  #rewoundPsn = NONE;
  readonly #timers = new Deadlines(Timer);
  /** Sending waits for payload to be fetched. */
  #waits = false;
  /** Payload has been fetched. */
  #fetches = false;

  /** `windowPackets`: how many packets may be unacknowledged. */
  constructor(user: DeferringUser, outcome: Outcome, windowPackets: number) {
    this.#user = user;
    this.#outcome = outcome;
    this.#window = windowPackets;
  }

  // Getters

  get sqPsn(): number {
    return this.#open ? this.#sendPsn : this.#nextPsn;
  }

  get polledSpan(): number {
    return this.#packet.span;
  }

  nextDeadline(): Micros {
    return this.#timers.next();
  }

  // Commands

  /** Applies attributes. `sends`: the queue pair is in RTS or SQD. */
  configure(attributes: QPPath, sends: boolean): void {
    const { sqPsn, maxRdAtomic, retryCnt, rnrRetry } = attributes;
    const packet = this.#packet;
    packet.pkey = 0xffff;
    packet.destQpn = attributes.destQpNum;
    this.#timeoutMicros = ackTimeoutMicros(attributes.timeout);
    this.#retryCnt = retryCnt;
    this.#rnrRetry = rnrRetry;
    this.#requestsMax = Math.min(Math.max(maxRdAtomic, 1), REQUESTS_MAX);
    if (this.#open) return;
    // Must not change later: messages in flight were split by it.
    this.#mtu = pathMtuBytes(attributes.pathMtu) ?? 256;
    this.#nextPsn = sqPsn;
    if (!sends) return;
    this.#open = true;
    this.#sendPsn = sqPsn;
    this.#unackedPsn = sqPsn;
    this.#highPsn = sqPsn;
    this.#retriesLeft = retryCnt;
    this.#rnrLeft = rnrRetry;
  }

  pace(first: number, most: number): void {
    // The window determines the parts of Reads in flight.
    if (this.#open) return;
    this.#window = first;
    this.#pacing = new Pacing(first, most);
  }

  /** Retries after memory may have become ready. */
  resume(): void {
    this.#waits = false;
  }

  stop(): void {
    this.#messages.clear();
    this.#timers.clearAll();
  }

  /** Throws `InvariantError`. Cheap: once a turn. */
  assertInvariants(): void {
    if (!this.#open || this.#outcome.stopped) return;
    const { count } = this.#messages;
    const unacked = this.#unackedPsn;
    assert(this.#cursor <= count, 'next packet beyond the last message');
    assert(psnDistance(this.#sendPsn, unacked) >= 0, 'next packet is already acknowledged');
    assert(psnDistance(this.#highPsn, this.#sendPsn) >= 0, 'next PSN beyond the highest one sent');
    assert(count > 0 || unacked === this.#nextPsn, 'unacknowledged PSNs without a message');
    assert(count > 0 || this.#requests === 0, 'requests in flight without a message');
    assert(this.#limit() <= (this.#pacing?.most ?? this.#window), 'pacing exceeds the window');
    assert(this.#requests <= REQUESTS_MAX, 'too many requests in flight');
  }

  // Time

  handleDeadline(now: Micros): void {
    const timers = this.#timers;
    if (timers.passed(Timer.rnr, now)) timers.clear(Timer.rnr);
    if (!timers.passed(Timer.ack, now)) {
      if (timers.passed(Timer.ask, now)) this.#askAgain();
      return;
    }
    // Nothing is lost: the answer comes once the payload is copied.
    if (this.#user.lending) {
      timers.set(Timer.ack, now + this.#timeoutMicros);
      return;
    }
    if (this.#retriesLeft === 0) {
      this.#fail(MessageFailure.retriesExceeded, {
        kind: 'no-answer',
        psn: this.#unackedPsn,
        retries: this.#retryCnt,
        timeoutMicros: this.#timeoutMicros,
      });
      return;
    }
    this.#retriesLeft -= 1;
    this.timeouts += 1;
    timers.clear(Timer.ack);
    this.#askAgain();
  }

  // Output

  /** Writes the next request packet at `start`. Returns its length, or 0 if there is none now. */
  poll(target: Uint8Array, start: number, now: Micros, wholeBytes: number, lends: boolean): number {
    if (!this.#open || this.#outcome.stopped || this.#waits) return 0;
    if (this.#user.unread) return 0;
    if (this.#timers.isSet(Timer.rnr)) return 0;
    if (this.#sendPsn === this.#nextPsn && !this.#take()) return 0;
    const message = this.#messages.at(this.#cursor);
    if (isSegmented(message.kind))
      return this.#sendSegment(message, target, start, now, wholeBytes, lends);
    if (this.#awaitsCopies()) return 0;
    return message.kind === OutboundKind.readRequest
      ? this.#sendRead(message, target, start, now)
      : this.#sendAtomic(message, target, start, now);
  }

  #take(): boolean {
    if (this.#messages.full || this.#ahead() >= this.#lentLimit()) return false;
    const message = this.#message;
    if (!this.#user.nextMessage(message)) return false;
    const { kind, lengthBytes } = message;
    const known =
      isSegmented(kind) || kind === OutboundKind.readRequest || kind === OutboundKind.atomic;
    if (!known || lengthBytes > MESSAGE_BYTES_MAX) {
      this.#failLocally(
        'work request longer than 2^31 bytes, or opcode not supported on RC queue pairs',
      );
      return false;
    }
    const entry = this.#messages.push();
    entry.describe(message, this.#nextPsn, this.#mtu);
    this.#nextPsn = addPsn(this.#nextPsn, entry.packets);
    return true;
  }

  /** Packets sent and not acknowledged. */
  #ahead(): number {
    return psnDistance(this.#sendPsn, this.#unackedPsn);
  }

  /** How many packets may be unacknowledged. */
  #limit(): number {
    return this.#pacing === undefined ? this.#window : this.#pacing.limit;
  }

  /** How many packets may be unacknowledged if their payload is lent. */
  #lentLimit(): number {
    return Math.max(this.#limit(), Math.floor(LENT_BYTES_MAX / this.#mtu));
  }

  #sendSegment(
    message: OutgoingMessage,
    target: Uint8Array,
    start: number,
    now: Micros,
    wholeBytes: number,
    mayLend: boolean,
  ): number {
    const packet = this.#packet;
    const index = psnDistance(this.#sendPsn, message.firstPsn);
    const offset = index * this.#mtu;
    const lends = mayLend && this.#lends(message, offset, wholeBytes);
    // Nothing may reach the receiver's memory before payload that is still being copied there.
    if (!lends && this.#awaitsCopies()) return 0;
    const room = (lends ? this.#lentLimit() : this.#limit()) - this.#ahead();
    if (room <= 0) return 0;
    const span = spanOf(
      Math.min(message.packets - index, room),
      wholeBytes,
      this.#mtu,
      this.#fetches,
    );
    describeSegment(packet, message, offset, span * this.#mtu, Service.rc);
    const size = packet.payloadLength;
    if (size > 0 && !this.#user.prepareGather(message.slot, offset, size)) {
      this.#waits = true;
      this.#fetches = true;
      return 0;
    }
    packet.psn = this.#sendPsn;
    packet.span = span;
    // Often enough for acknowledgments to arrive before a full window is used up.
    const interval = Math.max(this.#limit() >> 2, 1);
    const next = index + span;
    packet.ackRequest = next === message.packets || next % interval < span;
    const write = lends ? writeLentSegment : writeSegment;
    const bytes = write(this.#user, packet, message.slot, offset, target, start);
    if (bytes < 0) {
      this.#failLocally('local memory of a work request is gone');
      return 0;
    }
    this.#sent(span, message, now);
    return bytes;
  }

  /** True if the next packet of the message lends its payload. */
  #lends(message: OutgoingMessage, offset: number, wholeBytes: number): boolean {
    // What is alone on its way arrives sooner if the daemon copies it at once.
    if (this.#ahead() === 0) return false;
    const size = Math.min(message.lengthBytes - offset, wholeBytes);
    return size > 0 && this.#user.mayLend(message.slot, offset, size);
  }

  /** True if the next packet must wait for lent payload; then the wire is pumped once that is copied. */
  #awaitsCopies(): boolean {
    if (!this.#user.lending) return false;
    this.#user.awaitCopies();
    return true;
  }

  // Parts begin at fixed places: a repeated part must not extend past the part that was requested first.
  #sendRead(message: OutgoingMessage, target: Uint8Array, start: number, now: Micros): number {
    const done = psnDistance(this.#sendPsn, message.firstPsn);
    const part = this.#window;
    const end = Math.min(message.packets, (Math.floor(done / part) + 1) * part);
    if (!this.#mayRequest(end - done)) return 0;
    const offset = done * this.#mtu;
    const packet = this.#packet;
    packet.opcode = Service.rc | PacketOperation.readRequest;
    packet.vaHi = addressAddHi(message.remoteToHi, message.remoteToLo, offset);
    packet.vaLo = addressAddLo(message.remoteToLo, offset);
    packet.rkey = message.remoteStag;
    packet.dmaLength = Math.min(message.lengthBytes, end * this.#mtu) - offset;
    return this.#request(end - done, message, target, start, now);
  }

  #sendAtomic(message: OutgoingMessage, target: Uint8Array, start: number, now: Micros): number {
    if (!this.#mayRequest(1)) return 0;
    const add = message.atomicOperation === ATOMIC_FETCH_ADD;
    const packet = this.#packet;
    packet.opcode = Service.rc | (add ? PacketOperation.fetchAdd : PacketOperation.compareSwap);
    packet.vaHi = message.remoteToHi;
    packet.vaLo = message.remoteToLo;
    packet.rkey = message.remoteStag;
    packet.swapAddHi = message.operandHi;
    packet.swapAddLo = message.operandLo;
    packet.compareHi = message.compareHi;
    packet.compareLo = message.compareLo;
    return this.#request(1, message, target, start, now);
  }

  #mayRequest(count: number): boolean {
    const ahead = this.#ahead();
    return this.#requests < this.#requestsMax && (ahead === 0 || ahead + count <= this.#limit());
  }

  /** Sends `#packet`, whose response has `count` packets. */
  #request(
    count: number,
    message: OutgoingMessage,
    target: Uint8Array,
    start: number,
    now: Micros,
  ): number {
    const packet = this.#packet;
    packet.solicited = false;
    packet.payloadLength = 0;
    packet.span = 1;
    packet.psn = this.#sendPsn;
    packet.ackRequest = true;
    writeHeaders(target, start, packet);
    const at = (this.#requestsFirst + this.#requests) % REQUESTS_MAX;
    this.#requestEnds[at] = addPsn(this.#sendPsn, count - 1);
    this.#requests += 1;
    this.#sent(count, message, now);
    return packetBytes(packet);
  }

  #sent(count: number, message: OutgoingMessage, now: Micros): void {
    const pacing = this.#pacing;
    if (pacing !== undefined) {
      if (this.#sendPsn === this.#highPsn) pacing.sent(this.#sendPsn, now);
      this.#timers.start(Timer.ask, now + pacing.patienceMicros);
    }
    this.#sendPsn = addPsn(this.#sendPsn, count);
    if (this.#sendPsn === addPsn(message.firstPsn, message.packets)) this.#cursor += 1;
    if (psnDistance(this.#sendPsn, this.#highPsn) > 0) this.#highPsn = this.#sendPsn;
    this.#timers.start(Timer.ack, now + this.#timeoutMicros);
  }

  // Responses

  /** Handles an ACK or NAK without data. */
  handleAcknowledge(packet: Readonly<Packet>, now: Micros): void {
    const { psn, syndrome } = packet;
    const value = syndromeValue(syndrome);
    switch (syndromeKind(syndrome)) {
      case SyndromeKind.ack:
        if (this.#isUnacked(psn)) this.#acknowledge(psn, now);
        return;
      case SyndromeKind.rnrNak:
        if (this.#acknowledgeBefore(psn, now)) this.#backOff(value, now);
        return;
      default:
        if (this.#acknowledgeBefore(psn, now)) this.#refused(value);
    }
  }

  /** Handles a packet of a response to a Read or an atomic. */
  handleResponse(packet: Readonly<Packet>, bytes: Uint8Array, now: Micros): void {
    // A response implies that all earlier requests were executed (IBTA 9.7.5.1.2).
    if (!this.#acknowledgeBefore(packet.psn, now)) return;
    const message = this.#messages.at(0);
    if (operationOf(packet.opcode) === PacketOperation.atomicAcknowledge) {
      if (message.kind !== OutboundKind.atomic) {
        this.#fail(MessageFailure.badResponse);
        return;
      }
      this.#user.atomicCompleted(packet.originalHi, packet.originalLo);
      this.#completeRequest(message, now);
      return;
    }
    this.#place(message, packet, bytes, now);
  }

  #place(message: OutgoingMessage, packet: Readonly<Packet>, bytes: Uint8Array, now: Micros): void {
    const user = this.#user;
    const { psn, payloadStart, payloadLength, span } = packet;
    const index = psnDistance(psn, message.firstPsn);
    const offset = index * this.#mtu;
    const expected = Math.min(span * this.#mtu, message.lengthBytes - offset);
    const asked = message.kind === OutboundKind.readRequest && payloadLength === expected;
    // A whole packet of a smaller path MTU may have the length, but has too many PSNs.
    const end = index + span;
    const last = end === message.packets;
    if (!asked || end > message.packets || !this.#fitsPlace(packet, index, last)) {
      this.#fail(MessageFailure.badResponse);
      return;
    }
    if (payloadLength > 0) {
      const refusal = user.placeReadPart(offset, bytes, payloadStart, payloadLength);
      if (refusal !== AccessRefusal.none) {
        this.#failLocally('local memory of a Read is gone');
        return;
      }
    }
    if (!last) {
      this.#advance(addPsn(psn, span), now);
      return;
    }
    user.readCompleted();
    this.#completeRequest(message, now);
  }

  /**
   * True if the opcode (first, middle, last or only) fits the place in the response. Parts end at
   * fixed places; a part that was requested again may begin anywhere in it.
   */
  #fitsPlace({ opcode, span }: Readonly<Packet>, index: number, last: boolean): boolean {
    const traits = opcodeTraits(opcode);
    const place = index % this.#window;
    const end = place + span;
    const ends = last || end === this.#window;
    if (end > this.#window || ((traits & Trait.ends) !== 0) !== ends) return false;
    return place > 0 || (traits & Trait.starts) !== 0;
  }

  #completeRequest(message: OutgoingMessage, now: Micros): void {
    this.#advance(addPsn(message.lastPsn, 1), now);
    this.#endOldest();
  }

  /** True for a PSN that was sent and is not acknowledged. */
  #isUnacked(psn: number): boolean {
    const ahead = psnDistance(psn, this.#unackedPsn);
    return ahead >= 0 && ahead < psnDistance(this.#highPsn, this.#unackedPsn);
  }

  /** Acknowledges everything up to `psn`. False if a response to any of it was lost. */
  #acknowledge(psn: number, now: Micros): boolean {
    while (psnDistance(psn, this.#unackedPsn) >= 0 && this.#messages.count > 0) {
      const message = this.#messages.at(0);
      if (message.awaitsResponse) {
        // IBTA 9.7.5.1.2: an implied NAK.
        this.#repeat();
        return false;
      }
      if (psnDistance(psn, message.lastPsn) < 0) {
        this.#advance(addPsn(psn, 1), now);
        return true;
      }
      this.#advance(addPsn(message.lastPsn, 1), now);
      this.#endOldest();
    }
    return true;
  }

  /** Acknowledges everything before `psn`. True if `psn` is now the oldest unacknowledged one. */
  #acknowledgeBefore(psn: number, now: Micros): boolean {
    if (!this.#isUnacked(psn)) return false;
    return psn === this.#unackedPsn || this.#acknowledge(addPsn(psn, -1), now);
  }

  #endOldest(): void {
    this.#messages.shift();
    if (this.#cursor > 0) this.#cursor -= 1;
    this.#user.messageDone();
  }

  #advance(psn: number, now: Micros): void {
    const pacing = this.#pacing;
    pacing?.acknowledged(psnDistance(psn, this.#unackedPsn), psn, now);
    this.#unackedPsn = psn;
    this.#retriesLeft = this.#retryCnt;
    this.#rnrLeft = this.#rnrRetry;
    this.#rewoundPsn = NONE;
    this.#timers.clear(Timer.rnr);
    // Skip retransmissions that this answer makes unnecessary.
    if (psnDistance(this.#sendPsn, psn) < 0) {
      this.#sendPsn = psn;
      this.#cursor = 0;
    }
    while (this.#requests > 0) {
      const end = this.#requestEnds[this.#requestsFirst] ?? 0;
      if (psnDistance(psn, end) <= 0) break;
      this.#requestsFirst = (this.#requestsFirst + 1) % REQUESTS_MAX;
      this.#requests -= 1;
    }
    const done = this.#sendPsn === psn;
    const patienceMicros = pacing === undefined ? NEVER : pacing.patienceMicros;
    this.#timers.set(Timer.ack, done ? NEVER : now + this.#timeoutMicros);
    this.#timers.set(Timer.ask, done ? NEVER : now + patienceMicros);
  }

  // Retransmission

  #rewind(): void {
    this.#sendPsn = this.#unackedPsn;
    this.#cursor = 0;
    this.#requests = 0;
    this.#waits = false;
    this.#timers.clear(Timer.ask);
  }

  /** No answer came in time: retransmits. The program's timer continues. */
  #askAgain(): void {
    this.#pacing?.unanswered();
    this.#rewind();
  }

  /** Retransmits at once, but once per position: one loss causes many NAKs. */
  #repeat(): void {
    if (this.#rewoundPsn === this.#unackedPsn) return;
    this.#rewoundPsn = this.#unackedPsn;
    this.#pacing?.lost();
    this.#timers.clear(Timer.ack);
    this.#rewind();
  }

  // IBTA 9.7.5.2.8: waits until the receiver had time to post.
  #backOff(timer: number, now: Micros): void {
    if (this.#timers.isSet(Timer.rnr)) return;
    if (this.#rnrRetry < RNR_RETRY_FOREVER) {
      if (this.#rnrLeft === 0) {
        const timerMicros = rnrTimerMicros(timer);
        const retries = this.#rnrRetry;
        this.#fail(MessageFailure.rnrRetriesExceeded, { kind: 'not-ready', retries, timerMicros });
        return;
      }
      this.#rnrLeft -= 1;
    }
    // The peer does answer: only timeouts use up these retries.
    this.#retriesLeft = this.#retryCnt;
    // Nothing was lost, but the wait is not a round trip.
    this.#pacing?.sentAgain();
    this.#rewind();
    this.#timers.clear(Timer.ack);
    this.#timers.set(Timer.rnr, now + rnrTimerMicros(timer));
  }

  #refused(code: number): void {
    if (code === NakCode.psnSequence) this.#repeat();
    else this.#fail(NAK_FAILURES[code] ?? MessageFailure.badResponse);
  }

  // Failures

  #fail(failure: MessageFailure, cause: WireCause = { kind: 'refused', failure }): void {
    this.#user.messageFailed(failure);
    const kind = FAILURE_KINDS[failure] ?? 'protocol';
    this.#outcome.fail('peer', { kind, text: FAILURE_TEXTS[failure], cause });
    this.stop();
  }

  /** Fails because memory of our program is gone. */
  memoryLost(text: string): void {
    this.#failLocally(text);
  }

  #failLocally(text: string): void {
    this.#outcome.fail('us', { kind: 'local', text });
    this.stop();
  }
}
