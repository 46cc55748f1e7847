/** Memory that a client made for the program, and its registrations on one connection. */
import type { MR, PD } from '../contract/provider.ts';
import { WINDOWED_ACCESS } from './memory-exposer.ts';

/** Memory of a client, by what its views share. It lives as long as the client. */
export type AllocatedMemory = Map<ArrayBufferLike, Uint8Array>;

/**
 * Registers memory of `AllocatedMemory` in the protection domain of a connection, each the first
 * time that a call of it uses it, and until the connection ends. Peers have no right to these
 * registrations.
 */
export class ConnectionRegions {
  readonly #allocated: AllocatedMemory;
  readonly #pd: PD;
  readonly #regions = new Map<ArrayBufferLike, MR | Promise<MR>>();

  constructor(allocated: AllocatedMemory, pd: PD) {
    this.#allocated = allocated;
    this.#pd = pd;
  }

  /** The registration that `octets` lie in; undefined for memory of another origin. */
  find(octets: Uint8Array): MR | Promise<MR> | undefined {
    const memory = this.#allocated.get(octets.buffer);
    if (memory === undefined) return undefined;
    const start = octets.byteOffset - memory.byteOffset;
    if (start < 0 || start + octets.length > memory.length) return undefined;
    return this.#regions.get(octets.buffer) ?? this.#register(memory);
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
