/**
 * The wire of an unreliable connection (UC, IBTA 9.8.2): each message is sent once, and the receiver drops a
 * message with a missing packet. It continues with the next message that starts.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { QPState } from '#contract/verbs/enums';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { opcodeTraits, Service, serviceOf, Trait } from '../wire/opcode.ts';
import type { Packet } from '../wire/packet.ts';
import { pathMtuBytes } from '../wire/path-mtu.ts';
import { addPsn } from '../wire/psn.ts';
import { addressAddHi, addressAddLo } from './address.ts';
import { packetsOf } from './outgoing-messages.ts';
import type { PacketWire } from './packet-wire.ts';
import { describeSegment, fitsSpan, isSegmented, spanOf, writeSegment } from './segment.ts';
import { UnacknowledgedWire } from './unacknowledged.ts';

/** Kind of the message being received. */
const Open = { none: 0, send: 1, write: 2 } as const;
type Open = (typeof Open)[keyof typeof Open];

export class UnreliableWire extends UnacknowledgedWire implements PacketWire {
  readonly destination = undefined;
  #mtu = 256;
  // Output
  #sending = false;
  #offset = 0;
  /** Payload has been fetched. */
  #fetches = false;
  // Input
  rqPsn = 0;
  #open: Open = Open.none;
  /** A receive is taken. If its message is dropped, the next message uses it. */
  #receive = false;
  #received = 0;
  #length = 0;
  #stag = 0;
  #toHi = 0;
  #toLo = 0;

