/** Lifetime of a provider's objects, and the loss of their device. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { PD, VerbsObject } from '#contract/verbs/provider';

/** The presence of a device, of its daemon, or of the connection manager. */
export class Presence {
  #lostReason: string | undefined;
  readonly #listeners = new Set<(error: VerbsError) => void>();

  /** True once it is gone, or the provider closed. */
  get lost(): boolean {
    return this.#lostReason !== undefined;
  }

  /** Throws EIO once it is gone. */
  assertPresent(): void {
    if (this.lost) throw this.lossError();
  }

  /** Registers a callback for the loss; call the result to unregister it. */
  onLost(listener: (error: VerbsError) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** It is gone: everything that waits for it fails with EIO. */
  lose(reason: string): void {
    if (this.#lostReason !== undefined) return;
    this.#lostReason = reason;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener(this.lossError());
  }

  protected lossError(): VerbsError {
    return new VerbsError('EIO', this.#lostReason);
  }
}

/** Closes once, ignores a second close, stays open if the close is refused. */
export abstract class ClosableObject<P extends Presence> implements VerbsObject {
  /** Private, so that printing an object, or an error with one, does not print its session. */
  readonly #presence: P;
  readonly #noun: string;
  #closing: Promise<void> | undefined;

  constructor(presence: P, noun: string) {
    this.#presence = presence;
    this.#noun = noun;
  }

  get presence(): P {
    return this.#presence;
  }

  /** False once `close` has been called, unless it was refused. */
  get usable(): boolean {
    return this.#closing === undefined;
  }

  /** Throws EINVAL once the object closes, EIO once the device is gone. */
  assertUsable(): void {
    if (!this.usable) throw this.closedError();
    this.#presence.assertPresent();
  }

  closedError(): VerbsError {
    return invalid(`the ${this.#noun} is closed`);
  }

  close(): Promise<void> {
    this.#closing ??= this.end();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Destroys the object and releases what it holds; calls `reopen` before it rejects a refusal. */
  protected abstract end(): Promise<void>;

  protected reopen(): void {
    this.#closing = undefined;
  }

  /** It was closed without a call of `close`. */
  protected noteClosed(): void {
    this.#closing = Promise.resolve();
  }
}

/** Order in which a context destroys its objects: dependants first. */
export const TeardownRank = {
  queuePair: 0,
  sharedReceiveQueue: 1,
  completionQueue: 2,
  addressHandle: 3,
  memoryWindow: 4,
  memoryRegion: 5,
  protectionDomain: 6,
  completionChannel: 7,
} as const;
export type TeardownRank = (typeof TeardownRank)[keyof typeof TeardownRank];

/** The objects made from one opened device. */
export abstract class MemberScope<Member extends object> {
  protected readonly members = new Map<Member, TeardownRank>();

  add(member: Member, rank: TeardownRank): void {
    this.members.set(member, rank);
  }

  remove(member: Member): void {
    this.members.delete(member);
  }

  /** The members by rank: all, or `pd` and those made from it. */
  protected *byRank(pd: PD | undefined): Generator<readonly Member[]> {
    for (const rank of Object.values(TeardownRank)) {
      const made = [...this.members].filter(([, memberRank]) => memberRank === rank);
      yield made.map(([member]) => member).filter((member) => pd === undefined || isOf(member, pd));
    }
  }
}

function isOf(member: object, pd: PD): boolean {
  return member === pd || ('pd' in member && member.pd === pd);
}
