/** Reads from a file what the system has in memory (preadv2(2) with RWF_NOWAIT). */
import { addressOf, libc } from './libc.ts';

const preadv2 = libc.func(
  'int64_t preadv2(int fd, void *vectors, int count, int64_t offset, int flags)',
) as (fd: number, vectors: Uint8Array, count: number, offset: number, flags: number) => number;

const RWF_NOWAIT = 8;
/** One struct iovec, of the call under way. */
const vector = new Uint8Array(16);
const vectorFields = new DataView(vector.buffer);

/**
 * Fills `octets` from `offset` of the file, without waiting for a disk. Returns how many there
 * were, 0 at the end of the file. Returns undefined when the first of them is not in memory, or
 * when the file system cannot tell, or the read fails: a read that waits then says which.
 */
export function readCached(fd: number, octets: Uint8Array, offset: number): number | undefined {
  vectorFields.setBigUint64(0, addressOf(octets), true);
  vectorFields.setBigUint64(8, BigInt(octets.length), true);
  const count = preadv2(fd, vector, 1, offset, RWF_NOWAIT);
  return count < 0 ? undefined : count;
}
