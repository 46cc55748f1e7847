/** The protection domain: which queues may use which memory (RFC 5040 §8.1.1). */
import { assert } from '#base/assert';
import { invalid, VerbsError } from '#contract/verbs/errors';

/** A protection domain. Membership is object identity, so no number can forge it. */
export class PD {
  /** Its regions, windows, address handles, queue pairs and shared receive queues. */
  members = 0;
  /**
   * Its regions whose memory takes no copies (`MemoryBacking.takesCopies`), and its windows: a window can end at
   * any time, even by a work request, which does not wait for copies.
   */
  notTaking = 0;
  /** Streams attached to its queue pairs; with more than one, its STags are shared. */
  streams = 0;
  #closed = false;
  readonly #onClose: () => void;

  /** `onClose` releases the device's slot. */
  constructor(onClose: () => void) {
    this.#onClose = onClose;
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.streams >= 0, 'PD: streams < 0');
    assert(this.notTaking >= 0, 'PD: regions that take no copies < 0');
    assert(this.streams <= this.members, 'PD: streams > members');
    assert(!this.#closed || this.members === 0, 'closed PD has members');
  }

  /** Throws EINVAL if closed. */
  assertOpen(): void {
    if (this.#closed) throw invalid('the protection domain is closed');
  }

  /** EBUSY while it has members; a second call does nothing. */
  close(): void {
    if (this.#closed) return;
    if (this.members > 0) {
      throw new VerbsError(
        'EBUSY',
        `objects still use the protection domain (${this.members} regions, windows, address handles, queue pairs or shared receive queues): destroy them first`,
      );
    }
    this.#closed = true;
    this.#onClose();
  }
}
