/** Whether two connection ids may hold one port: as the kernel's rdma_cm decides it, on either wire. */
import { addressFamily, isWildcard } from '../iwarp/cm/address.ts';

/** An id with the address at which it holds, or wants, a port. */
export interface PortClaim {
  readonly address: string;
  /** See `HostCm.setAfOnly`. */
  readonly afOnly: boolean | undefined;
  /** It shares its port with others that do, too (RDMA_OPTION_ID_REUSEADDR). */
  readonly reuseAddress: boolean;
}

/**
 * Why `wanted` may not have the port that `held` has: EADDRNOTAVAIL if one of the two is a wildcard,
 * EADDRINUSE if they have the same address. Undefined if it may.
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

/** Whether it leaves the other family to others: by default IPv4 does, as in the kernel. */
function isNarrow({ afOnly, address }: PortClaim): boolean {
  return afOnly ?? addressFamily(address) === 4;
}
