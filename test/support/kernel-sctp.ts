/** SCTP sockets of the kernel, one association each, as a peer of libusrsctp (sctp(7), RFC 6458). */
import { constants } from 'node:os';
import koffi from 'koffi';

const libc = koffi.load('libc.so.6');
const calls = {
  socket: libc.func('int socket(int domain, int type, int protocol)'),
  bind: libc.func('int bind(int fd, void *address, uint32_t length)'),
  connect: libc.func('int connect(int fd, void *address, uint32_t length)'),
  listen: libc.func('int listen(int fd, int backlog)'),
  accept: libc.func('int accept4(int fd, void *address, void *length, int flags)'),
  close: libc.func('int close(int fd)'),
  shutdown: libc.func('int shutdown(int fd, int how)'),
  setsockopt: libc.func(
    'int setsockopt(int fd, int level, int name, void *value, uint32_t length)',
  ),
  sendmsg: libc.func('int64_t sendmsg(int fd, void *message, int flags)'),
  recvmsg: libc.func('int64_t recvmsg(int fd, void *message, int flags)'),
};

const AF_INET = 2;
const STREAM_NONBLOCK = 1 | 0o4000;
const IPPROTO_SCTP = 132;
const SOL_SOCKET = 1;
const SO_LINGER = 13;
const SHUT_WR = 1;
const { EAGAIN, EINPROGRESS } = constants.errno;
const Option = { initMessage: 2, noDelay: 3, adaptation: 7, receiveInfo: 32, event: 127 } as const;
const EVENTS = [0x8001, 0x8005, 0x8007, 0x8009];
const NAMES = new Map([
  [0x8001, 'association'],
  [0x8005, 'shutdown'],
  [0x8007, 'adaptation'],
  [0x8009, 'dry'],
]);
const STATES = ['up', 'lost', 'restart', 'shutdown complete', 'cannot start'];
const MSG_DONTWAIT_NOSIGNAL = 0x4040;
const MSG_EOR = 0x80;
const MSG_NOTIFICATION = 0x8000;
const SNDINFO = 2;
const UNORDERED = 1;

/** The result of a socket call. */
type KernelReceived =
  | { readonly type: 'message'; readonly message: KernelMessage }
  | { readonly type: 'event'; readonly text: string }
  | { readonly type: 'end' }
  | { readonly type: 'error'; readonly errno: number };

interface KernelMessage {
  readonly streamId: number;
  readonly payloadProtocol: number;
  readonly unordered: boolean;
  readonly whole: boolean;
  readonly bytes: Uint8Array;
}

export class KernelSctpSocket {
  readonly fd: number;
  readonly #bytes = Buffer.alloc(131_072);
  readonly #control = Buffer.alloc(256);
  readonly #vector = Buffer.alloc(16);
  readonly #message = Buffer.alloc(56);

  constructor(fd: number) {
    this.fd = fd;
  }

  /** Bound to an address and port, with an adaptation indication if one is given. */
  static open(address: string, port: number, adaptation: number | undefined): KernelSctpSocket {
    const fd: number = calls.socket(AF_INET, STREAM_NONBLOCK, IPPROTO_SCTP);
    if (fd < 0) throw new Error(`socket: errno ${koffi.errno()}`);
    const socket = new KernelSctpSocket(fd);
    const streams = Buffer.from([8, 0, 8, 0, 0, 0, 0, 0]);
    socket.#set(IPPROTO_SCTP, Option.initMessage, streams);
    socket.#set(IPPROTO_SCTP, Option.noDelay, word(1));
    socket.#set(IPPROTO_SCTP, Option.receiveInfo, word(1));
    if (adaptation !== undefined) {
      socket.#set(IPPROTO_SCTP, Option.adaptation, word(adaptation));
    }
    for (const type of EVENTS) {
      const event = Buffer.alloc(8);
      event.writeUInt16LE(type, 4);
      event[6] = 1;
      socket.#set(IPPROTO_SCTP, Option.event, event);
    }
    checked('bind', calls.bind(fd, inetName(address, port), 16));
    return socket;
  }

  listen(): void {
    checked('listen', calls.listen(this.fd, 5));
  }

