/**
 * Batches of UDP datagrams: one system call sends or receives many (sendmmsg(2), recvmmsg(2)).
 *
 * A batch is one piece of memory with everything that the kernel reads or fills: message headers,
 * vectors, addresses, control messages, and a slot for each datagram. Pointers are written once, and
 * a call allocates nothing.
 */
import { addressOf, lastErrno, libc } from './libc.ts';

const sendmmsg = libc.func(
  'int sendmmsg(int fd, void *messages, uint32_t count, int flags)',
) as BatchCall;
const recvmmsg = libc.func(
  'int recvmmsg(int fd, void *messages, uint32_t count, int flags, void *timeout)',
) as BatchCall;

type BatchCall = (
  fd: number,
  messages: Uint8Array,
  count: number,
  flags: number,
  timeout?: null,
) => number;

const AF_INET = 2;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_TRUNC = 0x20;
const SOL_IP = 0;
const SOL_IPV6 = 41;
const IP_TOS = 1;
const IP_TTL = 2;
const IPV6_HOPLIMIT = 52;
const IPV6_TCLASS = 67;

/** struct mmsghdr: name, vector and control of a message, its flags, and the bytes received. */
const Header = {
  bytes: 64,
  name: 0,
  nameBytes: 8,
  vector: 16,
  vectors: 24,
  control: 32,
  controlBytes: 40,
  flags: 48,
  received: 56,
} as const;
const VECTOR_BYTES = 16;
/** The longest address, rounded up. */
const NAME_BYTES = 32;
/** A control message with a 32-bit number: length, level, type and value, padded. */
const CONTROL_BYTES = 24;
const CONTROL_USED_BYTES = 20;
const CONTROLS_MAX = 2;
const CONTROL_AREA_BYTES = 64;
const GID_BYTES = 16;
/** Pointers are written as two halves, without a BigInt for each. */
const WORD = 2 ** 32;

/** The common part of both directions. */
class Batch {
  /** The slots and all other data; a slot's datagram starts at `slotAt(index)`. */
  readonly bytes: Uint8Array;
  readonly slots: number;
  protected readonly fields: DataView;
  protected readonly namesAt: number;
  protected readonly controlsAt: number;
  readonly #slotsAt: number;
  readonly #slotBytes: number;

  protected constructor(slots: number, slotBytes: number) {
    this.slots = slots;
    this.#slotBytes = slotBytes;
    this.namesAt = slots * (Header.bytes + VECTOR_BYTES);
    this.controlsAt = this.namesAt + slots * NAME_BYTES;
    this.#slotsAt = this.controlsAt + slots * CONTROL_AREA_BYTES;
    this.bytes = new Uint8Array(this.#slotsAt + slots * slotBytes);
    this.fields = new DataView(this.bytes.buffer);
    const base = Number(addressOf(this.bytes));
    const pointer = (at: number, to: number) => {
      this.fields.setUint32(at, (base + to) >>> 0, true);
      this.fields.setUint32(at + 4, (base + to) / WORD, true);
    };
    for (let index = 0; index < slots; index += 1) {
      const header = index * Header.bytes;
      const vector = this.vectorAt(index);
      pointer(header + Header.name, this.namesAt + index * NAME_BYTES);
      pointer(header + Header.vector, vector);
      this.fields.setUint32(header + Header.vectors, 1, true);
      pointer(header + Header.control, this.controlsAt + index * CONTROL_AREA_BYTES);
      pointer(vector, this.slotAt(index));
      this.setLength(index, slotBytes);
    }
  }

  /** Offset in `bytes` of the datagram in a slot. */
  slotAt(index: number): number {
    return this.#slotsAt + index * this.#slotBytes;
  }

  protected vectorAt(index: number): number {
    return this.slots * Header.bytes + index * VECTOR_BYTES;
  }

  protected setLength(index: number, lengthBytes: number): void {
    this.fields.setUint32(this.vectorAt(index) + 8, lengthBytes, true);
  }
}

/** The destination of datagrams: made once, used for many. */
export interface UdpDestination {
  /** struct sockaddr_in or sockaddr_in6. */
  readonly name: Uint8Array;
  /** Type of service or traffic class; 0 leaves it to the socket. */
  readonly trafficClass: number;
  /** Time to live or hop limit; 0 leaves it to the socket. */
  readonly hopLimit: number;
}

export class OutgoingBatch extends Batch {
  /** Datagrams in the batch, in the slots before this one. */
  count = 0;
  /** The last destination of each slot. */
  readonly #destinations: (UdpDestination | undefined)[];

  constructor(slots: number, slotBytes: number) {
    super(slots, slotBytes);
    this.#destinations = Array.from({ length: slots }, () => undefined);
  }

  lengthOf(index: number): number {
    return this.fields.getUint32(this.vectorAt(index) + 8, true);
  }

