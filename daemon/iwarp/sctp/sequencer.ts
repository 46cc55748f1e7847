/**
 * Puts the messages of one direction of a DDP stream into the order of their DDP-SSNs
 * (RFC 5043 §6.1, §10). SCTP delivers unordered messages in any order.
 *
 * A message that is due is delivered in place. One that is ahead is copied and held: that happens
 * only when packets are lost or overtake each other. What may be held is bounded, in number, in
 * bytes and in distance, since a peer may never send the message that is due.
 */
import { assert } from '#base/assert';

/**
 * Most messages ahead of the one that is due. Neither libusrsctp nor Linux accepts TSNs further
 * ahead of the cumulative one, so no honest peer comes close (SCTP-10-04).
 */
const AHEAD_MAX = 4096;
/** Maximum bytes held: twice the largest send buffer that Linux gives a socket by default. */
const HELD_MAX_BYTES = 8_388_608;
/** DDP-SSNs are modulo 2^16: half of them are ahead, the other half past. */
const SSN_MASK = 0xffff;
const SSN_HALF = 0x8000;

/** A held message: a copy. */
interface HeldMessage {
  readonly payloadProtocol: number;
  readonly bytes: Uint8Array;
}

/** Where a message is in the order. */
export type Turn = 'due' | 'held' | 'past' | 'repeated' | 'too-far' | 'too-much';

export class Sequencer {
  readonly #held = new Map<number, HeldMessage>();
  readonly #heldMaxBytes: number;
  #due: number;
  #heldBytes = 0;

  /** `firstSsn` is 0 in every session; tests of the wrap start elsewhere. */
  // SCTP-6.1-01
  constructor(firstSsn = 0, heldMaxBytes = HELD_MAX_BYTES) {
    this.#due = firstSsn;
    this.#heldMaxBytes = heldMaxBytes;
  }

  /**
   * The turn of a message. 'due': deliver it, then `advance`. 'held': a copy is kept. All others end
   * the session: no honest peer sends such a message.
   */
  // SCTP-10-02: TSNs play no part.
  take(ssn: number, payloadProtocol: number, bytes: Uint8Array): Turn {
    const ahead = (ssn - this.#due) & SSN_MASK;
    if (ahead === 0) return this.#held.has(ssn) ? 'repeated' : 'due';
    if (ahead >= SSN_HALF) return 'past';
    if (ahead > AHEAD_MAX) return 'too-far';
    return this.hold(ssn, payloadProtocol, bytes);
  }

  /** Keeps a message, which may be due, until it can be delivered. */
  hold(ssn: number, payloadProtocol: number, bytes: Uint8Array): Turn {
    if (this.#held.has(ssn)) return 'repeated';
    if (this.#heldBytes + bytes.length > this.#heldMaxBytes) return 'too-much';
    this.#held.set(ssn, { payloadProtocol, bytes: bytes.slice() });
    this.#heldBytes += bytes.length;
    return 'held';
  }

  /** The message that is due has been delivered. */
  advance(): void {
    const held = this.#held.get(this.#due);
    if (held !== undefined) {
      this.#held.delete(this.#due);
      this.#heldBytes -= held.bytes.length;
    }
    this.#due = (this.#due + 1) & SSN_MASK;
  }

  get next(): HeldMessage | undefined {
    return this.#held.get(this.#due);
  }

  /** The DDP-SSN that is due. */
  get due(): number {
    return this.#due;
  }

  get heldCount(): number {
    return this.#held.size;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  release(): void {
    this.#held.clear();
    this.#heldBytes = 0;
  }

  /** Throws `InvariantError`. */
  assertInvariants(): void {
    let bytes = 0;
    for (const held of this.#held.values()) bytes += held.bytes.length;
    assert(bytes === this.#heldBytes, 'held bytes miscounted');
    assert(this.#held.size <= AHEAD_MAX + 1, 'too many messages held');
  }
}
