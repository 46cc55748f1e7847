/**
 * What the connections of one peer address may take of a turn of the event loop, all together: an
 * address with a thousand connections gets no more of a turn than one with a single connection.
 *
 * Once the share is spent, none of the address's connections reads or sends until the turn has
 * ended. Then those go first that have had no input since the last time when there was enough for
 * all, so that a few busy connections cannot starve the others of their address.
 */
import { addressOwner } from '#base/address';
import { assert } from '#base/assert';

/**
 * Bytes in and out for one address and turn: about twice what libuv reads from one socket in a turn
 * while FPDUs are large, so a single connection is not slowed down, and some milliseconds of work
 * while they are almost empty.
 */
const TURN_SHARE_BYTES = 16_777_216;
/** Cost of a received FPDU in addition to its bytes, expressed in bytes. */
const FPDU_COST_BYTES = 1024;

/** A connection that takes part in a share. */
export interface ShareMember {
  /** The round of its share in which it last had input; -1 before the first. */
  inputRound: number;
  /** Reads or not, as `TurnShare.waits` says now. */
  paceReading(): void;
}

/** The share of one address. */
export class TurnShare {
  readonly #bytes: number;
  readonly #soon: (run: () => void) => void;
  readonly #members = new Set<ShareMember>();
  /** Bytes since the last end of a turn that was waited for. */
  #spentBytes = 0;
  /** The end of this turn is waited for: half of the share or more is spent. */
  #ending = false;
  #spent = false;
  /** The last turn spent the share: who had input in this round waits. */
  #yielding = false;
  #round = 0;

  /** `soon` calls back at the end of the turn. */
  constructor(bytes: number, soon: (run: () => void) => void) {
    this.#bytes = bytes;
    this.#soon = soon;
  }

  join(member: ShareMember): void {
    this.#members.add(member);
  }

  /** Returns true if it was the last one. */
  leave(member: ShareMember): boolean {
    this.#members.delete(member);
    return this.#members.size === 0;
  }

  /** True if nothing more may be sent in this turn. */
  get spent(): boolean {
    return this.#spent;
  }

  /** True if `member` must not read now. */
  waits(member: ShareMember): boolean {
    return this.#spent || (this.#yielding && member.inputRound === this.#round);
  }

  /** `member` has received `bytes` that completed `fpdus` FPDUs. */
  countInput(member: ShareMember, bytes: number, fpdus: number): void {
    member.inputRound = this.#round;
    this.#spend(bytes + fpdus * FPDU_COST_BYTES);
  }

  countOutput(bytes: number): void {
    this.#spend(bytes);
  }

  /** For the ends of turns. Throws `InvariantError`. */
  assertInvariants(): void {
    assert(this.#members.size > 0, 'a share has members');
    const little = this.#spentBytes < this.#bytes / 2;
    assert(little || this.#ending, 'a turn that costs much is waited for');
    assert(this.#spent === this.#spentBytes >= this.#bytes, 'a share is spent or not');
    assert(this.#ending || !this.#yielding, 'connections that yield go on later');
  }

  #spend(cost: number): void {
    this.#spentBytes += cost;
    if (this.#spentBytes < this.#bytes / 2) return;
    this.#awaitEnd();
    if (this.#spentBytes < this.#bytes || this.#spent) return;
    this.#spent = true;
    this.#pace();
  }

  #awaitEnd(): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#soon(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    const held = this.#spent || this.#yielding;
    const behind = this.#spent && this.#anyWithoutInput();
    this.#ending = false;
    this.#spent = false;
    this.#spentBytes = 0;
    this.#yielding = behind;
    if (behind) this.#awaitEnd();
    else this.#round += 1;
    if (held) this.#pace();
  };

  #anyWithoutInput(): boolean {
    for (const { inputRound } of this.#members) if (inputRound !== this.#round) return true;
    return false;
  }

  #pace(): void {
    for (const member of this.#members) member.paceReading();
  }
}

/** The shares of all addresses that have connections. */
export class TurnShares {
  readonly #soon: (run: () => void) => void;
  readonly #bytes: number;
  readonly #byOwner = new Map<string, TurnShare>();

  /** `bytes`: a share; see `TURN_SHARE_BYTES`, the default. */
  constructor(soon: (run: () => void) => void, bytes = TURN_SHARE_BYTES) {
    this.#soon = soon;
    this.#bytes = bytes;
  }

  /** The share of whoever has this canonical address. Its first member must join at once. */
  of(address: string): TurnShare {
    const owner = addressOwner(address);
    let share = this.#byOwner.get(owner);
    if (share === undefined) {
      share = new TurnShare(this.#bytes, this.#soon);
      this.#byOwner.set(owner, share);
    }
    return share;
  }

  /** `member`, whose peer has this address, has ended. */
  leave(address: string, member: ShareMember): void {
    const owner = addressOwner(address);
    if (this.#byOwner.get(owner)?.leave(member) === true) this.#byOwner.delete(owner);
  }

  /** For the ends of turns. Throws `InvariantError`. */
  assertInvariants(): void {
    for (const share of this.#byOwner.values()) share.assertInvariants();
  }
}
