/**
 * Ownership of the libraries' objects. Every object has one owner; the first `dispose` calls the
 * library, once. While others depend on an object, its disposal fails before the library is called,
 * since providers tear down half of an object before they notice (libsiw unmaps a queue first and then
 * asks the kernel).
 */
import { NativeError } from './errors.ts';

/** An object of a library, identified by its pointer. */
export abstract class NativeObject {
  /** For messages: 'the queue pair of siw0'. */
  readonly subject: string;
  readonly #pointer: number;
  readonly #parents: readonly NativeObject[];
  readonly #children = new Set<NativeObject>();
  #disposed = false;

  constructor(subject: string, pointer: number, parents: readonly NativeObject[]) {
    this.subject = subject;
    this.#pointer = pointer;
    this.#parents = parents;
    for (const parent of parents) parent.#children.add(this);
  }

  /** True once disposed of, by `dispose` or with its device. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /** The pointer. Throws `NativeError` `closed` (EINVAL) after disposal: it is never used again. */
  get pointer(): number {
    if (this.#disposed) throw this.closedError();
    return this.#pointer;
  }

  closedError(): NativeError {
    return new NativeError('closed', 'EINVAL', `${this.subject} is closed`);
  }

  /**
   * Releases the object in the library. A second call does nothing. Throws `NativeError`: `inUse`
   * (EBUSY) while others depend on it; it then stays unchanged. Any other error is the library's; the
   * object is then lost, since its state is unknown.
   */
  dispose(): void {
    if (this.#disposed) return;
    this.assertUnused();
    this.#disposed = true;
    try {
      this.destroy(this.#pointer);
    } finally {
      for (const parent of this.#parents) parent.#children.delete(this);
      this.released(this.#pointer);
    }
  }

  /** Throws `inUse` (EBUSY) while others depend on the object. */
  assertUnused(): void {
    if (this.#children.size > 0) {
      throw new NativeError('inUse', 'EBUSY', `${this.subject} is in use`);
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Disposes of all dependants, the newest first. */
  protected disposeChildren(): void {
    for (const child of [...this.#children].reverse()) {
      child.disposeChildren();
      try {
        child.dispose();
      } catch {
        // The device releases the rest of it.
      }
    }
  }

  /** Like `dispose`, with a call that may take long. */
  protected async disposeBy(destroy: (pointer: number) => Promise<void>): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    try {
      await destroy(this.#pointer);
    } finally {
      for (const parent of this.#parents) parent.#children.delete(this);
      this.released(this.#pointer);
    }
  }

  protected abstract destroy(pointer: number): void;
  /** The object is gone: drops references to it. */
  protected released(_pointer: number): void {}
}
