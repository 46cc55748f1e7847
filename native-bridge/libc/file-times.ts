/** File times in nanoseconds (utimensat(2)), which Node's own calls round. */
import { checked, libc } from './libc.ts';

const utimensat = libc.func(
  'int utimensat(int directory, const char *path, void *times, int flags)',
) as unknown as {
  (directory: number, path: string, times: Uint8Array, flags: number): number;
  async(
    directory: number,
    path: string,
    times: Uint8Array,
    flags: number,
    done: (error: unknown, result: number) => void,
  ): void;
};

const AT_FDCWD = -100;
const UTIME_NOW = 0x3fff_ffff;
const UTIME_OMIT = 0x3fff_fffe;

/** A time to set: the current time, or seconds and nanoseconds since 1970. Undefined keeps a time. */
export type FileTime = 'now' | { readonly seconds: number; readonly nanoseconds: number };

/**
 * Sets the access and modification time of the file at `path`; follows links. Throws `SystemCallError`.
 */
export function setFileTimes(
  path: string,
  atime: FileTime | undefined,
  mtime: FileTime | undefined,
): void {
  checked('utimensat', utimensat(AT_FDCWD, path, timespecs(atime, mtime), 0), path);
}

export async function setFileTimesLater(
  path: string,
  atime: FileTime | undefined,
  mtime: FileTime | undefined,
): Promise<void> {
  const times = timespecs(atime, mtime);
  const result = await new Promise<number>((resolve, reject) => {
    utimensat.async(AT_FDCWD, path, times, 0, (error, returned) => {
      if (error === null || error === undefined) resolve(returned);
      else reject(error);
    });
  });
  // The thread's errno is not accessible, so repeat the failed call to get it.
  if (result < 0) setFileTimes(path, atime, mtime);
}

/** Two of struct timespec. */
function timespecs(atime: FileTime | undefined, mtime: FileTime | undefined): Uint8Array {
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
  return times;
}
