/** The wire of a reliable connection (RC): a requester and a responder that share the output. */
import type { Micros } from '#base/time';
import { QPState } from '#contract/verbs/enums';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import { AccessRefusal, type DeferringUser, type WireFailure } from '#daemon/rnic/wire-port';
import {
  opcodeTraits,
  operationOf,
  PacketOperation,
  Service,
  serviceOf,
  Trait,
} from '../wire/opcode.ts';
import type { Packet } from '../wire/packet.ts';
import { Outcome } from './outcome.ts';
import type { PacketWire, TransportFailure } from './packet-wire.ts';
import { Requester } from './requester.ts';
import { Responder } from './responder.ts';

/** Default limit of unacknowledged packets: 256 KiB at the largest MTU. */
const WINDOW_PACKETS = 64;

export class ReliableWire implements PacketWire {
  /** Only datagrams have their own destinations. */
  readonly destination = undefined;
  readonly midSend = false;
  polledSpan = 1;
  readonly #outcome = new Outcome();
  readonly #requester: Requester;
  readonly #responder: Responder;
  #sendable = false;
  /** Whether the responder sends the next packet first. */
  #answersFirst = false;

  readonly #user: DeferringUser;

  constructor(user: DeferringUser, windowPackets = WINDOW_PACKETS) {
    this.#user = user;
    this.#requester = new Requester(user, this.#outcome, windowPackets);
    this.#responder = new Responder(user, this.#outcome);
  }

  // Getters

  get sendable(): boolean {
    return this.#sendable && !this.#outcome.stopped;
  }
  get sqPsn(): number {
    return this.#requester.sqPsn;
  }
  get rqPsn(): number {
    return this.#responder.rqPsn;
  }
  get timeouts(): number {
    return this.#requester.timeouts;
  }

  // Commands

  modified(path: QPPath, state: QPState): void {
    this.#sendable = state === QPState.RTS || state === QPState.SQD;
    this.#responder.configure(path);
    this.#requester.configure(path, this.#sendable);
  }

  pace(first: number, most: number): void {
    this.#requester.pace(first, most);
  }

  pump(): void {
    this.#requester.resume();
    this.#responder.resume();
  }

  /** Does nothing: RC has no packet that closes a connection. */
  disconnect(): void {}

  abort(): void {
    this.#outcome.stopped = true;
    this.#requester.stop();
    this.#responder.stop();
  }

  /** Stops without notifying the peer, which times out. */
  fail(_failure: WireFailure): void {
    this.abort();
  }

  // Inputs

  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array, now: Micros): void {
    const { opcode } = packet;
    if (this.#outcome.stopped || serviceOf(opcode) !== Service.rc) return;
    if ((opcodeTraits(opcode) & Trait.request) !== 0) {
      this.#responder.handleRequest(packet, bytes);
    } else if (operationOf(opcode) === PacketOperation.acknowledge) {
      this.#requester.handleAcknowledge(packet, now);
    } else {
      this.#requester.handleResponse(packet, bytes, now);
    }
  }

  handleInputEnd(): void {
    const lost = this.#user.inputEnded() !== AccessRefusal.none;
    if (this.#outcome.stopped) return;
    if (!lost) this.#responder.settled();
    else if (!this.#responder.memoryLost()) {
      this.#requester.memoryLost('local memory of a Read is gone');
    }
  }

  refuse(syndrome: number): void {
    if (!this.#outcome.stopped) this.#responder.refuse(syndrome);
  }

  assertInvariants(): void {
    this.#requester.assertInvariants();
    this.#responder.assertInvariants();
  }

  nextDeadline(): Micros {
    return this.#requester.nextDeadline();
  }

  handleDeadline(now: Micros): void {
    if (!this.#outcome.stopped) this.#requester.handleDeadline(now);
  }

  // Output

  /** Alternates between requests and answers, so that neither starves. */
  pollPacket(
    target: Uint8Array,
    start: number,
    now: Micros,
    wholeBytes = 0,
    lends = false,
  ): number {
    const answersFirst = this.#answersFirst;
    this.#answersFirst = !answersFirst;
    return (
      this.#pollEnd(answersFirst, target, start, now, wholeBytes, lends) ||
      this.#pollEnd(!answersFirst, target, start, now, wholeBytes, lends)
    );
  }

  #pollEnd(
    answers: boolean,
    target: Uint8Array,
    start: number,
    now: Micros,
    wholeBytes: number,
    lends: boolean,
  ): number {
    const bytes = answers
      ? this.#responder.poll(target, start, wholeBytes)
      : this.#requester.poll(target, start, now, wholeBytes, lends);
    if (bytes > 0) this.polledSpan = (answers ? this.#responder : this.#requester).polledSpan;
    return bytes;
  }

  endPolling(): boolean {
    const refusal = this.#user.gatheringEnded();
    if (refusal === AccessRefusal.none) {
      this.#responder.gathered();
      return true;
    }
    if (refusal === AccessRefusal.stagInvalid) this.#responder.takeBack();
    else this.#requester.memoryLost('local memory of a work request is gone');
    return false;
  }

  pollFailure(): TransportFailure | undefined {
    return this.#outcome.poll();
  }
}
