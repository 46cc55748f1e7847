/** A receiving Unix datagram socket, which Node lacks: a minimal service manager. */
import koffi from 'koffi';

const libc = koffi.load('libc.so.6');
const socket = libc.func('int socket(int domain, int type, int protocol)');
const bind = libc.func('int bind(int fd, void *address, uint32_t length)');
const recv = libc.func('int64_t recv(int fd, void *bytes, uint64_t length, int flags)');
const close = libc.func('int close(int fd)');

const AF_UNIX = 1;
const SOCK_DGRAM_NONBLOCK_CLOEXEC = 2 | 0x800 | 0x80000;

export class DatagramSocket {
  readonly #fd: number;

  /** `name` is a path, or `@NAME` for the abstract name. */
  constructor(name: string) {
    const bytes = new TextEncoder().encode(name);
    const isAbstract = name.startsWith('@');
    const address = new Uint8Array(2 + bytes.length + (isAbstract ? 0 : 1));
    address[0] = AF_UNIX;
    address.set(bytes, 2);
    if (isAbstract) address[2] = 0;
    this.#fd = socket(AF_UNIX, SOCK_DGRAM_NONBLOCK_CLOEXEC, 0);
    if (bind(this.#fd, address, address.length) !== 0) throw new Error(`cannot bind ${name}`);
  }

  /** The next datagram as text; undefined without one. */
  receive(): string | undefined {
    const bytes = new Uint8Array(4096);
    const length = Number(recv(this.#fd, bytes, bytes.length, 0));
    return length < 0 ? undefined : new TextDecoder().decode(bytes.subarray(0, length));
  }

  close(): void {
    close(this.#fd);
  }
}
