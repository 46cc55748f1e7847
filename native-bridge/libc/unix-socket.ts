/** Unix sockets: the peer's credentials (SO_PEERCRED), and passing descriptors (SCM_RIGHTS). */
import type { Socket } from 'node:net';
import { closeDescriptor, ioctl } from './descriptor.ts';
import {
  addressOf,
  checked,
  lastErrno,
  libc,
  type MessageCall,
  type NumberCall,
  SystemCallError,
} from './libc.ts';

const socket = libc.func('int socket(int domain, int type, int protocol)') as NumberCall;
const socketpair = libc.func(
  'int socketpair(int domain, int type, int protocol, void *descriptors)',
) as (domain: number, type: number, protocol: number, descriptors: Int32Array) => number;
const connect = libc.func('int connect(int fd, void *address, uint32_t length)') as (
  fd: number,
  address: Uint8Array,
  length: number,
) => number;
const shutdown = libc.func('int shutdown(int fd, int how)') as (fd: number, how: number) => number;
const getsockopt = libc.func(
  'int getsockopt(int fd, int level, int option, void *value, void *length)',
) as (fd: number, level: number, option: number, value: Uint8Array, length: Uint8Array) => number;
const sendmsg = libc.func('int64_t sendmsg(int fd, void *message, int flags)') as MessageCall;
const recvmsg = libc.func('int64_t recvmsg(int fd, void *message, int flags)') as MessageCall;
const poll = libc.func('int poll(void *entries, uint64_t count, int timeout)') as unknown as {
  async(
    entries: Uint8Array,
    count: number,
    timeoutMs: number,
    done: (error: Error | null, ready: number) => void,
  ): void;
};

const SIOCOUTQ = 0x5411;
const AF_UNIX = 1;
const SOCK_STREAM_CLOEXEC = 1 | 0x80000;
const SOCK_STREAM_CLOEXEC_NONBLOCK = 1 | 0x80000 | 0x800;
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SO_PEERPIDFD = 77;
const SCM_RIGHTS = 1;
const SHUT_RDWR = 2;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x40000000;
const POLLIN = 1;
/** Bytes of sun_path, the final zero included. */
const SUN_PATH_BYTES = 108;
const EAGAIN = 11;
const EINTR = 4;

/** The process at the other end of a Unix socket, as reported by the kernel. */
export interface PeerCredentials {
  /** 0 if the process is not visible from here (another PID namespace). */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

/** The process that connected this Unix socket (SO_PEERCRED). Throws `SystemCallError`. */
export function peerCredentials(fd: number): PeerCredentials {
  const value = new Uint8Array(12);
  const length = Uint8Array.of(12, 0, 0, 0);
  checked('getsockopt SO_PEERCRED', getsockopt(fd, SOL_SOCKET, SO_PEERCRED, value, length));
  const fields = new DataView(value.buffer);
  return {
    pid: fields.getInt32(0, true),
    uid: fields.getUint32(4, true),
    gid: fields.getUint32(8, true),
  };
}

/**
 * A pidfd of the process that connected this Unix socket, for the caller to close. It always refers to
 * that process, however long ago it connected. Throws `SystemCallError`: ENOPROTOOPT before Linux 6.5,
 * ESRCH if the process is gone (later kernels return a descriptor of a dead process).
 */
export function peerProcessDescriptor(fd: number): number {
  const value = new Uint8Array(4);
  const length = Uint8Array.of(4, 0, 0, 0);
  checked('getsockopt SO_PEERPIDFD', getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, value, length));
  return new DataView(value.buffer).getInt32(0, true);
}

/** The descriptor of an open Node socket, or undefined if it is closed. */
export function descriptorOf(nodeSocket: Socket): number | undefined {
  // Node has no public access to it; every release so far stores it in the handle.
  const handle: unknown = Reflect.get(nodeSocket, '_handle');
  if (typeof handle !== 'object' || handle === null) return undefined;
  const fd: unknown = Reflect.get(handle, 'fd');
  return typeof fd === 'number' && fd >= 0 ? fd : undefined;
}

/** The longest path that a Unix socket can have, in bytes. */
export const SOCKET_PATH_MAX_BYTES = SUN_PATH_BYTES - 1;

/**
 * Connects to a Unix socket and returns the descriptor, non-blocking. Throws `SystemCallError`:
 * ENOENT, ECONNREFUSED, EACCES, EAGAIN if the listener's backlog is full.
 */
