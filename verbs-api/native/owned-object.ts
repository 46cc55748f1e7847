/** Lifetime of a native provider's objects, and the loss of their device. */
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { VerbsObject } from '#contract/verbs/provider';

/** The presence of a device, or of the connection manager. */
export class Presence {
  #loss: VerbsError | undefined;
  readonly #listeners = new Set<(error: VerbsError) => void>();

  /** True once it is gone. */
  get lost(): boolean {
    return this.#loss !== undefined;
  }

  /** Throws EIO once it is gone. */
  assert(): void {
    if (this.#loss !== undefined) throw this.#loss;
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
    if (this.#loss !== undefined) return;
    this.#loss = new VerbsError('EIO', reason);
    for (const listener of [...this.#listeners]) listener(this.#loss);
    this.#listeners.clear();
  }
}

/** Closes once, ignores a second close, stays open if the close is refused. */
export abstract class OwnedObject implements VerbsObject {
  readonly presence: Presence;
  readonly #noun: string;
  #closing: Promise<void> | undefined;

  constructor(presence: Presence, noun: string) {
    this.presence = presence;
    this.#noun = noun;
  }

  /** False from the first call of `close` on, unless that was refused. */
  get usable(): boolean {
    return this.#closing === undefined;
  }

  /** Throws EINVAL once the object closes, EIO once the device is gone. */
  assertUsable(): void {
    if (!this.usable) throw this.closedError();
    this.presence.assert();
  }

  closedError(): VerbsError {
    return new VerbsError('EINVAL', `the ${this.#noun} is closed`);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Destroys the object. On EBUSY it stays as it was. */
  protected abstract destroy(): void | Promise<void>;
  /** The object is gone: releases what it holds. */
  protected abstract released(): void;

  /** The owner was destroyed together with the native object: marks it closed, without a call. */
  abandon(): void {
    this.#closing = Promise.resolve();
    this.released();
  }

  async #close(): Promise<void> {
    try {
      // In a separate turn: a refusal must find `#closing` set.
      await Promise.resolve();
      await this.destroy();
    } catch (error) {
      if (isVerbsError(error) && error.code === 'EBUSY') {
        this.#closing = undefined;
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
