/** Descriptors: duplicate, close, and send bytes without Node's stream machinery. */
import { type BytesCall, checked, lastErrno, libc, type NumberCall } from './libc.ts';

const close = libc.func('int close(int fd)') as (fd: number) => number;
const fcntl = libc.func('int fcntl(int fd, int command, int argument)') as NumberCall;
const send = libc.func(
  'int64_t send(int fd, void *bytes, uint64_t length, int flags)',
) as BytesCall;

/** Negative on failure. */
export const ioctl = libc.func('int ioctl(int fd, uint64_t request, void *argument)') as (
  fd: number,
  request: number,
  argument: Uint8Array,
) => number;
const poll = libc.func('int poll(void *entries, uint64_t count, int timeout)') as (
  entries: Uint8Array,
  count: number,
  timeoutMs: number,
) => number;

const F_DUPFD_CLOEXEC = 1030;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const POLLOUT = 4;

/** The socket's buffer is full: no byte was accepted. */
export const WOULD_BLOCK = -11;

/** Closes a descriptor. Ignores errors of close(2): nothing could be done about them. */
export function closeDescriptor(fd: number): void {
  close(fd);
}

/** A second descriptor for the same file, not inherited by child programs. */
export function duplicateDescriptor(fd: number): number {
  return checked('fcntl F_DUPFD_CLOEXEC', fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/**
 * Writes the first `length` bytes to a socket, without waiting. Returns the number of bytes accepted,
 * which may be fewer, or a negative errno (`WOULD_BLOCK` if it is full).
 */
export function sendNow(fd: number, bytes: Uint8Array, length = bytes.length): number {
  const sent = send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? -lastErrno() : sent;
}

/**
 * Blocks at most `timeoutMs` until a write finds room; returns false if there is none. Returns true
 * for a failed descriptor: the write then reports the error.
 */
export function awaitRoom(fd: number, timeoutMs: number): boolean {
  const entry = new Uint8Array(8);
  const fields = new DataView(entry.buffer);
  fields.setInt32(0, fd, true);
  fields.setInt16(4, POLLOUT, true);
  return poll(entry, 1, timeoutMs) > 0;
}
