/**
 * Holds the ports of destroyed listening ids for a moment in case their owner listens again.
 *
 * A program that serves connections one by one, as perftest's servers do, destroys its listening id
 * after the first connection and creates another for the second. Its client may connect before the
 * second id listens.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { ErrnoCode } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { HostNetwork } from './cm-host.ts';
import type { CmId } from './cm-id.ts';

/** How long a port is held after its id: programs on a busy machine may take a second to listen again. */
export const PORT_KEPT_MICROS = 2_000_000;
/** Ports released in one turn: thousands may be due together. The others stay due. */
const DUE_MAX = 64;

/** Reserves and releases ports for ids, and holds some in between. */
export class KeptPorts {
  readonly #network: HostNetwork;
  /** When to release the port of a destroyed id; in order, since all are held for the same time. */
  readonly #due = new Map<CmId, Micros>();

  constructor(network: HostNetwork) {
    this.#network = network;
  }

  /**
   * As `HostNetwork.reserve`: a port held for the same owner counts as free, others are released.
   */
  reserve(
    id: CmId,
    address: SocketAddress,
  ): { readonly port: number } | { readonly error: ErrnoCode } {
    const kept = this.#take(id, address);
    if (kept === undefined) return this.#network.reserve(id, address);
    this.#network.handOver(kept, id);
    return { port: address.port };
  }

  /** `id` is destroyed. Holds its port if it listened for an owner who may listen again. */
  release(id: CmId, now: Micros): void {
    if (id.portKeeper !== undefined && this.#network.suspend(id)) {
      this.#due.set(id, now + PORT_KEPT_MICROS);
    } else this.#network.release(id);
  }

  /** The ids whose ports are held for `keeper`, or all of them. */
  keptFor(keeper?: object): readonly CmId[] {
    const kept = [...this.#due.keys()];
    return keeper === undefined ? kept : kept.filter((id) => id.portKeeper === keeper);
  }

  /** Releases the port of a destroyed id if it is still held. */
  giveUp(id: CmId): void {
    if (this.#due.delete(id)) this.#network.release(id);
  }

  /** True for a destroyed id whose port is still held. */
  has(id: CmId): boolean {
    return this.#due.has(id);
  }

  get size(): number {
    return this.#due.size;
  }

  nextDeadline(): Micros {
    if (this.#due.size === 0) return NEVER;
    for (const due of this.#due.values()) return due;
    return NEVER;
  }

  handleDeadline(now: Micros): void {
    let left = DUE_MAX;
    for (const [id, due] of this.#due) {
      if (left === 0 || now < due) return;
      left -= 1;
      this.giveUp(id);
    }
  }

  /** Checks every held port. Throws `InvariantError`. */
  assertInvariants(): void {
    let latest = 0;
    for (const [id, due] of this.#due) {
      assert(id.state === 'destroyed', 'held port of an id that exists');
      assert(due >= latest, 'held ports out of order');
      latest = due;
    }
  }

  /** Removes the id whose held port `id` can use. Releases others with the same number. */
  #take(id: CmId, { address, port }: SocketAddress): CmId | undefined {
    for (const kept of this.#due.keys()) {
      if (kept.localAddress?.port !== port) continue;
      const suits =
        kept.localAddress.address === address &&
        kept.afOnly === id.afOnly &&
        kept.portSpace === id.portSpace &&
        kept.portKeeper === id.portKeeper;
      if (suits) {
        this.#due.delete(kept);
        return kept;
      }
      this.giveUp(kept);
    }
    return undefined;
  }
}
