/** File times in nanoseconds (utimensat(2)), which Node's own calls round. */
import { checked, libc } from './libc.ts';

const utimensat = libc.func(
  'int utimensat(int directory, const char *path, void *times, int flags)',
) as (directory: number, path: string, times: Uint8Array, flags: number) => number;

const AT_FDCWD = -100;
const UTIME_NOW = 0x3fff_ffff;
const UTIME_OMIT = 0x3fff_fffe;

/** A time to set: the present, or seconds and nanoseconds since 1970. Undefined keeps a time. */
export type FileTime = 'now' | { readonly seconds: number; readonly nanoseconds: number };

/**
 * Sets the access and modification time of the file at `path`; follows links. Throws
 * `SystemCallError`.
 */
export function setFileTimes(
  path: string,
  atime: FileTime | undefined,
  mtime: FileTime | undefined,
): void {
  // Two of struct timespec.
  const times = new Uint8Array(32);
  const fields = new DataView(times.buffer);
  for (const [index, time] of [atime, mtime].entries()) {
    const at = index * 16;
    if (time === undefined) fields.setBigInt64(at + 8, BigInt(UTIME_OMIT), true);
    else if (time === 'now') fields.setBigInt64(at + 8, BigInt(UTIME_NOW), true);
    else {
      fields.setBigInt64(at, BigInt(time.seconds), true);
      fields.setBigInt64(at + 8, BigInt(time.nanoseconds), true);
    }
  }
  checked('utimensat', utimensat(AT_FDCWD, path, times, 0), path);
}
