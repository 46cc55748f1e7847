/**
 * Payload that a send queue lends to a peer on the same host instead of copying it: to packets on their way
 * (`LentPayload`), or to the output of a stream (`LentStream`). It stays in the program's memory, from which the
 * program's agent copies it to the receiver.
 *
 * The wire of packets acknowledges a message once its copies are over. A stream acknowledges nothing, so its
 * framed messages wait here.
 */
import type { LentPayload } from '../memory/lent-payload.ts';
import type { LentStream } from '../memory/lent-stream.ts';
import type { Copier, Lender } from '../memory/memory-backing.ts';
import type { SendWqe } from '../rings/send-wqe.ts';
import { AccessRefusal } from '../wire-port.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { OpenMessages } from './open-messages.ts';

interface LendingUser {
  /** Payload of this message is gone: its work request fails. */
  blameMemory(message: SendWqe): void;
  /** Nothing reads the oldest open message any more. */
  endMessage(message: SendWqe): void;
}

interface LendingParts {
  readonly messages: OpenMessages;
  readonly gate: CompletionGate;
  readonly payload: LentPayload;
}

export class Lending implements Lender {
  lent = 0;
  /** Oldest open messages that are framed, and wait for their payload. */
  framed = 0;
  /** The stream that it lends to, if any. */
  #loans: LentStream | undefined = undefined;
  /** Who copies the payload. */
  #copier: Copier | undefined = undefined;
  /** Payload of this message could not be read: it fails once earlier ones are acknowledged. */
  #unread: object | undefined = undefined;
  readonly #user: LendingUser;
  readonly #messages: OpenMessages;
  readonly #gate: CompletionGate;
  readonly #payload: LentPayload;

  constructor(user: LendingUser, { messages, gate, payload }: LendingParts) {
    this.#user = user;
    this.#messages = messages;
    this.#gate = gate;
    this.#payload = payload;
  }

  /** Payload could not be read: nothing more is sent. */
  get unread(): boolean {
    return this.#unread !== undefined;
  }

  /** True if these bytes may be lent, to packets unless `loans` is given. */
  mayLend(message: SendWqe, offset: number, length: number, loans?: LentStream): boolean {
    const { lent } = loans ?? this;
    // The rest of a message goes the same way, or it would have to wait.
    if (length < this.#payload.bytesMin && (offset === 0 || lent === 0)) return false;
    const copier = message.copier(offset, length);
    if (copier === undefined || (lent > 0 && copier !== this.#copier)) return false;
    this.#copier = copier;
    return true;
  }

  /** Makes part of `target` stand for these bytes, which may be lent. If it is refused, nothing is lent. */
  lend(
    message: SendWqe,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    loans?: LentStream,
  ): AccessRefusal {
    if (loans !== undefined) this.#loans = loans;
    const path = loans ?? this.#payload;
    const { count } = path;
    path.begin(this, message);
    const refusal = message.gather(offset, length, target, targetStart, path);
    if (refusal !== AccessRefusal.none) path.withdraw(count);
    return refusal;
  }

  returned(): void {
    this.lent -= 1;
  }

  lendingFailed(message: object): void {
    // Otherwise the message was given up.
    if (this.#messages.oldest === undefined) return;
    this.#unread ??= message;
    // Has the wire polled, which then asks whether all could be read.
    this.#gate.awaitLent(this.#loans ?? this);
  }

  /** The oldest open message but those that wait is framed. True if it waits, too. */
  keeps(message: SendWqe): boolean {
    if (this.framed === 0 && message.lent === 0) return false;
    this.framed += 1;
    return true;
  }

  /**
   * Ends framed messages whose payload is back. Returns false if that of the oldest one could not be
   * read: its work request has failed.
   */
  settle(): boolean {
    const messages = this.#messages;
    for (let message = messages.oldest; this.framed > 0; message = messages.oldest) {
      if (message === undefined || message.lent > 0 || message === this.#unread) break;
      this.framed -= 1;
      this.#user.endMessage(message);
    }
    return this.failUnread() === AccessRefusal.none;
  }

  /** Fails the oldest open message if its payload could not be read, and says so. */
  failUnread(): AccessRefusal {
    if (this.#unread === undefined) return AccessRefusal.none;
    const { oldest } = this.#messages;
    if (oldest === undefined || oldest !== this.#unread) return AccessRefusal.none;
    this.#unread = undefined;
    this.#user.blameMemory(oldest);
    return AccessRefusal.memoryLost;
  }

  /** The work is flushed. A stream reads no memory of the program from now on, except for copies that have begun. */
  end(): void {
    const loans = this.#loans;
    if (loans === undefined) return;
    loans.recall();
    if (loans.lent > 0) {
      this.#copier?.hasten(loans);
      this.#gate.awaitLent(loans);
    }
    for (; this.framed > 0; this.framed -= 1) {
      this.failUnread();
      this.#messages.shift();
    }
    this.failUnread();
  }

  /** All messages are given up. */
  forget(): void {
    this.end();
    // What becomes of its last copies does not matter any more.
    if (this.#loans !== undefined) this.#loans.user = undefined;
    this.#loans = undefined;
    if (this.lent > 0) {
      this.#copier?.hasten(this);
      this.#gate.awaitLent(this);
    }
    this.#unread = undefined;
  }
}
