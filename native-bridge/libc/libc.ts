/**
 * Loads the C library, for the whole folder, and turns failed calls into errors.
 *
 * This folder assumes 64-bit little-endian Linux (x86-64, arm64): structs are laid out by hand for
 * it. Pointers stay inside this folder.
 */
import { getSystemErrorName } from 'node:util';
import koffi from 'koffi';

export const libc = koffi.load('libc.so.6');

/** A call that takes numbers, as its prototype says. */
export type NumberCall = (...parameters: number[]) => number;
/** A call with a descriptor, bytes and their length, and flags. */
export type BytesCall = (fd: number, bytes: Uint8Array, length: number, flags: number) => number;
/** A call with a descriptor, a struct msghdr, and flags. */
export type MessageCall = (fd: number, message: Uint8Array, flags: number) => number;

export class SystemCallError extends Error {
  override readonly name = 'SystemCallError';
  /** Name of the errno, for example 'EPERM'. */
  readonly code: string;
  readonly syscall: string;

  constructor(syscall: string, errno: number, detail = '') {
    const code = errnoName(errno);
    super(`${syscall}: ${code}${detail === '' ? '' : ` (${detail})`}`);
    this.code = code;
    this.syscall = syscall;
  }
}

/** The name of an errno number; 'E<number>' for an unknown one. */
export function errnoName(errno: number): string {
  return errno > 0 ? getSystemErrorName(-errno) : `E${errno}`;
}

/** The errno of the last failed call. Valid until the next call into the C library. */
export function lastErrno(): number {
  return koffi.errno();
}

/** Returns `result`, or throws the error in errno if it is negative. */
export function checked(syscall: string, result: number, detail = ''): number {
  if (result < 0) throw new SystemCallError(syscall, lastErrno(), detail);
  return result;
}

/**
 * The address of the first byte of `bytes`. Valid while the buffer is reachable: the backing store
 * of a typed array whose address was taken does not move.
 */
export function addressOf(bytes: Uint8Array): bigint {
  return koffi.address(bytes);
}
