/**
 * Defers reads of payload from memory that is reached by system calls, so one call fetches it for
 * many packets.
 */
import type { MemoryBacking } from './memory-backing.ts';

export interface PayloadReader {
  /** Copies the bytes into `target`, now or later. False when the memory is gone. */
  read(
    backing: MemoryBacking,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): boolean;
}

export class DeferredReads implements PayloadReader {
  #backing: MemoryBacking | undefined = undefined;
  #lost = false;

  read(
    backing: MemoryBacking,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): boolean {
    if (backing.readLater === undefined) return backing.read(offset, length, target, start);
    if (this.#backing !== backing) {
      this.#carryOut();
      this.#backing = backing;
    }
    return backing.readLater(offset, length, target, start);
  }

  /** Fetches all deferred bytes. Returns false if any since the last call could not be read. */
  fetch(): boolean {
    this.#carryOut();
    const lost = this.#lost;
    this.#lost = false;
    return !lost;
  }

  #carryOut(): void {
    const backing = this.#backing;
    this.#backing = undefined;
    if (backing?.flushReads?.() === false) this.#lost = true;
  }
}
