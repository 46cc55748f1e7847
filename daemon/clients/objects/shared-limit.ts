/**
 * One limit of the whole daemon, divided among its users.
 *
 * The daemon's owner (its own user, and root) may take all that is free. A part is reserved for the
 * owner; any other user may hold half of what all others leave of the rest. So something is left for
 * the next user, however many users take their maximum.
 */
import { assert } from '#base/assert';
import type { SharedLimitUse } from '#contract/protocol/ipc-admin';
import { type ErrnoCode, VerbsError } from '#contract/verbs/errors';

/** Part of a limit that is reserved for the owner. */
const OWNER_RESERVE = 1 / 4;
/** Part of what all others leave that one user may hold. */
const USER_PART = 1 / 2;

/** The owner's key among the users: root's uid, which no other user has. */
export const OWNER = 0;

/** The subject of a limit, and its remedy. */
export interface LimitTerms {
  /** Plural, for messages: `connections`. */
  readonly what: string;
  /** How to raise it: `raise limits.objects of the daemon`. */
  readonly remedy: string;
  readonly code: ErrnoCode;
  /** The limit applies to other users only: something else bounds the owner. */
  readonly ownerFree?: boolean;
}

/** Called for each refusal: unmodified programs see only the errno. */
export type RefusalNote = (user: number, error: VerbsError) => void;

interface LimitOptions {
  /** Measures the actual use of the process, if it can exceed the sum of what users hold. */
  readonly measure?: (() => number) | undefined;
  /**
   * Part of the limit that released amounts may still occupy. Users do not share this part, so no user
   * loses it; the owner may use it. Default: 0.
   */
  readonly lingering?: number | undefined;
  readonly onRefused?: RefusalNote | undefined;
}

/** Amounts are non-negative integers. */
export class SharedLimit {
  readonly limit: number;
  readonly #terms: LimitTerms;
  readonly #measure: (() => number) | undefined;
  /** The part that users share. */
  readonly #shared: number;
  readonly #onRefused: RefusalNote | undefined;
  readonly #byUser = new Map<number, number>();
  #total = 0;

  constructor(limit: number, terms: LimitTerms, options: LimitOptions = {}) {
    const { measure, lingering = 0, onRefused } = options;
    this.limit = limit;
    this.#shared = limit - lingering;
    this.#terms = terms;
    this.#measure = measure;
    this.#onRefused = onRefused;
  }

  heldBy(user: number): number {
    return this.#byUser.get(user) ?? 0;
  }

  /** The maximum that a user may hold now. */
  shareOf(user: number): number {
    const others = this.#total - this.heldBy(user);
    if (user === OWNER) return this.limit - others;
    const owners = this.heldBy(OWNER);
    const reserved = Math.max(Math.ceil(this.#shared * OWNER_RESERVE) - owners, 0);
    return Math.max(Math.floor((this.#shared - others - reserved) * USER_PART), 0);
  }

  /** Throws the limit's error if the user may not hold `amount` more. */
  assertRoom(user: number, amount = 1): void {
    if (user === OWNER && this.#terms.ownerFree === true) return;
    const beyondShare = this.heldBy(user) + amount > this.shareOf(user);
    if (!beyondShare && (this.#measure?.() ?? 0) + amount <= this.limit) return;
    const error = this.#refusal(beyondShare ? user : OWNER);
    this.#onRefused?.(user, error);
    throw error;
  }

  /** Takes an amount, or throws the limit's error. */
  take(user: number, amount = 1): void {
    this.assertRoom(user, amount);
    this.note(user, amount);
  }

  give(user: number, amount = 1): void {
    this.note(user, -amount);
  }

  /** Counts an amount that a user has taken (positive) or returned (negative), without a check. */
  note(user: number, change: number): void {
    const held = this.heldBy(user) + change;
    assert(held >= 0, `${this.#terms.what}: held < 0`);
    if (held === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, held);
    this.#total += change;
  }

  use(): SharedLimitUse {
    const { limit } = this;
    const used = this.#measure?.() ?? this.#total;
    let user: SharedLimitUse['user'];
    for (const [uid, held] of this.#byUser) {
      const share = this.shareOf(uid);
      if (uid === OWNER) continue;
      if (user === undefined || held * user.share > user.used * share) {
        user = { uid, used: held, share };
      }
    }
    return user === undefined ? { used, limit } : { used, limit, user };
  }

  /** Throws `InvariantError` when the counts are wrong. */
  assertInvariants(): void {
    let total = 0;
    for (const held of this.#byUser.values()) total += held;
    assert(total === this.#total, `${this.#terms.what}: wrong total`);
  }

  #refusal(user: number): VerbsError {
    const { what, remedy, code } = this.#terms;
    const { limit } = this;
    if (user === OWNER) {
      const text = `all clients together may have at most ${limit} ${what}; ${remedy}`;
      return new VerbsError(code, text);
    }
    const share = this.shareOf(user);
    const text =
      `user ${user} has ${this.heldBy(user)} of the daemon's ${limit} ${what} and may have ` +
      `${share}, half of what other users leave; end some of this user's programs, or ${remedy}`;
    return new VerbsError(code, text);
  }
}
