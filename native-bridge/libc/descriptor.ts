/** Descriptors as such: duplicate, close, and octets out without Node's stream machinery. */
import { checked, lastErrno, libc } from './libc.ts';

const close = libc.func('int close(int fd)') as (fd: number) => number;
const fcntl = libc.func('int fcntl(int fd, int command, int argument)') as (
  fd: number,
  command: number,
  argument: number,
) => number;
const send = libc.func('int64_t send(int fd, void *octets, uint64_t length, int flags)') as (
  fd: number,
  octets: Uint8Array,
  length: number,
  flags: number,
) => number;

const F_DUPFD_CLOEXEC = 1030;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/** The socket's buffer is full: nothing was taken. */
export const WOULD_BLOCK = -11;

/** Closes a descriptor. An error of close(2) has no remedy and is not told. */
export function closeDescriptor(fd: number): void {
  close(fd);
}

/** A second descriptor for the same file, not inherited by programs that are started. */
export function duplicateDescriptor(fd: number): number {
  return checked('fcntl F_DUPFD_CLOEXEC', fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/**
 * Writes the first `length` octets to a socket at once, without ever waiting. Returns the number
 * of octets taken, which may be fewer, or a negative errno (`WOULD_BLOCK` when it is full).
 */
export function sendNow(fd: number, octets: Uint8Array, length = octets.length): number {
  const sent = send(fd, octets, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? -lastErrno() : sent;
}
