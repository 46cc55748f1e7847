/** Reads the part of a file that is in memory (preadv2(2) with RWF_NOWAIT). */
import { addressOf, libc } from './libc.ts';

const preadv2 = libc.func(
  'int64_t preadv2(int fd, void *vectors, int count, int64_t offset, int flags)',
) as (fd: number, vectors: Uint8Array, count: number, offset: number, flags: number) => number;

const RWF_NOWAIT = 8;
/** One struct iovec, for the current call. */
const vector = new Uint8Array(16);
const vectorFields = new DataView(vector.buffer);

/**
 * Fills `bytes` from `offset` of the file, without waiting for a disk. Returns the number of bytes
 * read, 0 at the end of the file. Returns undefined if the first byte is not in memory, if the file
 * system cannot tell, or if the read fails: a blocking read then shows which.
 */
export function readCached(fd: number, bytes: Uint8Array, offset: number): number | undefined {
  vectorFields.setBigUint64(0, addressOf(bytes), true);
  vectorFields.setBigUint64(8, BigInt(bytes.length), true);
  const count = preadv2(fd, vector, 1, offset, RWF_NOWAIT);
  return count < 0 ? undefined : count;
}
