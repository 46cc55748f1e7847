/** Advisory locks (flock(2)): a holder excludes others, and loses the lock when it dies. */
import { lastErrno, libc, type NumberCall, SystemCallError } from './libc.ts';

const flock = libc.func('int flock(int fd, int operation)') as NumberCall;

const LOCK_EX_NB = 2 | 4;
const EWOULDBLOCK = 11;

/**
 * Locks an open file or directory without waiting. Returns false if another process holds the lock.
 * Closing the descriptor releases it.
 */
export function tryLock(fd: number): boolean {
  if (flock(fd, LOCK_EX_NB) === 0) return true;
  const errno = lastErrno();
  if (errno === EWOULDBLOCK) return false;
  throw new SystemCallError('flock', errno);
}
