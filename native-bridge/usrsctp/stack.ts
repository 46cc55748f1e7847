/**
 * The library as one SCTP stack for this process, without threads or sockets of its own (AF_CONN):
 * packets come in by `input` and go out by `StackUser`, and time passes by `advance`.
 *
 * A token names a path, which is a UDP socket of ours and a peer's address and port. The library uses
 * it as the address of both ends, and compares it, no more.
 *
 * Packets are in two areas of memory that the stack's user owns, so none needs an address of its own.
 * Checksums are the user's: packets come in checked, and go out with a zero for it.
 */
import { isMainThread } from 'node:worker_threads';
import { addressOf, libc } from '../libc/libc.ts';
import { loadUsrsctp, type Usrsctp, UsrsctpUnavailable } from './library.ts';

const copyMemory = libc.func('void memcpy(uint64_t to, uint64_t from, uint64_t length)') as (
  to: number,
  from: number,
  length: number,
) => void;

/** How long nothing is sent before a heartbeat is. */
export const HEARTBEAT_MS = 10_000;

/** Values that the library starts with, each with the reason. */
const VARIABLES: readonly (readonly [name: string, value: number])[] = [
  // Extensions that nothing here needs: what is off is not parsed.
  ['sctp_ecn_enable', 0],
  ['sctp_auth_enable', 0],
  ['sctp_asconf_enable', 0],
  ['sctp_auto_asconf', 0],
  ['sctp_pr_enable', 0],
  ['sctp_reconfig_enable', 0],
  ['sctp_nrsack_enable', 0],
  ['sctp_pktdrop_enable', 0],
  // SCTP-10-03: at most 32,767 messages of a stream may be unacknowledged.
  ['sctp_max_chunks_on_queue', 32_767],
  // The window is what limits a burst: it is no larger than the UDP socket's buffer.
  ['sctp_max_burst_default', 0],
  ['sctp_fr_max_burst_default', 0],
  ['sctp_initial_cwnd', 10],
  ['sctp_sack_freq_default', 2],
  // The usual minimum of a second stalls a connection whose last packet was lost.
  ['sctp_rto_min_default', 50],
  ['sctp_rto_initial_default', 200],
  ['sctp_rto_max_default', 1000],
  ['sctp_init_rto_max_default', 1000],
  // A peer that vanished while nothing was sent is noticed after two minutes, as over TCP: ten
  // heartbeats more are sent, each a second after its interval.
  ['sctp_heartbeat_interval_default', HEARTBEAT_MS],
];

/** Whom the stack calls, from inside any of its calls: neither may call the stack again, nor throw. */
interface StackUser {
  /** Where in the area of outgoing packets one of `length` bytes may go; -1 for nowhere. */
  reserve(token: number, length: number): number;
  /** It is there. */
  handlePacket(token: number, start: number, length: number): void;
  /** Something happened on a socket. */
  handleSocket(socket: number): void;
}

export class UsrsctpStack {
  /** For sockets of this folder. */
  readonly library: Usrsctp;
  readonly upcall: unknown;
  #user: StackUser | undefined;
  #incoming = 0;
  #outgoing = 0;
  /** Held, since their addresses are. */
  #areas: readonly Uint8Array[] = [];

  constructor(library: Usrsctp) {
    this.library = library;
    this.upcall = library.upcallPointer((socket) => this.#user?.handleSocket(Number(socket)));
    const output = library.outputPointer((token, packet, length) =>
      this.#output(Number(token), Number(packet), Number(length)),
    );
    library.init_nothreads(0, output, null);
    library.enable_crc32c_offload();
    for (const [name, value] of VARIABLES) library.setVariable(name, value);
  }

  /** Sets whose the stack is, once. */
  serve(user: StackUser, incoming: Uint8Array, outgoing: Uint8Array): void {
    this.#user = user;
    this.#areas = [incoming, outgoing];
    this.#incoming = Number(addressOf(incoming));
    this.#outgoing = Number(addressOf(outgoing));
  }

  /** A path exists from now on. */
  addPath(token: number): void {
    this.library.register_address(token);
  }

  /** No packet of this path comes any more. */
  removePath(token: number): void {
    this.library.deregister_address(token);
  }

  /** A packet of the incoming area, with a right checksum, came by the path. */
  input(token: number, start: number, length: number): void {
    this.library.conninput(token, this.#incoming + start, length, 0);
  }

  /** Milliseconds have passed. */
  advance(elapsedMs: number): void {
    this.library.handle_timers(elapsedMs);
  }

  #output(token: number, packet: number, length: number): number {
    const user = this.#user;
    if (user === undefined || this.#areas.length === 0) return 0;
    const start = user.reserve(token, length);
    if (start < 0) return 0;
    copyMemory(this.#outgoing + start, packet, length);
    user.handlePacket(token, start, length);
    return 0;
  }
}

let stack: UsrsctpStack | undefined;

/** The stack of this process. Throws `UsrsctpUnavailable`. */
export function usrsctpStack(): UsrsctpStack {
  if (stack !== undefined) return stack;
  const library = loadUsrsctp();
  // Zero until the library is started, by whichever thread.
  if (!isMainThread && library.variable('sctp_max_chunks_on_queue') !== 0) {
    const text = 'libusrsctp serves one thread of a process, and another one has it';
    throw new UsrsctpUnavailable('elsewhere', text);
  }
  stack = new UsrsctpStack(library);
  return stack;
}
