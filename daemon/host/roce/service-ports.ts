/**
 * Ports of connection ids on RoCE. Each port space has its own: TCP's and UDP's ports of the machine
 * do not matter to it.
 */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { SocketAddress } from '../../../verbs-api/contract/verbs/provider.ts';
import { addressFamily, isWildcard } from '../../iwarp/cm/address.ts';

/** Ports for those who ask for any: the kernel's range by default. */
const EPHEMERAL_FIRST = 32_768;
const EPHEMERAL_LAST = 60_999;

/** Who holds a port. */
export interface PortHolder {
  readonly portSpace: number;
  /** See `HostCm.setAfOnly`; it may change while the port is held. */
  readonly afOnly: boolean | undefined;
  /** It shares its port with others that do, too (RDMA_OPTION_ID_REUSEADDR). */
  readonly reuseAddress: boolean;
}

/** See the module's comment. */
export class ServicePorts {
  readonly #held = new Map<string, Map<PortHolder, string>>();
  readonly #byHolder = new Map<PortHolder, string>();
  readonly #random32: () => number;

  constructor(random32: () => number) {
    this.#random32 = random32;
  }

  get size(): number {
    return this.#byHolder.size;
  }

  /**
   * Holds a port of an address for `holder`, and returns it; port 0 is any free one. EADDRINUSE when
   * the address and port are held; EADDRNOTAVAIL when a wildcard covers one of both, or no port is
   * free.
   */
  hold(holder: PortHolder, { address, port }: SocketAddress): number {
    if (port !== 0) {
      const refusal = this.#refusal(holder, address, port);
      if (refusal !== undefined) throw new VerbsError(refusal, `port ${port} is held`);
      this.#note(holder, address, port);
      return port;
    }
    const count = EPHEMERAL_LAST - EPHEMERAL_FIRST + 1;
    const first = this.#random32() % count;
    for (let step = 0; step < count; step += 1) {
      const candidate = EPHEMERAL_FIRST + ((first + step) % count);
      if (this.#held.has(keyOf(holder.portSpace, candidate))) continue;
      this.#note(holder, address, candidate);
      return candidate;
    }
    throw new VerbsError('EADDRNOTAVAIL', 'no port is free');
  }

  /** Ignores those that hold none. */
  release(holder: PortHolder): void {
    const key = this.#byHolder.get(holder);
    if (key === undefined) return;
    this.#byHolder.delete(holder);
    const holders = this.#held.get(key);
    holders?.delete(holder);
    if (holders?.size === 0) this.#held.delete(key);
  }

  #note(holder: PortHolder, address: string, port: number): void {
    const key = keyOf(holder.portSpace, port);
    const holders = this.#held.get(key) ?? new Map<PortHolder, string>();
    this.#held.set(key, holders.set(holder, address));
    this.#byHolder.set(holder, key);
  }

  #refusal(holder: PortHolder, address: string, port: number) {
    for (const [other, held] of this.#held.get(keyOf(holder.portSpace, port)) ?? []) {
      const apart =
        isNarrow(holder, address) &&
        isNarrow(other, held) &&
        addressFamily(held) !== addressFamily(address);
      if (apart || (holder.reuseAddress && other.reuseAddress)) continue;
      if (held === address) return 'EADDRINUSE';
      if (isWildcard(held) || isWildcard(address)) return 'EADDRNOTAVAIL';
    }
    return undefined;
  }
}

/** Whether it leaves the other family to others: by default IPv4 does, as in the kernel. */
function isNarrow({ afOnly }: PortHolder, address: string): boolean {
  return afOnly ?? addressFamily(address) === 4;
}

function keyOf(portSpace: number, port: number): string {
  return `${portSpace}/${port}`;
}
