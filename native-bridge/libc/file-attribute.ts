/** Extended attributes of files, which Node does not read. */
import { libc } from './libc.ts';

const getxattr = libc.func(
  'int64_t getxattr(const char *path, const char *name, void *value, uint64_t size)',
) as (path: string, name: string, value: Uint8Array, size: number) => number;

/** Longest value read, in bytes. */
const VALUE_MAX_BYTES = 256;

/**
 * The value of an extended attribute of the file at `path`, links followed. Undefined if the file has
 * no such attribute, cannot be read, or the value is longer than 256 bytes.
 */
export function fileAttribute(path: string, name: string): Uint8Array | undefined {
  const value = new Uint8Array(VALUE_MAX_BYTES);
  const length = getxattr(path, name, value, VALUE_MAX_BYTES);
  return length < 0 ? undefined : value.subarray(0, length);
}
