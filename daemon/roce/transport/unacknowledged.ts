/** The common part of the wires of UC and UD, which send each message once, without acknowledgements. */
import { QPState } from '#contract/verbs/enums';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import {
  AccessRefusal,
  type DeferringUser,
  InboundMessage,
  OutboundMessage,
  type WireFailure,
} from '#daemon/rnic/wire-port';
import { Packet } from '../wire/packet.ts';
import { Outcome } from './outcome.ts';
import { OutgoingMessage } from './outgoing-messages.ts';
import type { TransportFailure } from './packet-wire.ts';

export abstract class UnacknowledgedWire {
  /** The peer drops a message that was sent in part and then flushed. */
  readonly midSend = false;
  readonly timeouts = 0;
  sqPsn = 0;
  protected readonly user: DeferringUser;
  protected readonly outcome = new Outcome();
  protected readonly message = new OutboundMessage();
  protected readonly outgoing = new OutgoingMessage();
  protected readonly packet = new Packet();
  protected readonly inbound = new InboundMessage();
  /** The path is known. */
  protected ready = false;
  protected maySend = false;
  /** A message waits for its payload. */
  protected waits = false;
  /** Messages polled to their end; their payload may not have been gathered. */
  protected ended = 0;

  constructor(user: DeferringUser) {
    this.user = user;
  }

  get polledSpan(): number {
    return this.packet.span;
  }

  get sendable(): boolean {
    return this.maySend && !this.outcome.stopped;
  }

  modified(path: QPPath, state: QPState): void {
    if (!this.maySend) this.sqPsn = path.sqPsn;
    this.ready = true;
    this.maySend ||= state === QPState.RTS || state === QPState.SQD;
  }

  pump(): void {
    this.waits = false;
  }

  disconnect(): void {}

  abort(): void {
    this.outcome.stopped = true;
  }

  fail(_failure: WireFailure): void {
    this.abort();
  }

  /** Completes the messages: from now on the program may reuse their memory. */
  endPolling(): boolean {
    const { user, ended } = this;
    this.ended = 0;
    if (user.gatheringEnded() !== AccessRefusal.none) {
      this.failHere('local memory of a work request is gone');
      return false;
    }
    for (let count = 0; count < ended; count += 1) user.messageDone();
    return true;
  }

  pollFailure(): TransportFailure | undefined {
    return this.outcome.poll();
  }

  protected failHere(text: string): void {
    this.outcome.fail('us', { kind: 'local', text });
  }
}
