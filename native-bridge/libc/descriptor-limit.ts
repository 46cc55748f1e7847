/**
 * Keeps the last descriptors of this process in reserve. The kernel assigns the lowest free number,
 * so a new descriptor with one of the highest numbers shows that all others are in use: nothing must
 * be counted, and no kind of descriptor can be missed.
 */
import { closeDescriptor } from './descriptor.ts';
import { SystemCallError } from './libc.ts';

const EMFILE = 24;

let limit = Number.POSITIVE_INFINITY;
let reserve = 0;

/** From now on, keeps `reserve` of the process's `limit` descriptors. Default: none. */
export function reserveDescriptors(limits: {
  readonly limit: number;
  readonly reserve: number;
}): void {
  limit = limits.limit;
  reserve = limits.reserve;
}

export function isReserved(fd: number): boolean {
  return fd >= limit - reserve;
}

/** Error text: only reserved descriptors are left; says how to raise the limit. */
export function reservedText(): string {
  return `the daemon's clients have taken all but ${reserve} of its ${limit} descriptors; raise the limit of open files before it starts (ulimit -n)`;
}

/** Returns `fd`, or closes it and throws `SystemCallError` EMFILE when it is from the reserve. */
export function unreserved(syscall: string, fd: number): number {
  if (!isReserved(fd)) return fd;
  closeDescriptor(fd);
  throw new SystemCallError(syscall, EMFILE, reservedText());
}