  accept(): KernelSctpSocket | undefined {
    const fd: number = calls.accept(this.fd, null, null, 0o4000);
    return fd < 0 ? undefined : new KernelSctpSocket(fd);
  }

  connect(address: string, port: number): void {
    const result: number = calls.connect(this.fd, inetName(address, port), 16);
    if (result < 0 && koffi.errno() !== EINPROGRESS) checked('connect', result);
  }

  /** Returns false if there is no room. */
  send({ streamId, payloadProtocol, unordered, bytes }: Omit<KernelMessage, 'whole'>): boolean {
    const control = this.#control.fill(0);
    control.writeBigUInt64LE(32n, 0);
    control.writeInt32LE(IPPROTO_SCTP, 8);
    control.writeInt32LE(SNDINFO, 12);
    control.writeUInt16LE(streamId, 16);
    control.writeUInt16LE(unordered ? UNORDERED : 0, 18);
    control.writeUInt32BE(payloadProtocol, 20);
    this.#describe(bytes, 32);
    const sent = Number(calls.sendmsg(this.fd, this.#message, MSG_DONTWAIT_NOSIGNAL));
    if (sent === bytes.length) return true;
    if (koffi.errno() !== EAGAIN) throw new Error(`sendmsg: errno ${koffi.errno()}`);
    return false;
  }

  /** The next input; undefined for none. */
  receive(): KernelReceived | undefined {
    this.#describe(this.#bytes, this.#control.length);
    const length = Number(calls.recvmsg(this.fd, this.#message, MSG_DONTWAIT_NOSIGNAL));
    if (length < 0) {
      const errno = koffi.errno();
      return errno === EAGAIN ? undefined : { type: 'error', errno };
    }
    if (length === 0) return { type: 'end' };
    const flags = this.#message.readInt32LE(48);
    if ((flags & MSG_NOTIFICATION) !== 0) return { type: 'event', text: this.#event() };
    return {
      type: 'message',
      message: {
        streamId: this.#control.readUInt16LE(16),
        unordered: (this.#control.readUInt16LE(20) & UNORDERED) !== 0,
        payloadProtocol: this.#control.readUInt32BE(24),
        whole: (flags & MSG_EOR) !== 0,
        bytes: Uint8Array.from(this.#bytes.subarray(0, length)),
      },
    };
  }

  shutdown(): void {
    calls.shutdown(this.fd, SHUT_WR);
  }

  abort(): void {
    this.#set(SOL_SOCKET, SO_LINGER, Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]));
    this.close();
  }

  close(): void {
    calls.close(this.fd);
  }

  #event(): string {
    const type = this.#bytes.readUInt16LE(0);
    const name = NAMES.get(type) ?? `0x${type.toString(16)}`;
    if (name === 'adaptation') return `${name} ${this.#bytes.readUInt32LE(8)}`;
    if (name !== 'association') return name;
    const state = STATES[this.#bytes.readUInt16LE(8)];
    return `${state}, ${this.#bytes.readUInt16LE(12)} out, ${this.#bytes.readUInt16LE(14)} in`;
  }

  #describe(bytes: Uint8Array, controlBytes: number): void {
    this.#vector.writeBigUInt64LE(koffi.address(bytes), 0);
    this.#vector.writeBigUInt64LE(BigInt(bytes.length), 8);
    this.#message.fill(0);
    this.#message.writeBigUInt64LE(koffi.address(this.#vector), 16);
    this.#message.writeBigUInt64LE(1n, 24);
    this.#message.writeBigUInt64LE(koffi.address(this.#control), 32);
    this.#message.writeBigUInt64LE(BigInt(controlBytes), 40);
  }

  #set(level: number, name: number, value: Uint8Array): void {
    const result = calls.setsockopt(this.fd, level, name, value, value.length);
    checked(`setsockopt ${name}`, result);
  }
}

function word(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function inetName(address: string, port: number): Buffer {
  const name = Buffer.alloc(16);
  name.writeUInt16LE(AF_INET, 0);
  name.writeUInt16BE(port, 2);
  for (const [index, part] of address.split('.').entries()) name[4 + index] = Number(part);
  return name;
}

function checked(call: string, result: number): void {
  if (result < 0) throw new Error(`${call}: errno ${koffi.errno()}`);
}
