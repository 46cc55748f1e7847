/** Lifetime of the objects of a native provider, and what happens when their device goes. */
import { isVerbsError, VerbsError } from '../../verbs-api/contract/errors.ts';
import type { VerbsObject } from '../../verbs-api/contract/provider.ts';

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

  /** Registers what to do when it goes; the result unregisters it. */
  onLost(listener: (error: VerbsError) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** It is gone: every wait on it fails with EIO. */
  lose(reason: string): void {
    if (this.#loss !== undefined) return;
    this.#loss = new VerbsError('EIO', reason);
    for (const listener of [...this.#listeners]) listener(this.#loss);
    this.#listeners.clear();
  }
}

/** Closes once, may be closed twice, survives a refusal. */
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

  /** What calls on a closed object get. */
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

  /** Gives the object back. EBUSY: it stays as it was. */
  protected abstract destroy(): void | Promise<void>;
  /** The object is gone: lets go of what it holds. */
  protected abstract released(): void;

  /** The object's owner goes, and takes what is behind it along: as closed, without a call. */
  abandon(): void {
    this.#closing = Promise.resolve();
    this.released();
  }

  async #close(): Promise<void> {
    try {
      // In a turn of its own, so that a refusal finds `#closing` set.
      await Promise.resolve();
      await this.destroy();
    } catch (error) {
      if (isVerbsError(error) && error.code === 'EBUSY') {
        this.#closing = undefined;
        throw error;
      }
      this.released();
      // With the device gone, nothing is left to give back.
      if (this.presence.lost || (isVerbsError(error) && error.code === 'EIO')) return;
      throw error;
    }
    this.released();
  }
}