export function connectUnix(path: string): number {
  const name = new TextEncoder().encode(path);
  if (name.length > SOCKET_PATH_MAX_BYTES) throw new SystemCallError('connect', 36, path);
  const address = new Uint8Array(2 + SUN_PATH_BYTES);
  address[0] = AF_UNIX;
  address.set(name, 2);
  const fd = checked('socket', socket(AF_UNIX, SOCK_STREAM_CLOEXEC_NONBLOCK, 0));
  if (connect(fd, address, 2 + name.length + 1) === 0) return fd;
  const error = new SystemCallError('connect', lastErrno(), path);
  closeDescriptor(fd);
  throw error;
}

/** Two connected sockets, not inherited by child programs. Throws `SystemCallError`. */
export function socketPair(): readonly [number, number] {
  const descriptors = new Int32Array(2);
  checked('socketpair', socketpair(AF_UNIX, SOCK_STREAM_CLOEXEC, 0, descriptors));
  const [one = -1, other = -1] = descriptors;
  return [one, other];
}

/** Shuts down both directions of a socket and wakes its waiters. The descriptor stays open. */
export function shutdownSocket(fd: number): void {
  shutdown(fd, SHUT_RDWR);
}

/** A struct msghdr with one element and space for one descriptor. */
class Message {
  readonly header = new Uint8Array(56);
  readonly control = new Uint8Array(24);
  readonly #fields = new DataView(this.header.buffer);
  readonly #controlFields = new DataView(this.control.buffer);
  readonly #vector = new Uint8Array(16);
  /** Kept alive, since the vector holds its address. */
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array, controlBytes: number) {
    this.bytes = bytes;
    const vector = new DataView(this.#vector.buffer);
    vector.setBigUint64(0, addressOf(bytes), true);
    vector.setBigUint64(8, BigInt(bytes.length), true);
    this.#fields.setBigUint64(16, addressOf(this.#vector), true);
    this.#fields.setBigUint64(24, 1n, true);
    if (controlBytes > 0) this.#fields.setBigUint64(32, addressOf(this.control), true);
    this.#fields.setBigUint64(40, BigInt(controlBytes), true);
  }

  setDescriptor(descriptor: number): void {
    this.#controlFields.setBigUint64(0, 20n, true);
    this.#controlFields.setInt32(8, SOL_SOCKET, true);
    this.#controlFields.setInt32(12, SCM_RIGHTS, true);
    this.#controlFields.setInt32(16, descriptor, true);
  }

  get descriptor(): number | undefined {
    const controlBytes = this.#fields.getBigUint64(40, true);
    if (controlBytes < 20n || this.#controlFields.getInt32(12, true) !== SCM_RIGHTS)
      return undefined;
    return this.#controlFields.getInt32(16, true);
  }
}

/**
 * Sends bytes, with a descriptor if given, without waiting. Returns the number of bytes accepted or a
 * negative errno.
 */
export function sendDescriptor(
  fd: number,
  bytes: Uint8Array,
  descriptor: number | undefined,
): number {
  const message = new Message(bytes, descriptor === undefined ? 0 : 24);
  if (descriptor !== undefined) message.setDescriptor(descriptor);
  const sent = sendmsg(fd, message.header, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? -lastErrno() : sent;
}

interface ReceivedDescriptor {
  /** Bytes received; 0 if the other side closed. */
  readonly length: number;
  /** Not inherited by child programs. The caller closes it. */
  readonly descriptor: number | undefined;
}

/**
 * Waits, without blocking the event loop, until bytes arrive, and takes the available ones (at most
 * `bytes.length`) with their descriptor, if any. Throws `SystemCallError` (ETIMEDOUT).
 */
export async function receiveDescriptor(
  fd: number,
  bytes: Uint8Array,
  timeoutMs: number,
): Promise<ReceivedDescriptor> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const message = new Message(bytes, 24);
    const length = recvmsg(fd, message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length >= 0) return { length, descriptor: message.descriptor };
    const errno = lastErrno();
    if (errno !== EAGAIN && errno !== EINTR) throw new SystemCallError('recvmsg', errno);
    const restMs = Math.ceil(deadline - performance.now());
    if (restMs <= 0) throw new SystemCallError('recvmsg', 110);
    await readable(fd, restMs);
  }
}

/**
 * Memory of bytes sent on a Unix socket that the peer has not read; 0 once it has read all (SIOCOUTQ).
 */
export function unreadMemory(fd: number): number {
  const value = new Uint8Array(4);
  checked('ioctl SIOCOUTQ', ioctl(fd, SIOCOUTQ, value));
  return new DataView(value.buffer).getInt32(0, true);
}

/** Resolves when `fd` is readable or at its end, or at the timeout. */
function readable(fd: number, timeoutMs: number): Promise<void> {
  const entry = new Uint8Array(8);
  const fields = new DataView(entry.buffer);
  fields.setInt32(0, fd, true);
  fields.setInt16(4, POLLIN, true);
  return new Promise((resolve) => poll.async(entry, 1, timeoutMs, () => resolve()));
}
