/** Advisory locks (flock(2)): who holds one keeps others out, and loses it when it dies. */
import { lastErrno, libc, SystemCallError } from './libc.ts';

const flock = libc.func('int flock(int fd, int operation)') as (
  fd: number,
  operation: number,
) => number;

const LOCK_EX_NB = 2 | 4;
const EWOULDBLOCK = 11;

/**
 * Locks an open file or directory without waiting. False when somebody else holds the lock. It is
 * given back when the descriptor is closed.
 */
export function tryLock(fd: number): boolean {
  if (flock(fd, LOCK_EX_NB) === 0) return true;
  const errno = lastErrno();
  if (errno === EWOULDBLOCK) return false;
  throw new SystemCallError('flock', errno);
}
