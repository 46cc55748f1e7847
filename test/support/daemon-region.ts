/** How the two ends of the kill test exchange the location of their memory. */
import type { MR } from '#contract/verbs/provider';

export const REGION_BYTES = 256 * 1024;

/** Address and key of a region as private data. */
export function encodeRegion(mr: MR): Uint8Array {
  return new TextEncoder().encode(`${mr.address} ${mr.rkey}`);
}

/** The peer's address and key. Private data of RoCE is padded to its field. */
export function parseRegion(privateData: Uint8Array): { address: bigint; rkey: number } {
  const text = new TextDecoder().decode(privateData).replace(/\0+$/, '');
  const [address = '', rkey = ''] = text.split(' ');
  return { address: BigInt(address), rkey: Number(rkey) };
}