  /** Fills the next slot: `lengthBytes` for `destination`. A slot must be free. */
  add(lengthBytes: number, destination: UdpDestination): void {
    const index = this.count;
    this.setLength(index, lengthBytes);
    if (this.#destinations[index] !== destination) this.#address(index, destination);
    this.count += 1;
  }

  /**
   * Sends datagrams from slot `first` on, without waiting. Returns how many the kernel accepted, or a
   * negative errno if it rejected the first one.
   */
  send(fd: number, first: number): number {
    const headers = first === 0 ? this.bytes : this.bytes.subarray(first * Header.bytes);
    const sent = sendmmsg(fd, headers, this.count - first, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? -lastErrno() : sent;
  }

  #address(index: number, destination: UdpDestination): void {
    const { name, trafficClass, hopLimit } = destination;
    const header = index * Header.bytes;
    this.#destinations[index] = destination;
    this.bytes.set(name, this.namesAt + index * NAME_BYTES);
    this.fields.setUint32(header + Header.nameBytes, name.length, true);
    const four = name[0] === AF_INET;
    const level = four ? SOL_IP : SOL_IPV6;
    const start = this.controlsAt + index * CONTROL_AREA_BYTES;
    let at = start;
    if (trafficClass !== 0) {
      at = this.#control(at, level, four ? IP_TOS : IPV6_TCLASS, trafficClass);
    }
    if (hopLimit !== 0) at = this.#control(at, level, four ? IP_TTL : IPV6_HOPLIMIT, hopLimit);
    this.fields.setUint32(header + Header.controlBytes, at - start, true);
  }

  #control(at: number, level: number, type: number, value: number): number {
    const { fields } = this;
    fields.setUint32(at, CONTROL_USED_BYTES, true);
    fields.setUint32(at + 4, 0, true);
    fields.setUint32(at + 8, level, true);
    fields.setUint32(at + 12, type, true);
    fields.setUint32(at + 16, value, true);
    return at + CONTROL_BYTES;
  }
}

/** Received datagrams. One longer than its slot is cut, see `truncated`. */
export class IncomingBatch extends Batch {
  #used: number;

  constructor(slots: number, slotBytes: number) {
    super(slots, slotBytes);
    this.#used = slots;
  }

  /** Receives pending datagrams, up to `most`. Returns their number, or a negative errno. */
  receive(fd: number, most: number = this.slots): number {
    for (let index = 0; index < this.#used; index += 1) {
      const header = index * Header.bytes;
      this.fields.setUint32(header + Header.nameBytes, NAME_BYTES, true);
      this.fields.setUint32(header + Header.controlBytes, CONTROL_AREA_BYTES, true);
    }
    const count = recvmmsg(fd, this.bytes, most, MSG_DONTWAIT, null);
    this.#used = Math.max(count, 0);
    return count < 0 ? -lastErrno() : count;
  }

  lengthOf(index: number): number {
    return this.fields.getUint32(index * Header.bytes + Header.received, true);
  }

  truncated(index: number): boolean {
    const flags = this.fields.getUint32(index * Header.bytes + Header.flags, true);
    return (flags & MSG_TRUNC) !== 0;
  }

  /** Writes the sender's address to `gid`, with IPv4 mapped after ::ffff. Returns the sender's port. */
  readSender(index: number, gid: Uint8Array): number {
    const { bytes } = this;
    const name = this.namesAt + index * NAME_BYTES;
    if (bytes[name] === AF_INET) {
      gid.fill(0, 0, 10);
      gid[10] = 0xff;
      gid[11] = 0xff;
      for (let i = 0; i < 4; i += 1) gid[12 + i] = bytes[name + 4 + i] as number;
    } else {
      for (let i = 0; i < GID_BYTES; i += 1) gid[i] = bytes[name + 8 + i] as number;
    }
    return this.fields.getUint16(name + 2);
  }

  /** Type of service or traffic class; 0 if the kernel did not report it. */
  trafficClassOf(index: number): number {
    return this.#control(index, IP_TOS, IPV6_TCLASS) & 0xff;
  }

  /** Time to live or hop limit; 0 if the kernel did not report it. */
  hopLimitOf(index: number): number {
    return this.#control(index, IP_TTL, IPV6_HOPLIMIT) & 0xff;
  }

  #control(index: number, type4: number, type6: number): number {
    const { fields } = this;
    const used = fields.getUint32(index * Header.bytes + Header.controlBytes, true);
    let at = this.controlsAt + index * CONTROL_AREA_BYTES;
    const end = at + used;
    for (let seen = 0; seen < CONTROLS_MAX && at < end; seen += 1) {
      const level = fields.getUint32(at + 8, true);
      const type = fields.getUint32(at + 12, true);
      // The type of service is one byte; the bytes after it are not written.
      if (level === SOL_IP ? type === type4 : type === type6) return this.bytes[at + 16] as number;
      at += CONTROL_BYTES;
    }
    return 0;
  }
}
