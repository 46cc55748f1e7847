/** How the two ends of the kill test exchange the location of their memory. */
import type { MR } from '../../verbs-api/contract/verbs/provider.ts';

/** Bytes of each region. */
export const REGION_BYTES = 256 * 1024;

/** Address and key of a region as private data. */
export function encodeRegion(mr: MR): Uint8Array {
  return new TextEncoder().encode(`${mr.address} ${mr.rkey}`);
}

/** The peer's address and key. */
export function parseRegion(privateData: Uint8Array): { address: bigint; rkey: number } {
  const [address = '', rkey = ''] = new TextDecoder().decode(privateData).split(' ');
  return { address: BigInt(address), rkey: Number(rkey) };
}
