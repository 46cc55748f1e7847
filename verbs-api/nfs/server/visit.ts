/**
 * Resources of one call of a client while it is in progress: descriptors, which must not be closed
 * before its last system call, and locks on the directories that it changes.
 */
import type { FileNode } from './node-table.ts';
import type { Steps } from './steps.ts';

export class Visit {
  /** Most visits need neither. */
  #walking: Set<FileNode> | undefined;
  #held: (() => void)[] | undefined;

  /** Nodes on the path of the current walk, to detect cycles of names. */
  get walking(): Set<FileNode> {
    this.#walking ??= new Set();
    return this.#walking;
  }

  /** `release` runs when the visit ends. */
  hold(release: () => void): void {
    if (this.#held === undefined) this.#held = [release];
    else this.#held.push(release);
  }

  end(): void {
    if (this.#held === undefined) return;
    for (const release of this.#held) release();
    this.#held = undefined;
  }
}

/** Serializes changes to the names in a directory, in the order of the calls. */
export class ChangeLocks {
  /** The end of the last call's turn, by directory. */
  readonly #turns = new Map<FileNode, Promise<void>>();

  /** Waits until `node` is the visit's, until it ends. */
  *enter(node: FileNode, visit: Visit): Steps<void> {
    const before = this.#turns.get(node);
    let leave = (): void => undefined;
    const turn = new Promise<void>((resolve) => {
      leave = resolve;
    });
    this.#turns.set(node, turn);
    visit.hold(() => {
      if (this.#turns.get(node) === turn) this.#turns.delete(node);
      leave();
    });
    if (before !== undefined) yield before;
  }
}
