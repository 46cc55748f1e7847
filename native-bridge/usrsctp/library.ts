/**
 * Loads libusrsctp, SCTP in user space, for the whole folder.
 *
 * Addresses of the library are numbers here: user-space addresses are below 2^47, so packets need no
 * BigInt. They stay inside this folder.
 */
import { isMainThread } from 'node:worker_threads';
import koffi from 'koffi';
import { libc } from '../libc/libc.ts';

/** Part of Debian's package libusrsctp2. */
export const USRSCTP_LIBRARY = 'libusrsctp.so.2';

/** Why SCTP in user space is not available. */
export class UsrsctpUnavailable extends Error {
  override readonly name = 'UsrsctpUnavailable';
  readonly code = 'EPROTONOSUPPORT';
  /**
   * - missing: the library is not installed.
   * - unsuitable: it lacks a function, like old versions.
   * - elsewhere: another thread of this process uses it, and it supports only one.
   */
  readonly reason: 'missing' | 'unsuitable' | 'elsewhere';

  constructor(reason: UsrsctpUnavailable['reason'], text: string) {
    super(text);
    this.reason = reason;
  }
}

const dlopen = libc.func('void *dlopen(const char *name, int flags)') as (
  name: string,
  flags: number,
) => unknown;
const RTLD_NOW = 0x2;
const RTLD_NODELETE = 0x1000;

// Callbacks of the library: a packet to send, and an event on a socket.
const OutputProto = koffi.proto(
  'int UsrsctpOutput(uint64_t address, uint64_t buffer, size_t length, uint8_t tos, uint8_t df)',
);
const UpcallProto = koffi.proto(
  'void UsrsctpUpcall(uint64_t socket, uint64_t argument, int flags)',
);

/** A packet for `token`; returns 0 or an errno. */
export type OutputCallback = (
  token: number,
  buffer: number,
  length: number,
  tos: number,
  df: number,
) => number;
export type UpcallCallback = (socket: number, argument: number, flags: number) => void;

/** Functions of the library, under C's names without `usrsctp_`. */
const SIGNATURES = {
  init_nothreads: 'void usrsctp_init_nothreads(uint16_t port, UsrsctpOutput *output, void *debug)',
  enable_crc32c_offload: 'void usrsctp_enable_crc32c_offload()',
  register_address: 'void usrsctp_register_address(uint64_t token)',
  deregister_address: 'void usrsctp_deregister_address(uint64_t token)',
  conninput:
    'void usrsctp_conninput(uint64_t token, uint64_t packet, size_t length, uint8_t ecnBits)',
  handle_timers: 'void usrsctp_handle_timers(uint32_t elapsedMs)',
  socket:
    'uint64_t usrsctp_socket(int domain, int type, int protocol, void *receive, void *send, uint32_t threshold, void *user)',
  setsockopt:
    'int usrsctp_setsockopt(uint64_t socket, int level, int name, void *value, uint32_t length)',
  getsockopt:
    'int usrsctp_getsockopt(uint64_t socket, int level, int name, void *value, void *length)',
  set_non_blocking: 'int usrsctp_set_non_blocking(uint64_t socket, int on)',
  set_upcall: 'int usrsctp_set_upcall(uint64_t socket, UsrsctpUpcall *upcall, uint64_t argument)',
  get_events: 'int usrsctp_get_events(uint64_t socket)',
  bind: 'int usrsctp_bind(uint64_t socket, void *address, uint32_t length)',
  connect: 'int usrsctp_connect(uint64_t socket, void *address, uint32_t length)',
  listen: 'int usrsctp_listen(uint64_t socket, int backlog)',
  accept: 'uint64_t usrsctp_accept(uint64_t socket, void *address, void *length)',
  shutdown: 'int usrsctp_shutdown(uint64_t socket, int how)',
  close: 'void usrsctp_close(uint64_t socket)',
  sendv:
    'int64_t usrsctp_sendv(uint64_t socket, void *bytes, size_t length, void *to, int toCount, void *info, uint32_t infoBytes, uint32_t infoType, int flags)',
  recvv:
    'int64_t usrsctp_recvv(uint64_t socket, uint64_t bytes, size_t length, void *from, void *fromBytes, void *info, void *infoBytes, void *infoType, void *flags)',
} as const;

/** Takes numbers, also for sockets, addresses in memory and tokens of paths; bytes; function pointers. */
type Call = (...parameters: readonly unknown[]) => number;

/** The loaded library. */
export interface Usrsctp extends Readonly<Record<keyof typeof SIGNATURES, Call>> {
  setVariable(name: string, value: number): void;
  variable(name: string): number;
  /** Function pointers for the library, kept for the life of the process. */
  outputPointer(callback: OutputCallback): unknown;
  upcallPointer(callback: UpcallCallback): unknown;
}

/** Loads the library, or throws `UsrsctpUnavailable`. */
export function loadUsrsctp(name: string = USRSCTP_LIBRARY): Usrsctp {
  const library = opened(name);
  const found = (signature: string): unknown => {
    try {
      return library.func(signature);
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      throw new UsrsctpUnavailable('unsuitable', `${name} is too old or another library: ${text}`);
    }
  };
  const calls = Object.fromEntries(
    Object.entries(SIGNATURES).map(([call, signature]) => [call, found(signature)]),
  );
  const functions = {
    ...calls,
    setVariable: (variable: string, value: number) => {
      const set = found(`int usrsctp_sysctl_set_${variable}(uint32_t value)`);
      (set as (value: number) => number)(value);
    },
    variable: (variable: string) =>
      (found(`uint32_t usrsctp_sysctl_get_${variable}()`) as () => number)(),
    outputPointer: (callback: OutputCallback) =>
      koffi.register(callback, koffi.pointer(OutputProto)),
    upcallPointer: (callback: UpcallCallback) =>
      koffi.register(callback, koffi.pointer(UpcallProto)),
  };
  return functions as unknown as Usrsctp;
}

function opened(name: string): ReturnType<typeof koffi.load> {
  try {
    const library = koffi.load(name);
    // koffi unloads the library when the thread ends, although a thread of the library still runs:
    // a process that ends would crash. After a worker it is unloaded, so the next one starts a new
    // stack.
    if (isMainThread) dlopen(name, RTLD_NOW | RTLD_NODELETE);
    return library;
  } catch {
    const fix = 'install Debian’s libusrsctp2 (apt-get install libusrsctp2)';
    throw new UsrsctpUnavailable('missing', `${name} is not installed: ${fix}`);
  }
}
