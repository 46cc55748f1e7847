/**
 * How much of a turn of the event loop all connections of one peer address may use together: an address with
 * a thousand connections gets no more than one with a single connection.
 *
 * Once the share is spent, none of the address's connections reads or sends until the turn has ended.
 * Connections that were starved in the last round go first, so that a few busy ones cannot starve the others
 * of their address.
 */
import { addressOwner } from '#base/address';
import { assert } from '#base/assert';

/**
 * Bytes in and out for one address and turn: about twice what libuv reads from one socket in a turn while
 * FPDUs are large, so a single connection is not slowed down, and some milliseconds of work while they are
 * almost empty.
 */
const TURN_SHARE_BYTES = 16_777_216;
/** Cost of a received FPDU in addition to its bytes, expressed in bytes. */
const FPDU_COST_BYTES = 1024;

/** A connection with a share. */
export interface ShareMember {
  /** The round of its share in which it last had input; -1 before the first. */
  inputRound: number;
  /** Starts or stops reading, as `TurnShare.waits` says. */
  paceReading(): void;
}

/** The share of one address. */
export class TurnShare {
  readonly #bytes: number;
  readonly #soon: (run: () => void) => void;
  readonly #members = new Set<ShareMember>();
  /** Bytes since the last end of a turn that was waited for. */
  #spentBytes = 0;
  /** Waits for the end of this turn: at least half of the share is spent. */
  #ending = false;
  #spent = false;
  /** The last turn spent the share: members with input in this round wait. */
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

  /** True if no more may be sent in this turn. */
  get spent(): boolean {
    return this.#spent;
  }

  /** True if `member` must not read now. */
  waits(member: ShareMember): boolean {
    return this.#spent || (this.#yielding && member.inputRound === this.#round);
  }

  /** Counts `bytes` that `member` received, and the `fpdus` FPDUs that they completed. */
  countInput(member: ShareMember, bytes: number, fpdus: number): void {
    member.inputRound = this.#round;
    this.#spend(bytes + fpdus * FPDU_COST_BYTES);
  }

  countOutput(bytes: number): void {
    this.#spend(bytes);
  }

  /** Call at the end of a turn. Throws `InvariantError`. */
  assertInvariants(): void {
    assert(this.#members.size > 0, 'share without members');
    const little = this.#spentBytes < this.#bytes / 2;
    assert(little || this.#ending, 'share half spent without waiting for the end of the turn');
    assert(this.#spent === this.#spentBytes >= this.#bytes, 'spent flag disagrees with spentBytes');
    assert(this.#ending || !this.#yielding, 'yielding without waiting for the end of the turn');
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
    const starved = this.#spent && this.#anyWithoutInput();
    this.#ending = false;
    this.#spent = false;
    this.#spentBytes = 0;
    this.#yielding = starved;
    if (starved) this.#awaitEnd();
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

  /** `bytes`: the size of a share; default: `TURN_SHARE_BYTES`. */
  constructor(soon: (run: () => void) => void, bytes = TURN_SHARE_BYTES) {
    this.#soon = soon;
    this.#bytes = bytes;
  }

  /** The share of the owner of this canonical address. Its first member must join at once. */
  of(address: string): TurnShare {
    const owner = addressOwner(address);
    let share = this.#byOwner.get(owner);
    if (share === undefined) {
      share = new TurnShare(this.#bytes, this.#soon);
      this.#byOwner.set(owner, share);
    }
    return share;
  }

  /** Removes `member`, whose peer has this address. */
  leave(address: string, member: ShareMember): void {
    const owner = addressOwner(address);
    if (this.#byOwner.get(owner)?.leave(member) === true) this.#byOwner.delete(owner);
  }

  /** Call at the end of a turn. Throws `InvariantError`. */
  assertInvariants(): void {
    for (const share of this.#byOwner.values()) share.assertInvariants();
  }
}
