/**
 * The one place where the C library is loaded, and what a failed call of it becomes.
 *
 * All of this folder assumes a 64-bit little-endian Linux (x86-64, arm64): structs are laid out by
 * hand for it. Pointers stay inside this folder.
 */
import { getSystemErrorName } from 'node:util';
import koffi from 'koffi';

/** The loaded C library. */
export const libc = koffi.load('libc.so.6');

/** A call of the C library failed. */
export class SystemCallError extends Error {
  override readonly name = 'SystemCallError';
  /** Name of the errno, for example 'EPERM'. */
  readonly code: string;
  /** The call that failed. */
  readonly syscall: string;

  constructor(syscall: string, errno: number, detail = '') {
    const code = errnoName(errno);
    super(`${syscall}: ${code}${detail === '' ? '' : ` (${detail})`}`);
    this.code = code;
    this.syscall = syscall;
  }
}

/** The name of an errno number; 'E<number>' for one that nobody knows. */
export function errnoName(errno: number): string {
  return errno > 0 ? getSystemErrorName(-errno) : `E${errno}`;
}

/** The errno of the last failed call. Valid until the next call into the C library. */
export function lastErrno(): number {
  return koffi.errno();
}

/** Returns `result` unless it is negative, then throws what errno says. */
export function checked(syscall: string, result: number, detail = ''): number {
  if (result < 0) throw new SystemCallError(syscall, lastErrno(), detail);
  return result;
}

/**
 * The address of the first octet of `octets`. Valid while the buffer is reachable: backing stores
 * of typed arrays whose address was taken do not move.
 */
export function addressOf(octets: Uint8Array): bigint {
  return koffi.address(octets);
}
