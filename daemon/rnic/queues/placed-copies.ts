/** Counts of the copies of lent payload into a queue pair's memory. They end in the order in which they were ordered. */
import type { Copier } from '../memory/memory-backing.ts';

export class PlacedCopies {
  /** Since the queue pair was made; those that are over are `done` or `unread`. */
  ordered = 0;
  done = 0;
  /** Copies over since one that could not be read: no receive from it on may succeed on this connection. */
  unread = 0;
  /** Copies of earlier connections: how they end does not matter. */
  abandoned = 0;
  /** While a loss is unreported: the oldest copy that was lost, or 0. Completions before it are not affected. */
  lost = 0;
  /** The copiers at work for this queue pair; empty once no copy is left. */
  readonly copiers = new Set<Copier>();

  /** True while some are not over. */
  get pending(): boolean {
    return this.done !== this.ordered;
  }

  /** No more data arrives: copies that could not be read never will be. */
  endUnread(): void {
    this.done += this.unread;
    this.unread = 0;
  }
}
