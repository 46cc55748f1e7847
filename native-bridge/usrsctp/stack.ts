/**
 * The library as one SCTP stack for this process, without its own threads or sockets (AF_CONN): packets
 * are passed in by `input` and out through `StackUser`, and `advance` moves the time forward.
 *
 * A token identifies a path: one of our UDP sockets and a peer's address and port. The library uses it
 * as the address of both ends, and only compares it.
 *
 * Packets are in two areas of memory that the stack's user owns, so no packet needs a separate
 * address. The user verifies checksums of incoming packets and adds those of outgoing ones, which
 * contain zero.
 */
import { isMainThread } from 'node:worker_threads';
import { addressOf, libc } from '../libc/libc.ts';
import { loadUsrsctp, type Usrsctp, UsrsctpUnavailable } from './library.ts';

const copyMemory = libc.func('void memcpy(uint64_t to, uint64_t from, uint64_t length)') as (
  to: number,
  from: number,
  length: number,
) => void;

/** Idle time before a heartbeat. */
export const HEARTBEAT_MS = 10_000;

/** Initial settings of the library, each with the reason. */
const VARIABLES: readonly (readonly [name: string, value: number])[] = [
  // Unused extensions: disabled ones are not parsed.
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
  // The window, no larger than the UDP socket's buffer, limits bursts.
  ['sctp_max_burst_default', 0],
  ['sctp_fr_max_burst_default', 0],
  ['sctp_initial_cwnd', 10],
  ['sctp_sack_freq_default', 2],
  // The usual minimum of one second stalls a connection whose last packet was lost.
  ['sctp_rto_min_default', 50],
  ['sctp_rto_initial_default', 200],
  ['sctp_rto_max_default', 1000],
  ['sctp_init_rto_max_default', 1000],
  // A peer that vanishes on an idle connection is detected after two minutes, as over TCP: ten more
  // heartbeats are sent, each a second after its interval.
  ['sctp_heartbeat_interval_default', HEARTBEAT_MS],
];

/** Called by the stack, from inside any of its calls: must neither call the stack nor throw. */
interface StackUser {
  /** Offset in the area of outgoing packets for one of `length` bytes; -1 if there is no room. */
  reserve(token: number, length: number): number;
  handlePacket(token: number, start: number, length: number): void;
  handleSocket(socket: number): void;
}

export class UsrsctpStack {
  /** For this folder's socket class. */
  readonly library: Usrsctp;
  readonly upcall: unknown;
  #user: StackUser | undefined;
  #incoming = 0;
  #outgoing = 0;
  /** Keeps the areas alive: the library has their addresses. */
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

  /** Sets the stack's owner. Call once. */
  serve(user: StackUser, incoming: Uint8Array, outgoing: Uint8Array): void {
    this.#user = user;
    this.#areas = [incoming, outgoing];
    this.#incoming = Number(addressOf(incoming));
    this.#outgoing = Number(addressOf(outgoing));
  }

  addPath(token: number): void {
    this.library.register_address(token);
  }

  /** Unregisters a path: no more packets will come. */
  removePath(token: number): void {
    this.library.deregister_address(token);
  }

  /** Takes a packet of the path from the incoming area. Its checksum has been verified. */
  input(token: number, start: number, length: number): void {
    this.library.conninput(token, this.#incoming + start, length, 0);
  }

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
  // Zero until some thread starts the library.
  if (!isMainThread && library.variable('sctp_max_chunks_on_queue') !== 0) {
    const text = 'libusrsctp supports one thread per process, and another thread uses it';
    throw new UsrsctpUnavailable('elsewhere', text);
  }
  stack = new UsrsctpStack(library);
  return stack;
}
