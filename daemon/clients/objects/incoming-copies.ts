/**
 * Copies that agents of other processes make into the memory of one process. Some have begun and cannot be
 * stopped when the process ends what allowed them: it gets no answer until they are over.
 */
import { assert } from '#base/assert';

/** Who makes copies, as the memory that receives them sees it. */
export interface CopyMaker {
  /** Drops copies into memory that is no longer registered. */
  dropInto(target: object): void;
  /** Drops all copies into an ended process. */
  dropAllInto(process: IncomingCopies): void;
  /** Uses the new place of memory that its process has moved. */
  follow(moved: object): void;
}

export class IncomingCopies {
  readonly #makers = new Set<CopyMaker>();
  /** How often a command of the process had to do with copies that are not over. */
  concerned = 0;
  #ending = 0;
  readonly #waiting = new Set<() => void>();

  /** `maker` has copies into this process, or has had some. */
  note(maker: CopyMaker): void {
    this.#makers.add(maker);
  }

  /** `maker` has none any more. */
  forget(maker: CopyMaker): void {
    this.#makers.delete(maker);
  }

  /** Everyone who may have copies into this process. */
  get makers(): Iterable<CopyMaker> {
    return [...this.#makers];
  }

  /** True while copies that the process has forbidden are not over. */
  get ending(): boolean {
    return this.#ending > 0;
  }

  /** One more of them. */
  beginEnding(): void {
    this.#ending += 1;
  }

  /** One of them is over. */
  endEnding(): void {
    assert(this.#ending > 0, 'more copies ended than were ending');
    this.#ending -= 1;
    if (this.#ending > 0) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const run of waiting) run();
  }

  /** Calls `run` once all of them are over, unless the function that it returns is called before. */
  whenOver(run: () => void): () => void {
    this.#waiting.add(run);
    return () => void this.#waiting.delete(run);
  }
}
