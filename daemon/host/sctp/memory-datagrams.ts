/**
 * UDP within an isolated host: datagrams from one of its sockets to another, through memory. As with the
 * kernel's UDP, a datagram without room is lost.
 */
import { gidAddress, gidBytes } from '../host-addresses.ts';
import { type HostClock, NetworkError } from '../links/network.ts';

/** Limit of unread datagrams at a socket, including record headers. */
const ROOM_BYTES = 4_194_304;
/** Before each datagram: its length, the sender's port and address. Keeps datagrams aligned. */
const HEAD_BYTES = 24;
const PORT_AT = 4;
const GID_AT = 8;
const GID_BYTES = 16;
/** In place of a length: the next record is at the start. */
const WRAPPED = 0xffff_ffff;

export class MemoryDatagrams {
  readonly #clock: HostClock;
  readonly #boxes = new Map<string, Mailbox>();

  constructor(clock: HostClock) {
    this.#clock = clock;
  }

  /** `onArrival` is called in a later turn. Throws `NetworkError` EADDRINUSE. */
  open(address: string, port: number, onArrival: () => void): Mailbox {
    const gid = gidBytes(address);
    const key = keyOf(gid, port);
    if (this.#boxes.has(key)) {
      throw new NetworkError('EADDRINUSE', `port ${port} of ${address} is taken`);
    }
    const close = (): void => {
      this.#boxes.delete(key);
    };
    const box = new Mailbox({ gid, port, network: this }, this.#clock, { onArrival, close });
    this.#boxes.set(key, box);
    return box;
  }

  /** The mailbox of this address and port. */
  find(gid: Uint8Array, port: number): Mailbox | undefined {
    return this.#boxes.get(keyOf(gid, port));
  }
}

/** The place of a mailbox. */
interface MailboxPlace {
  readonly gid: Uint8Array;
  readonly port: number;
  readonly network: MemoryDatagrams;
}

/** A socket's address, port and input. */
export class Mailbox implements MailboxPlace {
  readonly gid: Uint8Array;
  readonly port: number;
  readonly network: MemoryDatagrams;
  readonly #clock: HostClock;
  readonly #close: () => void;
  readonly #onArrival: () => void;
  /** A ring of contiguous records; allocated for the first datagram. */
  #ring: Uint8Array | undefined;
  #heads: DataView | undefined;
  #readAt = 0;
  #writeAt = 0;
  #count = 0;
  #closed = false;
  #scheduled = false;

  /** Used by `MemoryDatagrams.open`. */
  constructor(
    { gid, port, network }: MailboxPlace,
    clock: HostClock,
    { onArrival, close }: { readonly onArrival: () => void; readonly close: () => void },
  ) {
    this.gid = gid;
    this.port = port;
    this.network = network;
    this.#clock = clock;
    this.#onArrival = () => {
      this.#scheduled = false;
      if (!this.#closed) onArrival();
    };
    this.#close = close;
  }

  close(): void {
    this.#closed = true;
    this.#ring = undefined;
    this.#heads = undefined;
    this.#count = 0;
    this.#close();
  }

  /** Copies a datagram of `from`. False if there is no room for it. */
  post(from: Mailbox, bytes: Uint8Array, start: number, length: number): boolean {
    if (this.#closed) return false;
    this.#ring ??= new Uint8Array(ROOM_BYTES);
    this.#heads ??= new DataView(this.#ring.buffer);
    const at = this.#place(HEAD_BYTES + ((length + 7) & ~7));
    if (at < 0) return false;
    this.#heads.setUint32(at, length);
    this.#heads.setUint16(at + PORT_AT, from.port);
    this.#ring.set(from.gid, at + GID_AT);
    this.#ring.set(bytes.subarray(start, start + length), at + HEAD_BYTES);
    this.#count += 1;
    this.awaitTurn();
    return true;
  }

  /** Calls `onArrival` in a later turn if a datagram waits. */
  awaitTurn(): void {
    if (this.#scheduled || this.#count === 0) return;
    this.#scheduled = true;
    this.#clock.soon(this.#onArrival);
  }

  /**
   * Moves the next datagram to `at` in `bytes`, and its sender to `sender`. Returns its length; -1 if none
   * waits.
   */
  take(
    bytes: Uint8Array,
    at: number,
    sender: { readonly peer: Uint8Array; peerPort: number },
  ): number {
    const [ring, heads] = [this.#ring, this.#heads];
    if (ring === undefined || heads === undefined || this.#count === 0) return -1;
    if (this.#readAt === ROOM_BYTES || heads.getUint32(this.#readAt) === WRAPPED) this.#readAt = 0;
    const from = this.#readAt;
    const length = heads.getUint32(from);
    sender.peerPort = heads.getUint16(from + PORT_AT);
    sender.peer.set(ring.subarray(from + GID_AT, from + GID_AT + GID_BYTES));
    bytes.set(ring.subarray(from + HEAD_BYTES, from + HEAD_BYTES + length), at);
    this.#readAt = from + HEAD_BYTES + ((length + 7) & ~7);
    this.#count -= 1;
    // Start again at the beginning, to stay in the processor's cache.
    if (this.#count === 0) this.#readAt = this.#writeAt = 0;
    return length;
  }

  /** Offset for a record of this length; -1 if there is no room. */
  #place(bytes: number): number {
    const [read, write] = [this.#readAt, this.#writeAt];
    const full = this.#count > 0 && write === read;
    const ahead = write >= read && !full;
    if (ahead && ROOM_BYTES - write < bytes) {
      if (read < bytes) return -1;
      if (write < ROOM_BYTES) this.#heads?.setUint32(write, WRAPPED);
      this.#writeAt = bytes;
      return 0;
    }
    if (!ahead && read - write < bytes) return -1;
    this.#writeAt = write + bytes;
    return write;
  }
}

function keyOf(gid: Uint8Array, port: number): string {
  return `${gidAddress(gid)} ${port}`;
}
