/** The protection domain: which queues may use which memory (RFC 5040 §8.1.1). */
import { VerbsError } from '#contract/verbs/errors';
import { assert } from '../invariants/assert.ts';

/** A protection domain. Membership is object identity, so it cannot be forged by a number. */
export class PD {
  /** Regions, windows, queue pairs and shared receive queues that belong to it. */
  members = 0;
  /** Streams attached to its queue pairs; with several, an STag of the domain is shared. */
  streams = 0;
  #closed = false;
  readonly #onClose: () => void;

  /** `onClose` releases the device's slot. */
  constructor(onClose: () => void) {
    this.#onClose = onClose;
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.streams >= 0, 'the streams of a PD are not negative');
    assert(this.streams <= this.members, 'each stream of a PD is that of a member');
    assert(!this.#closed || this.members === 0, 'nothing belongs to a closed PD');
  }

  /** Throws EINVAL once closed: nothing new may join. */
  assertOpen(): void {
    if (this.#closed) throw new VerbsError('EINVAL', 'the protection domain is closed');
  }

  /** EBUSY while anything belongs to it; a second call does nothing. */
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
