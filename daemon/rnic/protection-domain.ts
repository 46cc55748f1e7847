/** The protection domain: who may use which memory with which queue (RFC 5040 §8.1.1). */
import { VerbsError } from '../../verbs-api/contract/errors.ts';

/** A protection domain. Membership is object identity, so no number can be forged. */
export class PD {
  /** Regions, windows, queue pairs and shared receive queues that belong to it. */
  members = 0;
  /** Streams attached to its queue pairs; an STag of the domain is shared when there are several. */
  streams = 0;
  private closed = false;
  private readonly onClose: () => void;

  /** `onClose` gives the device's slot back. */
  constructor(onClose: () => void) {
    this.onClose = onClose;
  }

  /** Throws EINVAL once closed: nothing new may join. */
  assertOpen(): void {
    if (this.closed) throw new VerbsError('EINVAL', 'the protection domain is closed');
  }

  /** EBUSY while anything belongs to it; the second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.members > 0) {
      throw new VerbsError('EBUSY', `${this.members} objects use the protection domain`);
    }
    this.closed = true;
    this.onClose();
  }
}
