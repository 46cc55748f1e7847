/**
 * SCTP packets in UDP datagrams (RFC 6951): the sockets, and batches that the kernel reads and fills. Packets
 * of an isolated host go from the same batch to memory.
 *
 * An outgoing packet is copied once, from the library into the batch, gets its checksum there, and is sent
 * with others by one system call. An incoming one is checked where the kernel put it.
 */
import { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { unreserved } from '#native-bridge/libc/descriptor-limit';
import { ErrorQueue, keepErrors } from '#native-bridge/libc/error-queue';
import { SystemCallError } from '#native-bridge/libc/libc';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { watchDescriptor } from '#native-bridge/libc/watched-descriptor';
import { chooseCrcEngine } from '../crc-engine.ts';
import { NetworkError } from '../links/network.ts';
import type { Mailbox, MemoryDatagrams } from './memory-datagrams.ts';
import { PacketCrc } from './packet-crc.ts';
import { PACKET_BYTES_MIN } from './packet-gate.ts';
import type { CarrierSocket, Path } from './paths.ts';

/** Datagrams per system call. */
const SLOTS = 32;
/** The longest datagram, rounded up. */
const SLOT_BYTES = 65_536;
/**
 * Limit of one call, even if there is more: four of the longest packets. The other end works meanwhile, and
 * the bytes are still in a core's cache when they are used.
 */
const GROUP_BYTES = 245_760;
/** Calls that read a socket before the event loop continues. */
const READS_MAX = 4;
/** Requested size; the kernel limits it to net.core.rmem_max. */
const BUFFER_BYTES = 4_194_304;
/** Socket errors handled before the event loop continues. */
const ERRORS_MAX = 256;
const EAGAIN = -11;
const EMSGSIZE = -90;
const GID_BYTES = 16;

/** A received packet. Valid during the call that it is passed to. */
export interface ArrivedPacket {
  readonly peer: Uint8Array;
  peerPort: number;
  start: number;
  length: number;
}

/** Our end of packets: an address, and a UDP port unless SCTP is carried by IP directly. */
export interface PacketPlace {
  readonly address: string;
  readonly port: number | undefined;
}

/** Captures packets; see `SctpRecorder`. */
export interface PacketObserver {
  readonly watched: boolean;
  packet(
    way: 'out' | 'in',
    socket: PacketPlace,
    peer: Uint8Array,
    peerPort: number | undefined,
    sctp: Uint8Array,
  ): void;
}

/** A packet in transit, with its checksum. Borrowed, with `peer` and `sctp`, unless they are copied. */
export interface CarriedPacket {
  readonly way: 'out' | 'in';
  readonly socket: CarrierSocket;
  /** The peer's address and UDP port. */
  readonly peer: Uint8Array;
  readonly peerPort: number;
  /** Set for an outgoing packet. */
  readonly path: Path | undefined;
  readonly sctp: Uint8Array;
}

/** Decides what happens to packets; see `SctpFaults`. */
export interface PacketFilter {
  /** False while it takes no packets. */
  readonly active: boolean;
  /**
   * True if the filter took the packet: it gives the packet back to the carrier later, or drops it.
   */
  takes(packet: CarriedPacket): boolean;
}

/** Continues the delivery of packets that a filter took. */
export interface PacketCarrier {
  carry(packet: CarriedPacket): void;
}

/** Callbacks of a carrier to its stack. */
export interface CarrierUser {
  /** A packet with a valid checksum, in `bytes` of the incoming batch. */
  handleArrival(socket: CarrierSocket, packet: ArrivedPacket): void;
  /** End of a batch. */
  handleInputEnd(): void;
  /** A packet was too long for its path. */
  handleTooLong(path: Path): void;
  /**
   * The network reports an error about a packet sent to this address and UDP port; `errors` has the details.
   */
  handleError(
    socket: CarrierSocket,
    peer: Uint8Array,
    peerPort: number,
    errno: number,
    errors: Pick<ErrorQueue, 'mtuBytes' | 'quoted'>,
  ): void;
  /** A packet was added to an empty batch, or waits for room: call `flush` soon. */
  handleOutput(blocked: boolean): void;
}

/** An observer or filter of a network; undefined: the kernel's. */
interface InNetwork<Part> {
  readonly part: Part;
  readonly network: MemoryDatagrams | undefined;
}

/** Counts of datagrams. */
class CarrierCounters {
  packetsIn = 0;
  packetsOut = 0;
  readCalls = 0;
  sendCalls = 0;
  /** Too short, too long, or damaged. */
  badChecksums = 0;
  /** Rejected by the kernel. */
  lostOut = 0;
}

export class UdpCarrier implements PacketCarrier {
  readonly counters = new CarrierCounters();
  readonly #user: CarrierUser;
  /** Replaced, never mutated. */
  #observers: readonly InNetwork<PacketObserver>[] = [];
  #filters: readonly InNetwork<PacketFilter>[] = [];
  readonly #in = new IncomingBatch(SLOTS, SLOT_BYTES);
  readonly #out = new OutgoingBatch(SLOTS, SLOT_BYTES);
  readonly #inCrc: PacketCrc;
  readonly #outCrc: PacketCrc;
  /** The socket of the packets in the outgoing batch, and the path of each. */
  #socket: CarrierSocket | undefined;
  readonly #paths: (Path | undefined)[] = [];
  #first = 0;
  /** Bytes added since `flush` was last called. */
  #groupBytes = 0;
  /** Datagrams that the next call reads. */
  #readSlots = SLOTS;
  /** True while datagrams are received. */
  #reading = false;
  #nextNumber = 1;
  readonly #errors = new ErrorQueue();
  readonly #arrived: ArrivedPacket = {
    peer: new Uint8Array(GID_BYTES),
    peerPort: 0,
    start: 0,
    length: 0,
  };

  constructor(user: CarrierUser) {
    this.#user = user;
    const { crc32c } = chooseCrcEngine();
    this.#inCrc = new PacketCrc(this.#in.bytes, SLOTS, crc32c);
    this.#outCrc = new PacketCrc(this.#out.bytes, SLOTS, crc32c);
  }

  get incoming(): Uint8Array {
    return this.#in.bytes;
  }

  get outgoing(): Uint8Array {
    return this.#out.bytes;
  }

  /**
   * Shows packets of a network, by default the kernel's, with valid checksums, until the returned function is
   * called.
   */
  observe(observer: PacketObserver, network?: MemoryDatagrams): () => void {
    const entry = { part: observer, network };
    this.#observers = [...this.#observers, entry];
    return () => {
      this.#observers = this.#observers.filter((each) => each !== entry);
    };
  }

  /** Filters packets of a network, until the returned function is called. */
  addFilter(filter: PacketFilter, network?: MemoryDatagrams): () => void {
    const entry = { part: filter, network };
    this.#filters = [...this.#filters, entry];
    return () => {
      this.#filters = this.#filters.filter((each) => each !== entry);
    };
  }

  /** Binds a UDP port, of the kernel or of a network in memory. Throws `NetworkError`. */
  open(address: string, port: number, memory?: MemoryDatagrams): CarrierSocket {
    if (memory !== undefined) return this.#openMailbox(address, port, memory);
    try {
      const { fd: opened, receiveBufferBytes } = openUdp(address, port, BUFFER_BYTES);
      const fd = unreserved('socket', opened);
      keepErrors(fd, !address.includes(':'));
      const socket: CarrierSocket = {
        fd,
        mailbox: undefined,
        address,
        port,
        number: this.#nextNumber,
        receiveBufferBytes,
        watch: watchDescriptor(
          fd,
          () => this.#read(socket),
          () => this.#readErrors(socket),
        ),
        closed: false,
      };
      this.#nextNumber += 1;
      // Other sockets and clients keep the host alive; this one does not.
      socket.watch?.hold(false);
      return socket;
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      throw new NetworkError(error.code, openingText(error, address, port));
    }
  }

  #openMailbox(address: string, port: number, memory: MemoryDatagrams): CarrierSocket {
    const mailbox = memory.open(address, port, () => this.#readMailbox(socket, mailbox));
    const socket: CarrierSocket = {
      fd: -1,
      mailbox,
      address,
      port,
      number: this.#nextNumber,
      receiveBufferBytes: BUFFER_BYTES,
      watch: undefined,
      closed: false,
    };
    this.#nextNumber += 1;
    return socket;
  }

  close(socket: CarrierSocket): void {
    if (this.#socket === socket) this.flush();
    if (this.#socket === socket) this.#clear();
    socket.closed = true;
    socket.mailbox?.close();
    socket.watch?.close();
    if (socket.fd >= 0) closeDescriptor(socket.fd);
  }

  // Output

  /** Where in `outgoing` to write a packet from `socket`; -1 if it cannot be sent now. */
  reserve(socket: CarrierSocket, length: number): number {
    if (length > SLOT_BYTES || socket.closed) return -1;
    const full = this.#out.count === SLOTS;
    if (full || (this.#socket !== undefined && this.#socket !== socket)) this.flush();
    if (this.#out.count > 0 && this.#socket !== socket) return this.#lose();
    if (this.#out.count === SLOTS) return this.#lose();
    return this.#out.slotAt(this.#out.count);
  }

  /** Adds the packet at the position from `reserve`, with a zero checksum. */
  add(path: Path, length: number): void {
    const slot = this.#out.count;
    const start = this.#out.slotAt(slot);
    this.#outCrc.write(slot, start, length);
    if (this.#filtered) {
      const sctp = this.#out.bytes.subarray(start, start + length);
      const { socket, peer, peerPort } = path;
      if (this.#isTaken({ way: 'out', socket, peer, peerPort, path, sctp })) return;
    }
    this.#commit(path, length);
  }

  carry(packet: CarriedPacket): void {
    const { way, socket, path, sctp } = packet;
    if (socket.closed) return;
    if (way === 'in') {
      this.#arriveAgain(packet);
      return;
    }
    const at = this.reserve(socket, sctp.length);
    if (at < 0 || path === undefined) return;
    this.#out.bytes.set(sctp, at);
    this.#commit(path, sctp.length);
  }

  #commit(path: Path, length: number): void {
    const slot = this.#out.count;
    const start = this.#out.slotAt(slot);
    path.tags?.note(this.#out.bytes, start, length);
    if (this.#watched) {
      const sctp = this.#out.bytes.subarray(start, start + length);
      this.#show('out', path.socket, path.peer, path.peerPort, sctp);
    }
    this.#socket = path.socket;
    this.#paths[slot] = path;
    this.#out.add(length, path);
    this.#groupBytes += length;
    if (this.#groupBytes >= GROUP_BYTES) this.flush();
    else if (slot === 0) this.#user.handleOutput(false);
  }

  /** Sends the batch. */
  flush(): void {
    const { count } = this.#out;
    this.#groupBytes = 0;
    while (this.#first < count) {
      const socket = this.#socket as CarrierSocket;
      if (socket.mailbox !== undefined) {
        this.#post(socket.mailbox);
        break;
      }
      let sent = this.#out.send(socket.fd, this.#first);
      // The call may have returned the error of an earlier packet.
      if (sent < 0 && sent !== EAGAIN) sent = this.#out.send(socket.fd, this.#first);
      this.counters.sendCalls += 1;
      if (sent > 0) {
        this.#first += sent;
        this.counters.packetsOut += sent;
      } else if (sent === EAGAIN) {
        this.#user.handleOutput(true);
        return;
      } else {
        const path = this.#paths[this.#first] as Path;
        this.#first += 1;
        this.counters.lostOut += 1;
        if (sent === EMSGSIZE) this.#user.handleTooLong(path);
      }
    }
    this.#clear();
  }

  /** Delivers the rest of the batch to the mailboxes of its destinations. */
  #post(from: Mailbox): void {
    const out = this.#out;
    for (let slot = this.#first; slot < out.count; slot += 1) {
      const to = this.#paths[slot]?.mailbox;
      const taken = to?.post(from, out.bytes, out.slotAt(slot), out.lengthOf(slot)) === true;
      if (taken) this.counters.packetsOut += 1;
      else this.counters.lostOut += 1;
    }
  }

  // Captures and filters

  get #watched(): boolean {
    for (const { part } of this.#observers) if (part.watched) return true;
    return false;
  }

  #show(
    way: 'out' | 'in',
    socket: CarrierSocket,
    peer: Uint8Array,
    peerPort: number,
    sctp: Uint8Array,
  ): void {
    for (const { part, network } of this.#observers) {
      if (network !== socket.mailbox?.network) continue;
      if (part.watched) part.packet(way, socket, peer, peerPort, sctp);
    }
  }

  get #filtered(): boolean {
    for (const { part } of this.#filters) if (part.active) return true;
    return false;
  }

  #isTaken(packet: CarriedPacket): boolean {
    for (const { part, network } of this.#filters) {
      if (network !== packet.socket.mailbox?.network) continue;
      if (part.active && part.takes(packet)) return true;
    }
    return false;
  }

  /** Delivers a held packet in a free slot, with a zero checksum, as the library expects. */
  #arriveAgain({ socket, peer, peerPort, sctp }: CarriedPacket): void {
    const start = this.#in.slotAt(0);
    this.#in.bytes.set(sctp, start);
    if (this.#watched) this.#show('in', socket, peer, peerPort, sctp);
    this.#inCrc.check(0, start, sctp.length);
    this.#user.handleArrival(socket, { peer, peerPort, start, length: sctp.length });
    if (!this.#reading) this.#user.handleInputEnd();
  }

  /** False if a received packet is taken. The check has zeroed its checksum. */
  #passes(socket: CarrierSocket, slot: number, arrived: ArrivedPacket): boolean {
    const { peer, peerPort, start, length } = arrived;
    this.#inCrc.write(slot, start, length);
    const sctp = this.#in.bytes.subarray(start, start + length);
    const packet = { way: 'in', socket, peer, peerPort, path: undefined, sctp } as const;
    if (this.#isTaken(packet)) return false;
    if (this.#watched) this.#show('in', socket, peer, peerPort, sctp);
    this.#inCrc.check(slot, start, length);
    return true;
  }

  #lose(): number {
    this.counters.lostOut += 1;
    return -1;
  }

  #clear(): void {
    this.#out.clear();
    this.#first = 0;
    this.#socket = undefined;
  }

  // Input

  #read(socket: CarrierSocket): void {
    this.#reading = true;
    for (let reads = 0; reads < READS_MAX && !socket.closed; reads += 1) {
      const asked = this.#readSlots;
      const count = this.#in.receive(socket.fd, asked);
      this.counters.readCalls += 1;
      // A socket error is about a sent packet; continue with the next read.
      if (count <= 0) break;
      let bytes = 0;
      for (let slot = 0; slot < count; slot += 1) {
        bytes += this.#in.lengthOf(slot);
        this.#take(socket, slot);
      }
      this.#readSlots = groupSlots(bytes / count);
      if (count < asked) break;
      this.#user.handleInputEnd();
    }
    this.#reading = false;
    this.#user.handleInputEnd();
  }

  #readErrors(socket: CarrierSocket): void {
    const { peer } = this.#arrived;
    for (let count = 0; count < ERRORS_MAX; count += 1) {
      const errno = this.#errors.take(socket.fd);
      if (errno === 0) break;
      // The sending call has already reported errors of this host.
      if (this.#errors.isLocal) continue;
      const peerPort = this.#errors.readDestination(peer);
      this.#user.handleError(socket, peer, peerPort, errno, this.#errors);
    }
    this.#read(socket);
  }

  #readMailbox(socket: CarrierSocket, mailbox: Mailbox): void {
    const arrived = this.#arrived;
    const start = this.#in.slotAt(0);
    this.#reading = true;
    for (let reads = 0; reads < READS_MAX && !socket.closed; reads += 1) {
      let length = 0;
      for (let bytes = 0; bytes < GROUP_BYTES && !socket.closed; bytes += length) {
        length = mailbox.take(this.#in.bytes, start, arrived);
        if (length < 0) break;
        arrived.length = length;
        this.#accept(socket, 0);
      }
      if (length < 0) break;
      this.#user.handleInputEnd();
    }
    this.#reading = false;
    this.#user.handleInputEnd();
    mailbox.awaitTurn();
  }

  #take(socket: CarrierSocket, slot: number): void {
    const arrived = this.#arrived;
    arrived.peerPort = this.#in.readSender(slot, arrived.peer);
    arrived.length = this.#in.truncated(slot) ? 0 : this.#in.lengthOf(slot);
    this.#accept(socket, slot);
  }

  /** Handles a packet of `#arrived.length` bytes in a slot. */
  #accept(socket: CarrierSocket, slot: number): void {
    const arrived = this.#arrived;
    const { length } = arrived;
    const start = this.#in.slotAt(slot);
    this.counters.packetsIn += 1;
    if (length < PACKET_BYTES_MIN || !this.#inCrc.check(slot, start, length)) {
      this.counters.badChecksums += 1;
      return;
    }
    arrived.start = start;
    const plain = !this.#watched && !this.#filtered;
    if (!plain && !this.#passes(socket, slot, arrived)) return;
    this.#user.handleArrival(socket, arrived);
  }
}

/** Number of datagrams of this length in a group. */
function groupSlots(datagramBytes: number): number {
  return Math.min(SLOTS, Math.round(GROUP_BYTES / Math.max(datagramBytes, 1)));
}

function openingText(error: SystemCallError, address: string, port: number): string {
  const where = `UDP port ${port} of ${address}, which carries SCTP,`;
  if (error.code === 'EADDRINUSE') {
    return `${where} is taken: another daemon or the kernel (net.sctp.udp_port) has it; stop that one, or give the device another address`;
  }
  return `${where} cannot be opened: ${error.message}`;
}
