/**
 * Batches of UDP datagrams: one system call sends or receives many (sendmmsg(2), recvmmsg(2)).
 *
 * A batch is one piece of memory with everything that the kernel reads or fills: message headers,
 * vectors, addresses, control messages, and slots for datagrams. A call allocates nothing.
 *
 * Datagrams of one length to one destination may leave as one message, which the kernel, or the adapter, cuts
 * into segments; a received message may have several, too (UDP_SEGMENT and UDP_GRO, udp(7)). That saves most
 * of the kernel's work for each datagram.
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
const SOL_UDP = 17;
const UDP_SEGMENT = 103;
const UDP_GRO = 104;
/** Linux's UDP_MAX_SEGMENTS was 64 until 6.9. */
const SEGMENTS_MAX = 64;
/**
 * Fewer datagrams gain little as one message, and captures on the sending host show what a message holds as one
 * datagram.
 */
const SEGMENTS_MIN = 6;
/** Payload of a UDP datagram over IPv4, also before it is cut. */
const MESSAGE_BYTES_MAX = 65_507;

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
/** One with a 16-bit number. */
const SEGMENT_CONTROL_USED_BYTES = 18;
const CONTROLS_MAX = 3;
const CONTROL_AREA_BYTES = CONTROLS_MAX * CONTROL_BYTES;
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
  readonly #base: number;

  protected constructor(slots: number, slotBytes: number) {
    this.slots = slots;
    this.#slotBytes = slotBytes;
    this.namesAt = slots * (Header.bytes + VECTOR_BYTES);
    this.controlsAt = this.namesAt + slots * NAME_BYTES;
    this.#slotsAt = this.controlsAt + slots * CONTROL_AREA_BYTES;
    this.bytes = new Uint8Array(this.#slotsAt + slots * slotBytes);
    this.fields = new DataView(this.bytes.buffer);
    this.#base = Number(addressOf(this.bytes));
    for (let index = 0; index < slots; index += 1) {
      const header = index * Header.bytes;
      const vector = this.vectorAt(index);
      this.point(header + Header.name, this.namesAt + index * NAME_BYTES);
      this.point(header + Header.vector, vector);
      this.fields.setUint32(header + Header.vectors, 1, true);
      this.point(header + Header.control, this.controlsAt + index * CONTROL_AREA_BYTES);
      this.point(vector, this.slotAt(index));
      this.setLength(index, slotBytes);
    }
  }

  /** Writes a pointer to offset `to` of `bytes`. */
  protected point(at: number, to: number): void {
    const address = this.#base + to;
    this.fields.setUint32(at, address >>> 0, true);
    this.fields.setUint32(at + 4, address / WORD, true);
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
  /** True if the network takes no messages with several datagrams to it. */
  single?: boolean;
}

/**
 * Datagrams to be sent, each as a message of its own until `join`. A message has one or more slots in a row, its
 * segments: all have the length of the first, but the last may be shorter. The kernel numbers them, from 0 on,
 * in the identification of IPv4.
 */
export class OutgoingBatch extends Batch {
  /** By slot. */
  readonly #destinations: (UdpDestination | undefined)[];
  readonly #messageOf: Uint16Array;
  /** By message: its first slot, the destination in its header, and the bytes of control messages for that. */
  readonly #firsts: Uint16Array;
  readonly #addressed: (UdpDestination | undefined)[];
  readonly #controlBytes: Uint8Array;
  #messages = 0;
  #count = 0;

  constructor(slots: number, slotBytes: number) {
    super(slots, slotBytes);
    this.#destinations = Array.from({ length: slots }, () => undefined);
    this.#messageOf = new Uint16Array(slots);
    this.#firsts = Uint16Array.from({ length: slots }, (_, slot) => slot);
    this.#addressed = Array.from({ length: slots }, () => undefined);
    this.#controlBytes = new Uint8Array(slots);
  }

  /** Datagrams in the batch, in the slots before this one. */
  get count(): number {
    return this.#count;
  }

  lengthOf(index: number): number {
    return this.fields.getUint32(this.vectorAt(index) + 8, true);
  }

  /** The position of a slot's datagram in its message. */
  segmentOf(index: number): number {
    return index - (this.#firsts[this.#messageOf[index] as number] as number);
  }

  /** Removes all datagrams. */
  clear(): void {
    this.#count = 0;
    this.#messages = 0;
  }

  /** Fills the next slot: `lengthBytes` for `destination`. A slot must be free. */
  add(lengthBytes: number, destination: UdpDestination): void {
    const index = this.#count;
    this.setLength(index, lengthBytes);
    this.#destinations[index] = destination;
    this.#count += 1;
    this.#begin(index, 1);
  }

  /** Joins datagrams to one destination into messages. For a socket that can, see `useSegments`. */
  join(): void {
    if (this.#count < SEGMENTS_MIN) return;
    this.#messages = 0;
    for (let slot = 0; slot < this.#count; ) {
      const run = this.#runAt(slot);
      const segments = run < SEGMENTS_MIN ? 1 : run;
      this.#begin(slot, segments);
      slot += segments;
    }
  }

  /** Number of datagrams from a slot on that could be one message. */
  #runAt(first: number): number {
    const destination = this.#destinations[first] as UdpDestination;
    if (destination.single === true) return 1;
    const segmentBytes = this.lengthOf(first);
    const end = Math.min(this.#count, first + SEGMENTS_MAX);
    let bytes = segmentBytes;
    for (let slot = first + 1; slot < end; slot += 1) {
      const length = this.lengthOf(slot);
      bytes += length;
      if (this.#destinations[slot] !== destination || length > segmentBytes) return slot - first;
      if (bytes > MESSAGE_BYTES_MAX) return slot - first;
      if (length < segmentBytes) return slot + 1 - first;
    }
    return end - first;
  }

  /** Makes datagrams from slot `first` on messages of their own. True if the one of `first` was not. */
  split(first: number): boolean {
    const message = this.#messageOf[first] as number;
    const next =
      message + 1 === this.#messages ? this.#count : (this.#firsts[message + 1] as number);
    this.#messages = message;
    for (let slot = first; slot < this.#count; slot += 1) this.#begin(slot, 1);
    return next > first + 1;
  }

  /**
   * Sends datagrams from slot `first` on, without waiting. Returns how many the kernel accepted, or a
   * negative errno if it rejected the first message.
   */
  send(fd: number, first: number): number {
    const message = this.#messageOf[first] as number;
    const headers = message === 0 ? this.bytes : this.bytes.subarray(message * Header.bytes);
    const sent = sendmmsg(fd, headers, this.#messages - message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return -lastErrno();
    const next = message + sent;
    return (next === this.#messages ? this.#count : (this.#firsts[next] as number)) - first;
  }

  /** Adds a message with the datagrams of these slots. */
  #begin(first: number, segments: number): void {
    const message = this.#messages;
    const header = message * Header.bytes;
    const { fields } = this;
    const destination = this.#destinations[first] as UdpDestination;
    this.#messages += 1;
    for (let slot = first; slot < first + segments; slot += 1) this.#messageOf[slot] = message;
    if (this.#firsts[message] !== first) {
      this.#firsts[message] = first;
      this.point(header + Header.vector, this.vectorAt(first));
    }
    fields.setUint32(header + Header.vectors, segments, true);
    if (this.#addressed[message] !== destination) this.#address(message, destination);
    let controlBytes = this.#controlBytes[message] as number;
    if (segments > 1) {
      const at = this.controlsAt + message * CONTROL_AREA_BYTES + controlBytes;
      this.#control(at, SOL_UDP, UDP_SEGMENT, this.lengthOf(first));
      fields.setUint32(at, SEGMENT_CONTROL_USED_BYTES, true);
      controlBytes += CONTROL_BYTES;
    }
    fields.setUint32(header + Header.controlBytes, controlBytes, true);
  }

  /** Writes the destination of a message. */
  #address(message: number, destination: UdpDestination): void {
    const { name, trafficClass, hopLimit } = destination;
    const header = message * Header.bytes;
    this.#addressed[message] = destination;
    this.bytes.set(name, this.namesAt + message * NAME_BYTES);
    this.fields.setUint32(header + Header.nameBytes, name.length, true);
    const four = name[0] === AF_INET;
    const level = four ? SOL_IP : SOL_IPV6;
    const start = this.controlsAt + message * CONTROL_AREA_BYTES;
    let at = start;
    if (trafficClass !== 0) {
      at = this.#control(at, level, four ? IP_TOS : IPV6_TCLASS, trafficClass);
    }
    if (hopLimit !== 0) at = this.#control(at, level, four ? IP_TTL : IPV6_HOPLIMIT, hopLimit);
    this.#controlBytes[message] = at - start;
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

/** Received messages. One longer than its slot is cut, see `truncated`. */
export class IncomingBatch extends Batch {
  #used: number;

  constructor(slots: number, slotBytes: number) {
    super(slots, slotBytes);
    this.#used = slots;
  }

  /** Receives pending messages, up to `most`. Returns their number, or a negative errno. */
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

  /** Length of each segment but the last; 0 if the message is one datagram. */
  segmentBytesOf(index: number): number {
    const at = this.#control(index, SOL_UDP, UDP_GRO);
    return at === 0 ? 0 : this.fields.getUint32(at, true);
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
    const at = this.#control(index, SOL_IP, IP_TOS);
    return this.#byteOf(at > 0 ? at : this.#control(index, SOL_IPV6, IPV6_TCLASS));
  }

  /** Time to live or hop limit; 0 if the kernel did not report it. */
  hopLimitOf(index: number): number {
    const at = this.#control(index, SOL_IP, IP_TTL);
    return this.#byteOf(at > 0 ? at : this.#control(index, SOL_IPV6, IPV6_HOPLIMIT));
  }

  /** The first byte of a control message: the type of service has only one. */
  #byteOf(at: number): number {
    return at === 0 ? 0 : (this.bytes[at] as number);
  }

  /** Where the value of a control message is; 0 if the kernel sent none. */
  #control(index: number, level: number, type: number): number {
    const { fields } = this;
    const used = fields.getUint32(index * Header.bytes + Header.controlBytes, true);
    let at = this.controlsAt + index * CONTROL_AREA_BYTES;
    const end = at + used;
    for (let seen = 0; seen < CONTROLS_MAX && at < end; seen += 1) {
      if (fields.getUint32(at + 8, true) === level && fields.getUint32(at + 12, true) === type) {
        return at + 16;
      }
      at += CONTROL_BYTES;
    }
    return 0;
  }
}
