/** Sends a datagram to a Unix socket, at a path or in the abstract namespace; Node cannot. */
import { closeDescriptor } from './descriptor.ts';
import { checked, libc, type NumberCall, SystemCallError } from './libc.ts';

const socket = libc.func('int socket(int domain, int type, int protocol)') as NumberCall;
const sendto = libc.func(
  'int64_t sendto(int fd, void *bytes, uint64_t length, int flags, void *address, uint32_t addressLength)',
) as (
  fd: number,
  bytes: Uint8Array,
  length: number,
  flags: number,
  address: Uint8Array,
  addressLength: number,
) => number;

const AF_UNIX = 1;
const SOCK_DGRAM_CLOEXEC = 2 | 0x80000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const ENAMETOOLONG = 36;
const SUN_PATH_BYTES = 108;

/**
 * Sends `bytes` to the datagram socket `name`: a path, or `@NAME` for an abstract name. Does not
 * wait. Throws `SystemCallError`: ENOENT, ECONNREFUSED, EACCES, EAGAIN, ENAMETOOLONG.
 */
export function sendUnixDatagram(name: string, bytes: Uint8Array): void {
  const { address, length } = unixAddress(name);
  const fd = checked('socket', socket(AF_UNIX, SOCK_DGRAM_CLOEXEC, 0));
  try {
    const flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    checked('sendto', sendto(fd, bytes, bytes.length, flags, address, length), name);
  } finally {
    closeDescriptor(fd);
  }
}

/** A struct sockaddr_un and its length: an abstract name has no final zero. */
function unixAddress(name: string): { address: Uint8Array; length: number } {
  const bytes = new TextEncoder().encode(name);
  const isAbstract = name.startsWith('@');
  const taken = bytes.length + (isAbstract ? 0 : 1);
  if (taken > SUN_PATH_BYTES) throw new SystemCallError('sendto', ENAMETOOLONG, name);
  const address = new Uint8Array(2 + SUN_PATH_BYTES);
  address[0] = AF_UNIX;
  address.set(bytes, 2);
  if (isAbstract) address[2] = 0;
  return { address, length: 2 + taken };
}
