/** Objects of a native provider. */
import { isVerbsError } from '#contract/verbs/errors';
import { ClosableObject, type Presence } from '../client/lifetime.ts';

/** Stays open only if its close is refused with EBUSY. */
export abstract class OwnedObject extends ClosableObject<Presence> {
  /** Destroys the object. On EBUSY it stays as it was. */
  protected abstract destroy(): void | Promise<void>;
  /** The object is gone: releases what it holds. */
  protected abstract released(): void;

  /** The owner was destroyed together with the native object: marks it closed, without a call. */
  abandon(): void {
    this.noteClosed();
    this.released();
  }

  protected override async end(): Promise<void> {
    try {
      // In a separate turn: a refusal must find the object closing.
      await Promise.resolve();
      await this.destroy();
    } catch (error) {
      if (isVerbsError(error) && error.code === 'EBUSY') {
        this.reopen();
        throw error;
      }
      this.released();
      // If the device is gone, there is nothing left to release.
      if (this.presence.lost || (isVerbsError(error) && error.code === 'EIO')) return;
      throw error;
    }
    this.released();
  }
}
