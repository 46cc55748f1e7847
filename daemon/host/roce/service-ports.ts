/**
 * Ports of connection ids on RoCE. Each port space has its own ports, independent of the machine's TCP and
 * UDP ports.
 */
import { VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { type PortClaim, portClash } from '../port-clash.ts';

/** Ephemeral ports: the kernel's default range. */
const EPHEMERAL_FIRST = 32_768;
const EPHEMERAL_LAST = 60_999;
/** Number of ephemeral ports. */
export const EPHEMERAL_PORTS = EPHEMERAL_LAST - EPHEMERAL_FIRST + 1;

/** The holder of a port. */
export interface PortHolder extends Omit<PortClaim, 'address'> {
  readonly portSpace: number;
  /** Charged for the port. */
  readonly account?: IdAccount | undefined;
  /** The user of its program: the same value for the same user. */
  readonly user?: number | object | undefined;
}

/** The address and port that a holder wants. */
interface WantedPort extends SocketAddress {
  /** The address at which it also receives requests for others: a wildcard. Default: `address`. */
  readonly reach?: string;
}

/** The port of a holder. */
interface Place {
  readonly key: string;
  readonly address: string;
  readonly reach: string;
}

export class ServicePorts {
  readonly #held = new Map<string, Set<PortHolder>>();
  /** Options of holders may change while they hold a port. */
  readonly #places = new Map<PortHolder, Place>();
  readonly #random32: () => number;

  constructor(random32: () => number) {
    this.#random32 = random32;
  }

  get size(): number {
    return this.#places.size;
  }

  /**
   * Holds a port of an address for `holder`, and returns it; port 0 for any free one. Throws EADDRINUSE if
   * address and port are held; EADDRNOTAVAIL if one of both addresses is a wildcard, or no port is free.
   */
  hold(holder: PortHolder, wanted: WantedPort): number {
    holder.account?.take('ports');
    try {
      return this.#hold(holder, wanted);
    } catch (error) {
      holder.account?.give('ports');
      throw error;
    }
  }

  #hold(holder: PortHolder, { address, port, reach = address }: WantedPort): number {
    if (port !== 0) {
      const place = { key: keyOf(holder.portSpace, port), address, reach };
      this.#assertFree(holder, place, holder.reuseAddress);
      this.#note(holder, place);
      return port;
    }
    const first = this.#random32() % EPHEMERAL_PORTS;
    for (let step = 0; step < EPHEMERAL_PORTS; step += 1) {
      const candidate = EPHEMERAL_FIRST + ((first + step) % EPHEMERAL_PORTS);
      const key = keyOf(holder.portSpace, candidate);
      if (this.#held.has(key)) continue;
      this.#note(holder, { key, address, reach });
      return candidate;
    }
    throw new VerbsError('EADDRNOTAVAIL', 'no port is free');
  }

  /**
   * Throws, as `hold` does, if another id shares the port of `holder`: a listener must not share
   * it, or another program could take its connections.
   */
  assertAlone(holder: PortHolder): void {
    const place = this.#places.get(holder);
    if (place !== undefined) this.#assertFree(holder, place, false);
  }

  /** Limits the holder's port to this address. */
  move(holder: PortHolder, address: string): void {
    const place = this.#places.get(holder);
    if (place !== undefined) this.#places.set(holder, { ...place, address, reach: address });
  }

  /** Does nothing for holders without a port. */
  release(holder: PortHolder): void {
    const place = this.#places.get(holder);
    if (place === undefined) return;
    this.#places.delete(holder);
    holder.account?.give('ports');
    const holders = this.#held.get(place.key);
    holders?.delete(holder);
    if (holders?.size === 0) this.#held.delete(place.key);
  }

  #note(holder: PortHolder, place: Place): void {
    const holders = this.#held.get(place.key) ?? new Set<PortHolder>();
    this.#held.set(place.key, holders.add(holder));
    this.#places.set(holder, place);
  }

  #assertFree(holder: PortHolder, place: Place, reuseAddress: boolean): void {
    const { key } = place;
    for (const other of this.#held.get(key) ?? []) {
      const held = this.#places.get(other);
      if (other === holder || held === undefined) continue;
      // Another user must not receive requests for an address that this holder did not name.
      const at = other.user === holder.user ? 'address' : 'reach';
      const { afOnly, reuseAddress: shares } = other;
      const wanted = { address: place[at], afOnly: holder.afOnly, reuseAddress };
      const clash = portClash(wanted, { address: held[at], afOnly, reuseAddress: shares });
      if (clash !== undefined) throw new VerbsError(clash, clashText(key, held.address));
    }
  }
}

function keyOf(portSpace: number, port: number): string {
  return `${portSpace}/${port}`;
}

function clashText(key: string, address: string): string {
  return `port ${key.slice(key.indexOf('/') + 1)} is in use at ${address}; choose another port`;
}