  assertInvariants(): void {
    if (this.outcome.stopped) return;
    const open = this.#open;
    assert(open !== Open.send || this.#receive, 'open Send without a receive');
    const beyond = open === Open.write && this.#received > this.#length;
    assert(!beyond, 'received more than the length of a Write');
    assert(!this.#sending || this.ready, 'message sent before the path is known');
  }

  nextDeadline(): Micros {
    return NEVER;
  }

  // Commands

  override modified(path: QPPath, state: QPState): void {
    this.packet.destQpn = path.destQpNum;
    if (!this.ready) {
      // Fixed afterwards: messages may be in flight.
      this.#mtu = pathMtuBytes(path.pathMtu) ?? 256;
      this.rqPsn = path.rqPsn;
    }
    super.modified(path, state);
  }

  handleDeadline(): void {}

  // Output

  pollPacket(target: Uint8Array, start: number, _now: Micros, wholeBytes = 0): number {
    if (!this.sendable || this.waits || (!this.#sending && !this.#take())) return 0;
    const outgoing = this.outgoing;
    const packet = this.packet;
    const offset = this.#offset;
    const left = packetsOf(outgoing.lengthBytes - offset, this.#mtu);
    const span = spanOf(left, wholeBytes, this.#mtu, this.#fetches);
    describeSegment(packet, outgoing, offset, span * this.#mtu, Service.uc);
    const size = packet.payloadLength;
    if (size > 0 && !this.user.prepareGather(outgoing.slot, offset, size)) {
      this.waits = true;
      this.#fetches = true;
      return 0;
    }
    packet.psn = this.sqPsn;
    packet.span = span;
    const bytes = writeSegment(this.user, packet, outgoing.slot, offset, target, start);
    if (bytes < 0) {
      this.failHere('local memory of a work request is gone');
      return 0;
    }
    this.sqPsn = addPsn(this.sqPsn, span);
    this.#offset = offset + size;
    if (this.#offset === outgoing.lengthBytes) {
      this.#sending = false;
      this.ended += 1;
    }
    return bytes;
  }

  #take(): boolean {
    const message = this.message;
    if (!this.user.nextMessage(message)) return false;
    if (!isSegmented(message.kind)) {
      this.failHere('opcode not supported on UC queue pairs');
      return false;
    }
    this.outgoing.describe(message, this.sqPsn, this.#mtu);
    this.#sending = true;
    this.#offset = 0;
    return true;
  }

  // Input

  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array): void {
    const { opcode, psn, span } = packet;
    if (!this.ready || this.outcome.stopped || serviceOf(opcode) !== Service.uc) return;
    const traits = opcodeTraits(opcode);
    const kind = (traits & Trait.send) !== 0 ? Open.send : Open.write;
    if ((traits & Trait.starts) !== 0) {
      this.#open = Open.none;
      this.rqPsn = addPsn(psn, span);
      if (!this.#begin(kind, packet)) return;
    } else {
      // IBTA 9.8.2.2.3: a gap loses the message, up to the start of the next one.
      if (psn !== this.rqPsn || kind !== this.#open) this.#open = Open.none;
      if (this.#open === Open.none) return;
      this.rqPsn = addPsn(psn, span);
    }
    if (!this.#place(packet, bytes, (traits & Trait.ends) !== 0)) this.#open = Open.none;
    else if ((traits & Trait.ends) !== 0) this.#end(packet, traits);
  }

  /** Writes everything received at once. A completed receive waits for that. */
  handleInputEnd(): void {
    if (this.outcome.stopped || this.user.inputEnded() === AccessRefusal.none) return;
    this.failHere('memory of a receive or Write is gone');
  }

  #begin(kind: Open, { rkey, vaHi, vaLo, dmaLength }: Readonly<Packet>): boolean {
    if (kind === Open.send) {
      if (!this.#beginReceive()) return false;
    } else {
      const user = this.user;
      if (user.checkWriteTarget(rkey, vaHi, vaLo, dmaLength) !== AccessRefusal.none) return false;
      this.#length = dmaLength;
      this.#stag = rkey;
      this.#toHi = vaHi;
      this.#toLo = vaLo;
    }
    this.#open = kind;
    this.#received = 0;
    return true;
  }

  #beginReceive(): boolean {
    if (this.#receive) return true;
    const refusal = this.user.beginReceive();
    if (refusal === AccessRefusal.none) this.#receive = true;
    else if (refusal !== AccessRefusal.noBuffer) this.failHere('a posted receive is malformed');
    return refusal === AccessRefusal.none;
  }

  /** False if the message is dropped. */
  #place(packet: Readonly<Packet>, bytes: Uint8Array, ends: boolean): boolean {
    const { payloadStart, payloadLength } = packet;
    if (!fitsSpan(packet, this.#mtu, ends)) return false;
    const user = this.user;
    const received = this.#received;
    this.#received = received + payloadLength;
    if (this.#open === Open.send) {
      if (payloadLength === 0) return true;
      const refusal = user.placeReceive(received, bytes, payloadStart, payloadLength);
      if (refusal !== AccessRefusal.none) this.failHere('message does not fit its receive');
      return refusal === AccessRefusal.none;
    }
    const fits = ends ? this.#received === this.#length : this.#received < this.#length;
    if (!fits) return false;
    if (payloadLength === 0) return true;
    const hi = addressAddHi(this.#toHi, this.#toLo, received);
    const lo = addressAddLo(this.#toLo, received);
    const refusal = user.placeWrite(this.#stag, hi, lo, bytes, payloadStart, payloadLength);
    return refusal === AccessRefusal.none;
  }

  #end(packet: Readonly<Packet>, traits: number): void {
    const inbound = this.inbound;
    const user = this.user;
    const written = this.#open === Open.write;
    const immediate = (traits & Trait.immediate) !== 0;
    this.#open = Open.none;
    if (written) user.writeCompleted();
    // Without a receive the immediate data is lost, but the Write stays.
    if (written && (!immediate || !this.#beginReceive())) return;
    inbound.written = written;
    inbound.lengthBytes = written ? this.#length : this.#received;
    inbound.solicited = packet.solicited;
    inbound.hasImmediate = immediate;
    inbound.immediateLo = immediate ? packet.immediate : 0;
    this.#receive = false;
    if (user.completeReceive(inbound) !== AccessRefusal.none)
      this.failHere('memory of a receive is gone');
  }
}
