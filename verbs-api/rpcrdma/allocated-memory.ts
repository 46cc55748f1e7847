/** Memory that a client allocated for the program, and its registrations on one connection. */
import type { MR, PD } from '#contract/verbs/provider';
import { WINDOWED_ACCESS } from './memory-exposer.ts';

/**
 * A client's allocated memory, keyed by the ArrayBuffer that its views share. Lives as long as the
 * client.
 */
export type AllocatedMemory = Map<ArrayBufferLike, Uint8Array>;

/**
 * Registers `AllocatedMemory` in the protection domain of a connection. Each piece is registered on
 * its first use in a call and stays registered until the connection ends. Peers have no access
 * through these registrations.
 */
export class ConnectionRegions {
  readonly #allocated: AllocatedMemory;
  readonly #pd: PD;
  readonly #regions = new Map<ArrayBufferLike, MR | Promise<MR>>();

  constructor(allocated: AllocatedMemory, pd: PD) {
    this.#allocated = allocated;
    this.#pd = pd;
  }

  /** The registration that contains `bytes`; undefined for memory not from `allocate`. */
  find(bytes: Uint8Array): MR | Promise<MR> | undefined {
    const memory = this.#allocated.get(bytes.buffer);
    if (memory === undefined) return undefined;
    const start = bytes.byteOffset - memory.byteOffset;
    if (start < 0 || start + bytes.length > memory.length) return undefined;
    return this.#regions.get(bytes.buffer) ?? this.#register(memory);
  }

  async #register(memory: Uint8Array): Promise<MR> {
    const registering = this.#pd.regMR(memory, WINDOWED_ACCESS);
    this.#regions.set(memory.buffer, registering);
    try {
      const mr = await registering;
      this.#regions.set(memory.buffer, mr);
      return mr;
    } catch (error) {
      this.#regions.delete(memory.buffer);
      throw error;
    }
  }
}
