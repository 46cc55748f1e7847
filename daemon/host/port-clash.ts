/** Whether two connection ids may hold one port, by the rules of the kernel's rdma_cm, on either wire. */
import { addressFamily, isWildcard } from '#base/address';

/** An id with the address at which it holds, or wants, a port. */
export interface PortClaim {
  readonly address: string;
  readonly afOnly: boolean | undefined;
  /** Shares its port with other ids that have this set (RDMA_OPTION_ID_REUSEADDR). */
  readonly reuseAddress: boolean;
}

/**
 * Why `wanted` may not have the port of `held`: EADDRNOTAVAIL if one of the two is a wildcard, EADDRINUSE if
 * they have the same address. Undefined if it may.
 */
export function portClash(
  wanted: PortClaim,
  held: PortClaim,
): 'EADDRINUSE' | 'EADDRNOTAVAIL' | undefined {
  if (wanted.reuseAddress && held.reuseAddress) return undefined;
  const apart =
    isNarrow(wanted) &&
    isNarrow(held) &&
    addressFamily(wanted.address) !== addressFamily(held.address);
  if (apart) return undefined;
  if (isWildcard(wanted.address) || isWildcard(held.address)) return 'EADDRNOTAVAIL';
  return wanted.address === held.address ? 'EADDRINUSE' : undefined;
}

/** Whether it leaves the port of the other address family free: by default IPv4 does, as in the kernel. */
function isNarrow({ afOnly, address }: PortClaim): boolean {
  return afOnly ?? addressFamily(address) === 4;
}
