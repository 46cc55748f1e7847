/**
 * The responder of a reliable connection (IBTA 9.7.4, 9.7.5.1): executes the peer's requests in the order of
 * their PSNs, each once, and answers them.
 *
 * Answers are sent in the order of the requests: first data of Reads and results of atomics, then one
 * acknowledgement for everything before. A missing packet is answered with one NAK; everything after it is
 * dropped until it is sent again.
 */
import { assert } from '#base/assert';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import {
  AccessRefusal,
  AtomicAccess,
  type DeferringUser,
  InboundMessage,
  type WireFailure,
} from '#daemon/rnic/wire-port';
import { opcodeTraits, operationOf, PacketOperation, Service, Trait } from '../wire/opcode.ts';
import { Packet, packetBytes, writeHeaders } from '../wire/packet.ts';
import { pathMtuBytes } from '../wire/path-mtu.ts';
import { addPsn, psnDistance } from '../wire/psn.ts';
import {
  ACK_WITHOUT_CREDITS,
  NakCode,
  nakSyndrome,
  rnrSyndrome,
  SyndromeKind,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome.ts';
import { addressAddHi, addressAddLo } from './address.ts';
import type { Outcome } from './outcome.ts';
import { packetsOf } from './outgoing-messages.ts';
import { Replies, type Reply } from './replies.ts';
import { fitsSpan, padPayload, spanOf } from './segment.ts';

/** The longest message (IBTA 9.7.1). */
const MESSAGE_BYTES_MAX = 2 ** 31;
/** Requests in flight that are served, whatever the queue pair announced. */
const DEPTH_MAX = 128;
const ATOMIC_BYTES = 8;
const NO_NAK = -1;
/** Codes of RFC 7306, which `WireUser` takes. */
const AtomicCode = { fetchAdd: 0, compareSwap: 2 } as const;
const ALL_ONES = 0xffff_ffff;

/** Kind of the message being received. */
const Open = { none: 0, send: 1, write: 2 } as const;
type Open = (typeof Open)[keyof typeof Open];

function accessNak(refusal: AccessRefusal): NakCode {
  if (refusal === AccessRefusal.notPermitted || refusal === AccessRefusal.misaligned)
    return NakCode.invalidRequest;
  return refusal === AccessRefusal.memoryLost || refusal === AccessRefusal.ownerGone
    ? NakCode.remoteOperation
    : NakCode.remoteAccess;
}

const NAK_TEXTS: Readonly<Partial<Record<NakCode, string>>> = {
  [NakCode.invalidRequest]: 'the peer sent an invalid request',
  [NakCode.remoteAccess]: 'the peer requested memory that it may not access',
  [NakCode.remoteOperation]: 'failed to execute a request of the peer',
};

/** Requests whose payload is still being copied into memory. */
interface Copying {
  /** The PSN after them. */
  readonly psn: number;
  /** They are in memory once this many copies are done. */
  readonly copies: number;
}

export class Responder {
  readonly #user: DeferringUser;
  readonly #outcome: Outcome;
  readonly #packet = new Packet();
  readonly #inbound: InboundMessage = new InboundMessage();
  readonly #atomic: AtomicAccess = new AtomicAccess();
  #replies = new Replies(1);
  #depth = 0;
  #ready = false;
  #mtu = 256;
  #rnrTimer = 0;
  /** PSN of the next request. */
  #expectedPsn = 0;
  /** Everything before this PSN is in memory. */
  #settledPsn = 0;
  /** Requests from `#settledPsn` on, oldest first. */
  readonly #copying: Copying[] = [];
  /** Copies ordered for accepted packets. */
  #copiesNoted = 0;
  /** Some of them have been settled since the last acknowledgment. */
  #copied = false;
  /** Requests executed, modulo 2^24. */
  #msn = 0;
  #open: Open = Open.none;
  /** Bytes received of the open message; for a Write also its length and destination. */
  #received = 0;
  #length = 0;
  #stag = 0;
  #toHi = 0;
  #toLo = 0;
  #ackDue = false;
  /** Syndrome of the pending NAK for the expected PSN. */
  #nak = NO_NAK;
  /** A NAK was sent or is pending, and the expected packet has not arrived since. */
  #refusing = false;
  /**
   * The reason of a final refusal: no more requests are executed, and the queue pair fails after all pending
   * answers to earlier ones are sent.
   */
  #failure: WireFailure | undefined = undefined;
  /** Sending waits for the source memory of a Read to be fetched. */
  #waits = false;
  /** Source memory has been fetched. */
  #fetches = false;
  // Polled since the last gathering; taken back if some of its memory is gone.
  /** Replies that were polled, and how many packets of each were sent before. */
  readonly #polled: Reply[] = [];
  readonly #polledSent: number[] = [];
  #polledAck = false;
  #polledNak = NO_NAK;
  /** Gather each packet separately, to find the one whose memory is gone. */
  #direct = false;

  constructor(user: DeferringUser, outcome: Outcome) {
    this.#user = user;
    this.#outcome = outcome;
  }

  get rqPsn(): number {
    return this.#expectedPsn;
  }

  get polledSpan(): number {
    return this.#packet.span;
  }

  // Commands

  configure(attributes: QPPath): void {
    const { rqPsn, maxDestRdAtomic } = attributes;
    this.#packet.destQpn = attributes.destQpNum;
    this.#rnrTimer = attributes.minRnrTimer;
    if (!this.#ready) {
      // Fixed afterwards: a message or a reply may be in flight.
      this.#mtu = pathMtuBytes(attributes.pathMtu) ?? 256;
      this.#expectedPsn = rqPsn;
      this.#settledPsn = rqPsn;
    }
    const depth = Math.min(maxDestRdAtomic, DEPTH_MAX);
    // In SQD the depth may change. The peer repeats requests whose replies are dropped here.
    if (depth !== this.#depth) this.#replies = new Replies(Math.max(depth, 1));
    this.#depth = depth;
    this.#ready = true;
  }

  resume(): void {
    this.#waits = false;
    this.settled();
  }

  /** Sends no more data. Acknowledges what was settled already. */
  stop(): void {
    this.#replies.clear();
    this.gathered();
    this.#waits = false;
    if (this.#settledPsn === this.#expectedPsn) return;
    this.#ackDue = false;
    this.#nak = NO_NAK;
  }

  /** Throws `InvariantError`. Call at the end of a turn. */
  assertInvariants(): void {
    if (!this.#ready || this.#outcome.stopped) return;
    assert(this.#nak === NO_NAK || this.#refusing, 'pending NAK without a refusal');
    assert(this.#failure === undefined || this.#refusing, 'failure without a refusal');
    const beyond = this.#open === Open.write && this.#received > this.#length;
    assert(!beyond, 'received more than the length of a Write');
  }

  // Input

  handleRequest(packet: Readonly<Packet>, bytes: Uint8Array): void {
    if (!this.#ready || this.#failure !== undefined) return;
    const ahead = psnDistance(packet.psn, this.#expectedPsn);
    if (ahead > 0) this.#handleGap();
    else if (ahead < 0 && -ahead < packet.span) this.#askForRest();
    else if (ahead < 0) this.#handleRepeated(packet, -ahead);
    else this.#handleExpected(packet, bytes);
  }

  refuse(syndrome: number): void {
    if (!this.#ready || this.#failure !== undefined) return;
    const code = syndromeValue(syndrome);
    if (syndromeKind(syndrome) === SyndromeKind.nak && code !== NakCode.psnSequence) {
      this.#refuse(code as NakCode);
      return;
    }
    this.#refusing = true;
    this.#nak = syndrome;
  }

  // IBTA 9.7.5.1.1: one NAK per gap.
  #handleGap(): void {
    if (this.#refusing) return;
    this.#refusing = true;
    this.#nak = nakSyndrome(NakCode.psnSequence);
  }

  /** Answers a packet of which the first PSNs are old: the peer repeats it from the expected one. */
  #askForRest(): void {
    this.#refusing = true;
    this.#nak = nakSyndrome(NakCode.psnSequence);
  }

  #handleExpected(packet: Readonly<Packet>, bytes: Uint8Array): void {
    // The missing packet arrived: cancel its NAK.
    this.#nak = NO_NAK;
    const traits = opcodeTraits(packet.opcode);
    const starts = (traits & Trait.starts) !== 0;
    if (starts !== (this.#open === Open.none)) {
      this.#refuse(NakCode.invalidRequest);
    } else if ((traits & Trait.send) !== 0) {
      this.#handleSend(packet, bytes, traits);
    } else if ((traits & Trait.write) !== 0) {
      this.#handleWrite(packet, bytes, traits);
    } else if (operationOf(packet.opcode) === PacketOperation.readRequest) {
      this.#handleRead(packet);
    } else {
      this.#handleAtomic(packet);
    }
  }

  /**
   * True if the payload length is legal at this place (IBTA 9.7.4.1.5): only an "only" packet may have none.
   */
  #fits(packet: Readonly<Packet>, ends: boolean): boolean {
    if (!fitsSpan(packet, this.#mtu, ends)) return false;
    return packet.payloadLength > 0 || this.#open === Open.none;
  }

  #handleSend(packet: Readonly<Packet>, bytes: Uint8Array, traits: number): void {
    const user = this.#user;
    const ends = (traits & Trait.ends) !== 0;
    const { payloadLength } = packet;
    if (this.#open === Open.write || !this.#fits(packet, ends)) {
      this.#refuse(NakCode.invalidRequest);
      return;
    }
    if (this.#open === Open.none) {
      if (!this.#beginReceive()) return;
      this.#open = Open.send;
      this.#received = 0;
    }
    if (payloadLength > 0) {
      const { payloadStart } = packet;
      const refusal = user.placeReceive(this.#received, bytes, payloadStart, payloadLength);
      if (refusal !== AccessRefusal.none) {
        this.#refuse(NakCode.remoteOperation, true);
        return;
      }
      this.#received += payloadLength;
    }
    if (!ends) {
      this.#accept(packet, packet.span);
      return;
    }
    const inbound = this.#inbound;
    inbound.written = false;
    inbound.lengthBytes = this.#received;
    inbound.invalidates = (traits & Trait.ieth) !== 0;
    inbound.invalidateStag = packet.invalidateRkey;
    this.#deliver(packet, traits);
  }

  #handleWrite(packet: Readonly<Packet>, bytes: Uint8Array, traits: number): void {
    const user = this.#user;
    const ends = (traits & Trait.ends) !== 0;
    const { payloadLength } = packet;
    const first = this.#open === Open.none;
    const left = first ? packet.dmaLength : this.#length - this.#received;
    const whole = ends ? payloadLength === left : payloadLength < left;
    if (this.#open === Open.send || !this.#fits(packet, ends) || !whole) {
      this.#refuse(NakCode.invalidRequest);
      return;
    }
    if (first && !this.#checkTarget(packet)) return;
    // Before the packet has an effect: it is repeated if no receive is posted.
    const immediate = (traits & Trait.immediate) !== 0;
    if (immediate && !this.#beginReceive()) return;
    if (first) this.#openWrite(packet);
    if (payloadLength > 0 && !this.#placeWrite(packet, bytes)) return;
    if (!ends) {
      this.#accept(packet, packet.span);
      return;
    }
    user.writeCompleted();
    if (!immediate) {
      this.#finish(packet);
      return;
    }
    const inbound = this.#inbound;
    inbound.written = true;
    inbound.lengthBytes = this.#length;
    inbound.invalidates = false;
    this.#deliver(packet, traits);
  }

  #checkTarget({ rkey, vaHi, vaLo, dmaLength }: Readonly<Packet>): boolean {
    if (dmaLength > MESSAGE_BYTES_MAX) {
      this.#refuse(NakCode.invalidRequest);
      return false;
    }
    const refusal = this.#user.checkWriteTarget(rkey, vaHi, vaLo, dmaLength);
    if (refusal !== AccessRefusal.none) this.#refuse(accessNak(refusal), true);
    return refusal === AccessRefusal.none;
  }

  #openWrite(packet: Readonly<Packet>): void {
    this.#open = Open.write;
    this.#received = 0;
    this.#length = packet.dmaLength;
    this.#stag = packet.rkey;
    this.#toHi = packet.vaHi;
    this.#toLo = packet.vaLo;
  }

  #placeWrite({ payloadStart, payloadLength }: Readonly<Packet>, bytes: Uint8Array): boolean {
    const user = this.#user;
    const hi = addressAddHi(this.#toHi, this.#toLo, this.#received);
    const lo = addressAddLo(this.#toLo, this.#received);
    const refusal = user.placeWrite(this.#stag, hi, lo, bytes, payloadStart, payloadLength);
    this.#received += payloadLength;
    if (refusal !== AccessRefusal.none) this.#refuse(accessNak(refusal), true);
    return refusal === AccessRefusal.none;
  }

  /** Takes a receive. False if there is none and the packet is refused. */
  #beginReceive(): boolean {
    const refusal = this.#user.beginReceive();
    if (refusal === AccessRefusal.none) return true;
    if (refusal === AccessRefusal.noBuffer) {
      this.#refusing = true;
      this.#nak = rnrSyndrome(this.#rnrTimer);
    } else {
      this.#refuse(NakCode.remoteOperation, true);
    }
    return false;
  }

  /** Completes the receive of a message with its last packet. */
  #deliver(packet: Readonly<Packet>, traits: number): void {
    const inbound = this.#inbound;
    inbound.solicited = packet.solicited;
    inbound.hasImmediate = (traits & Trait.immediate) !== 0;
    inbound.immediateLo = inbound.hasImmediate ? packet.immediate : 0;
    const refusal = this.#user.completeReceive(inbound);
    if (refusal === AccessRefusal.none || inbound.invalidates) {
      this.#finish(packet);
      // The message itself arrived, so acknowledge it, as rxe does.
      if (refusal === AccessRefusal.none) return;
      const text = 'the peer tried to invalidate a key that it may not';
      this.#failure = { kind: 'protocol', text, event: 'request' };
      this.#refusing = true;
      return;
    }
    this.#refuse(NakCode.remoteOperation, true);
  }

  /** True for a Read or atomic without payload, within the peer's limit of requests in flight. */
  #mayAsk({ payloadLength }: Readonly<Packet>): boolean {
    return payloadLength === 0 && this.#depth > 0 && !this.#replies.full;
  }

  #handleRead(packet: Readonly<Packet>): void {
    const { rkey, vaHi, vaLo, dmaLength } = packet;
    if (!this.#mayAsk(packet) || dmaLength > MESSAGE_BYTES_MAX) {
      this.#refuse(NakCode.invalidRequest);
      return;
    }
    const refusal = this.#user.checkReadSource(rkey, vaHi, vaLo, dmaLength);
    if (refusal !== AccessRefusal.none) {
      this.#refuse(accessNak(refusal), true);
      return;
    }
    const reply = this.#reply(packet, false);
    this.#msn = addPsn(this.#msn, 1);
    reply.msn = this.#msn;
    this.#replies.add(reply);
    this.#accept(packet, reply.packets);
    // The response acknowledges everything before it.
    this.#ackDue = false;
  }

  #handleAtomic(packet: Readonly<Packet>): void {
    if (!this.#mayAsk(packet)) {
      this.#refuse(NakCode.invalidRequest);
      return;
    }
    const refusal = this.#execute(packet);
    if (refusal !== AccessRefusal.none) {
      this.#refuse(accessNak(refusal), packet.vaLo % ATOMIC_BYTES === 0);
      return;
    }
    const reply = this.#reply(packet, false);
    this.#msn = addPsn(this.#msn, 1);
    reply.msn = this.#msn;
    reply.originalHi = this.#atomic.originalHi;
    reply.originalLo = this.#atomic.originalLo;
    this.#replies.remember(reply);
    this.#replies.add(reply);
    this.#accept(packet, 1);
    this.#ackDue = false;
  }

  #execute(packet: Readonly<Packet>): AccessRefusal {
    const atomic = this.#atomic;
    const add = operationOf(packet.opcode) === PacketOperation.fetchAdd;
    const swapMask = add ? 0 : ALL_ONES;
    atomic.operation = add ? AtomicCode.fetchAdd : AtomicCode.compareSwap;
    atomic.stag = packet.rkey;
    atomic.toHi = packet.vaHi;
    atomic.toLo = packet.vaLo;
    atomic.operandHi = packet.swapAddHi;
    atomic.operandLo = packet.swapAddLo;
    atomic.operandMaskHi = swapMask;
    atomic.operandMaskLo = swapMask;
    atomic.compareHi = add ? 0 : packet.compareHi;
    atomic.compareLo = add ? 0 : packet.compareLo;
    atomic.compareMaskHi = ALL_ONES;
    atomic.compareMaskLo = ALL_ONES;
    if (packet.vaLo % ATOMIC_BYTES !== 0) return AccessRefusal.misaligned;
    return this.#user.executeAtomic(atomic);
  }

  #reply(packet: Readonly<Packet>, repeated: boolean): Reply {
    const reply = this.#replies.spare();
    reply.atomic = operationOf(packet.opcode) !== PacketOperation.readRequest;
    reply.repeated = repeated;
    reply.firstPsn = packet.psn;
    reply.lengthBytes = reply.atomic ? 0 : packet.dmaLength;
    reply.packets = packetsOf(reply.lengthBytes, this.#mtu);
    reply.sent = 0;
    reply.msn = this.#msn;
    reply.stag = packet.rkey;
    reply.toHi = packet.vaHi;
    reply.toLo = packet.vaLo;
    return reply;
  }

  // IBTA 9.7.4.1.2: acknowledge again, execute again, or answer with the saved result.
  #handleRepeated(packet: Readonly<Packet>, distance: number): void {
    const traits = opcodeTraits(packet.opcode);
    if ((traits & (Trait.send | Trait.write)) !== 0) {
      this.#ackDue = true;
      return;
    }
    const reply = this.#reply(packet, true);
    // The whole request must be old.
    if (reply.packets <= distance && this.#mayRepeat(packet, reply)) this.#replies.add(reply);
    else this.#replies.discard(reply);
  }

  /** False if the result is no longer saved, or the memory may no longer be read. */
  #mayRepeat(packet: Readonly<Packet>, reply: Reply): boolean {
    const { rkey, vaHi, vaLo, dmaLength } = packet;
    if (reply.atomic) return this.#replies.recall(packet.psn, reply);
    if (dmaLength > MESSAGE_BYTES_MAX) return false;
    return this.#user.checkReadSource(rkey, vaHi, vaLo, dmaLength) === AccessRefusal.none;
  }

  /** Advances past an executed packet. */
  #accept(packet: Readonly<Packet>, count: number): void {
    const psn = this.#expectedPsn;
    this.#expectedPsn = addPsn(psn, count);
    if (this.#user.copiesOrdered !== this.#copiesNoted) this.#noteCopies(psn);
    this.#refusing = false;
    if (packet.ackRequest) this.#ackDue = true;
  }

  /** The payload of the packet with this PSN is copied later; that of all before it may be acknowledged earlier. */
  #noteCopies(psn: number): void {
    const { copiesOrdered } = this.#user;
    const copying = this.#copying;
    if (copying.length === 0 && psn !== this.#settledPsn) {
      copying.push({ psn, copies: this.#copiesNoted });
    }
    copying.push({ psn: this.#expectedPsn, copies: copiesOrdered });
    this.#copiesNoted = copiesOrdered;
  }

  /** Advances past an executed message. */
  #finish(packet: Readonly<Packet>): void {
    this.#open = Open.none;
    this.#msn = addPsn(this.#msn, 1);
    this.#accept(packet, packet.span);
  }

  /** Allows acknowledging everything executed so far, unless some of it is still being placed. */
  settled(): void {
    const { placing, copiesOrdered, copiesDone } = this.#user;
    const copying = this.#copying;
    if (!placing) {
      this.#settledPsn = this.#expectedPsn;
      copying.length = 0;
      return;
    }
    const last = copying.at(-1)?.psn ?? this.#settledPsn;
    if (copiesOrdered > copiesDone && last !== this.#expectedPsn) {
      copying.push({ psn: this.#expectedPsn, copies: copiesOrdered });
    }
    let count = 0;
    while ((copying[count]?.copies ?? Number.POSITIVE_INFINITY) <= copiesDone) count += 1;
    if (count === 0) return;
    this.#settledPsn = (copying[count - 1] as Copying).psn;
    this.#copied = true;
    copying.splice(0, count);
  }

  /** Memory was lost: acknowledges nothing since the last settled state. False if nothing was lost. */
  memoryLost(): boolean {
    if (this.#settledPsn === this.#expectedPsn) return false;
    this.#expectedPsn = this.#settledPsn;
    this.#copying.length = 0;
    // Answer earlier requests first, or the NAK after them would count as a lost answer.
    this.#replies.clearFrom(this.#settledPsn);
    this.#refuse(NakCode.remoteOperation, true);
    return true;
  }

  /** Queues a NAK that ends the connection. `found`: the queue pair reports the cause itself. */
  #refuse(code: NakCode, found = false): void {
    this.#refusing = true;
    this.#nak = nakSyndrome(code);
    const failure = { kind: 'protocol', text: NAK_TEXTS[code] ?? '', sent: 'a NAK', found };
    if (code === NakCode.remoteOperation) this.#failure = failure;
    else {
      const event = code === NakCode.remoteAccess ? 'access' : 'request';
      this.#failure = { ...failure, event };
    }
  }

  // Output

  /** The data of all polled packets was gathered. */
  gathered(): void {
    // Mostly empty, and setting a length is a slow call.
    if (this.#polled.length > 0) {
      this.#polled.length = 0;
      this.#polledSent.length = 0;
    }
    this.#polledAck = false;
    this.#polledNak = NO_NAK;
    this.#direct = false;
  }

  /** Some of the data is gone, so nothing was sent: the next polls return everything before the gap again. */
  takeBack(): void {
    for (let index = this.#polled.length - 1; index >= 0; index -= 1) {
      this.#replies.putBack(this.#polled[index] as Reply, this.#polledSent[index] as number);
    }
    if (this.#polledAck) this.#ackDue = true;
    if (this.#polledNak !== NO_NAK) this.#nak = this.#polledNak;
    this.gathered();
    this.#direct = true;
  }

  #notePolled(reply: Reply): void {
    if (this.#polled.at(-1) === reply) return;
    this.#polled.push(reply);
    this.#polledSent.push(reply.sent);
  }

  /** Writes the next answer at `start`. Returns its length, or 0 if there is none now. */
  poll(target: Uint8Array, start: number, wholeBytes: number): number {
    const settled = this.#settledPsn === this.#expectedPsn;
    if (!settled && !this.#copied) return 0;
    const reply = this.#replies.head;
    const due = settled || reply === undefined || psnDistance(reply.firstPsn, this.#settledPsn) < 0;
    if (reply !== undefined && due) {
      if (this.#waits) return 0;
      if (reply.atomic) return this.#sendResult(reply, target, start);
      const bytes = this.#sendData(reply, target, start, wholeBytes);
      if (bytes >= 0) return bytes;
    }
    this.#copied = false;
    if (!settled) {
      this.#polledAck = true;
      return this.#acknowledge(ACK_WITHOUT_CREDITS, addPsn(this.#settledPsn, -1), target, start);
    }
    const bytes = this.#sendAcknowledgement(target, start);
    if (this.#failure !== undefined) this.#outcome.fail('us', this.#failure);
    return bytes;
  }

  #sendAcknowledgement(target: Uint8Array, start: number): number {
    if (this.#nak !== NO_NAK) {
      const syndrome = this.#nak;
      this.#nak = NO_NAK;
      this.#ackDue = false;
      this.#polledNak = syndrome;
      return this.#acknowledge(syndrome, this.#expectedPsn, target, start);
    }
    if (!this.#ackDue) return 0;
    this.#ackDue = false;
    this.#polledAck = true;
    return this.#acknowledge(ACK_WITHOUT_CREDITS, addPsn(this.#expectedPsn, -1), target, start);
  }

  #acknowledge(syndrome: number, psn: number, target: Uint8Array, start: number): number {
    const packet = this.#packet;
    packet.opcode = Service.rc | PacketOperation.acknowledge;
    packet.psn = psn;
    packet.syndrome = syndrome;
    packet.msn = this.#msn;
    packet.payloadLength = 0;
    packet.span = 1;
    writeHeaders(target, start, packet);
    return packetBytes(packet);
  }

  #sendResult(reply: Reply, target: Uint8Array, start: number): number {
    const packet = this.#packet;
    packet.opcode = Service.rc | PacketOperation.atomicAcknowledge;
    packet.psn = reply.firstPsn;
    packet.syndrome = ACK_WITHOUT_CREDITS;
    packet.msn = reply.msn;
    packet.originalHi = reply.originalHi;
    packet.originalLo = reply.originalLo;
    packet.payloadLength = 0;
    packet.span = 1;
    writeHeaders(target, start, packet);
    this.#notePolled(reply);
    this.#replies.shift();
    return packetBytes(packet);
  }

  /**
   * Writes the next data packet of a Read. Returns -1 if its memory is gone and the request is
   * refused.
   */
  #sendData(reply: Reply, target: Uint8Array, start: number, wholeBytes: number): number {
    const user = this.#user;
    const { stag, packets, sent } = reply;
    const offset = sent * this.#mtu;
    const span = spanOf(packets - sent, wholeBytes, this.#mtu, this.#fetches);
    const size = Math.min(span * this.#mtu, reply.lengthBytes - offset);
    const hi = addressAddHi(reply.toHi, reply.toLo, offset);
    const lo = addressAddLo(reply.toLo, offset);
    if (size > 0 && !user.prepareReadSource(stag, hi, lo, size)) {
      this.#waits = true;
      this.#fetches = true;
      return 0;
    }
    const packet = this.#packet;
    packet.opcode = Service.rc | responseOperation(sent, span, packets);
    packet.psn = addPsn(reply.firstPsn, sent);
    packet.syndrome = ACK_WITHOUT_CREDITS;
    packet.msn = reply.msn;
    packet.payloadLength = size;
    packet.span = span;
    const at = writeHeaders(target, start, packet);
    if (size > 0) {
      const refusal = this.#direct
        ? user.gatherReadSource(stag, hi, lo, size, target, at)
        : user.gatherReadSourceLater(stag, hi, lo, size, target, at);
      if (refusal !== AccessRefusal.none)
        return this.#refuseReply(packet.psn, refusal, target, start);
    }
    padPayload(target, at + size, size);
    this.#notePolled(reply);
    reply.sent += span;
    if (reply.sent === packets) this.#replies.shift();
    return packetBytes(packet);
  }

  /** The memory of a Read went away after its check: sends a NAK in place of the data. */
  #refuseReply(psn: number, refusal: AccessRefusal, target: Uint8Array, start: number): number {
    const code = accessNak(refusal);
    this.#replies.clear();
    this.#refuse(code, true);
    this.#nak = NO_NAK;
    if (this.#failure !== undefined) this.#outcome.fail('us', this.#failure);
    return this.#acknowledge(nakSyndrome(code), psn, target, start);
  }
}

function responseOperation(index: number, span: number, packets: number): PacketOperation {
  const last = index + span === packets;
  if (index > 0)
    return last ? PacketOperation.readResponseLast : PacketOperation.readResponseMiddle;
  return last ? PacketOperation.readResponseOnly : PacketOperation.readResponseFirst;
}
