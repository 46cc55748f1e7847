/**
 * The link of RoCE devices to other hosts: UDP port 4791 on the addresses of their GIDs.
 *
 * A socket is bound to each address, and opened when first needed: programs that stay within the host need
 * none, and several daemons may have the same addresses until one of them talks to another host. With a
 * socket per address, no control message is needed to know a packet's destination or to choose its source,
 * and other addresses leave the port free.
 *
 * Packets are written straight into a batch, get their ICRC there, and are sent by one system call. If the
 * kernel has no room, they wait, and so do the senders (`blocked`). Received packets are checked and
 * delivered in the batch that the kernel filled.
 */
import type { Micros } from '#base/time';
import { VerbsError } from '#contract/verbs/errors';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import { PACKET_BYTES_MAX } from '#daemon/roce/transport/packet-wire';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import {
  bytesFromIdentification,
  GID_BYTES,
  ICRC_BYTES,
  IcrcHeaders,
  ROCE_PORT,
  readIcrc,
  writeIcrc,
} from '#daemon/roce/wire/icrc';
import { identificationOf } from '#daemon/roce/wire/identification';
import { BTH_BYTES } from '#daemon/roce/wire/opcode';
import { IP_HEADERS_BYTES, largestPathMtu } from '#daemon/roce/wire/path-mtu';
import {
  IncomingBatch,
  OutgoingBatch,
  type UdpDestination,
} from '#native-bridge/libc/datagram-batch';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { errnoName, SystemCallError } from '#native-bridge/libc/libc';
import { gidAddress } from '../host-addresses.ts';
import { GroupSockets } from './group-sockets.ts';
import { type LinkSocket, openSocket } from './link-socket.ts';
import { isLinkLocalGid } from './multicast-groups.ts';
import type { PacketPort } from './packet-port.ts';
import { sameBytes } from './roce-port.ts';
import { SlotCrc } from './slot-crc.ts';
import { SourceShares } from './source-shares.ts';
import type { UdpNetwork } from './udp-network.ts';

/** Datagrams per system call. One queue pair's turn fits. */
const SLOTS = 32;
const SLOT_BYTES = PACKET_BYTES_MAX + ICRC_BYTES;
/** Received messages per system call: each may have as many datagrams as Linux joins. */
const IN_SLOTS = 8;
const SEGMENTS_MAX = 64;
/** Datagrams that a turn of the event loop takes, give or take a call; more while several hosts send. */
const DATAGRAMS_MAX = 128;
const SHARED_DATAGRAMS_MAX = 1024;
/** Messages that it reads, if most are dropped for their sender's share. */
const MESSAGES_MAX = 1024;
/** The longest pause before retrying datagrams for which the kernel had no room. */
const RETRY_MICROS: Micros = 1000;
const EAGAIN = -11;
/** Linux cuts no messages there: the adapter computes no checksums, or there is IPsec. */
const EIO = -5;
/**
 * How often sockets that could not be opened are tried again: as often as the host lists its addresses, one of
 * which may have gone and come back in between.
 */
const REOPEN_MICROS: Micros = 1_000_000;
/** XOR mask that corrupts an ICRC. */
const WRONG = 0xffff_ffff;

/** A packet from another host. Valid during the call that it is passed to. */
export class PacketArrival {
  /** Owned by the link. */
  readonly sourceGid: Uint8Array = new Uint8Array(GID_BYTES);
  /** Our address, or a group. */
  destGid: Uint8Array = new Uint8Array(GID_BYTES);
  /** The queue pairs of the group, of all ports; undefined for a packet to our address. */
  members: ReadonlySet<QP> | undefined = undefined;
  sourcePort = 0;
  trafficClass = 0;
  hopLimit = 0;
  /** IPv4 only, recovered from the ICRC. */
  identification = 0;
  /** Where it starts, and its length from the base header to the end of the padding. */
  start = 0;
  length = 0;
}

/** The path of packets with one address vector. */
export interface LinkPath extends UdpDestination {
  readonly socket: LinkSocket;
  /** The port that sends them. */
  readonly port: PacketPort;
  readonly sourceGid: Uint8Array;
  readonly destGid: Uint8Array;
}

/** Callbacks of a link to its network. */
export interface UdpUser {
  /** A packet with a valid ICRC for an address of these ports, in `bytes`. */
  handleArrival(ports: ReadonlySet<PacketPort>, arrival: PacketArrival, bytes: Uint8Array): void;
  /** The bytes of the packets so far are reused after this call. */
  handleArrivalsEnd(): void;
  /** No more packets for now. */
  handleInputEnd(): void;
  /** A line for the log. */
  note(level: 'info' | 'warn', text: string): void;
}

export class UdpLink {
  readonly #network: UdpNetwork;
  readonly #user: UdpUser;
  /** By the text of their GID. */
  readonly #sockets = new Map<string, LinkSocket>();
  /** The same as a list, for checks per packet. */
  #own: readonly LinkSocket[] = [];
  readonly #groups: GroupSockets;
  /** Ports that want to receive on an address whose socket could not be opened, by the text of the GID. */
  readonly #missing = new Map<
    string,
    { readonly gid: Uint8Array; readonly ports: Set<PacketPort> }
  >();
  /** When to try again. */
  #reopenAt: Micros = 0;
  /** Failures that were logged, by GID. */
  readonly #failures = new Map<string, string>();
  readonly #out = new OutgoingBatch(SLOTS, SLOT_BYTES);
  readonly #outCrc = new SlotCrc(this.#out.bytes, SLOTS);
  readonly #headers = { four: new IcrcHeaders(true), six: new IcrcHeaders(false) };
  /** The paths of the packets in the batch, their common socket, and the index of the first unsent one. */
  readonly #paths: (LinkPath | undefined)[] = [];
  /** XOR masks of their ICRCs. */
  readonly #masks = new Uint32Array(SLOTS);
  #socket: LinkSocket | undefined;
  #first = 0;
  /** When to retry the rest of the batch. */
  #retryAt: Micros | undefined;
  readonly #in: IncomingBatch;
  readonly #inCrc: SlotCrc;
  readonly #shares = new SourceShares();
  /** Datagrams taken in this turn. */
  #taken = 0;
  /** By how much identifications differ within messages: 1, or 0 from senders that do not number datagrams. */
  #step = 1;
  readonly #arrival = new PacketArrival();

  constructor(network: UdpNetwork, user: UdpUser) {
    this.#network = network;
    this.#user = user;
    this.#in = new IncomingBatch(IN_SLOTS, network.messageBytes);
    this.#inCrc = new SlotCrc(this.#in.bytes, IN_SLOTS * SEGMENTS_MAX);
    this.#groups = new GroupSockets(network, {
      read: (socket) => this.#read(socket),
      note: (key, text) => this.#noteOnce('warn', key, text),
    });
  }

  // Addresses

  /**
   * The code of the largest path MTU from one of the port's addresses to a GID of another host; 0 without a
   * route. Opens the socket. Throws `VerbsError` EADDRINUSE if the port is taken.
   */
  pathMtu(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): number {
    const mtu = isRoutable(sgid) && isRoutable(dgid) ? this.#mtuBetween(sgid, dgid) : 0;
    // The program gets an errno; the log says what to do.
    if (mtu === 0) {
      this.#noteOnce('warn', `to ${dgid.join('.')}`, unreachableText(port, sgid, dgid));
      return 0;
    }
    try {
      this.#open(port, sgid);
    } catch (error) {
      if (error instanceof VerbsError) this.#noteOnce('warn', sgid.join('.'), error.message);
      throw error;
    }
    return mtu;
  }

  /**
   * Receives on this address of the port from now on. Logs a failure, and tries again until the port loses the
   * address.
   */
  listen(port: PacketPort, gid: Uint8Array): void {
    if (!isRoutable(gid)) return;
    const key = gid.join('.');
    try {
      this.#open(port, gid);
      this.#failures.delete(key);
    } catch (error) {
      if (!(error instanceof VerbsError)) throw error;
      this.#noteOnce('info', key, error.message);
      const missing = this.#missing.get(key) ?? { gid, ports: new Set() };
      this.#missing.set(key, missing);
      missing.ports.add(port);
    }
  }

  #reopen(now: Micros): void {
    this.#reopenAt = now + REOPEN_MICROS;
    const missing = [...this.#missing];
    this.#missing.clear();
    for (const [key, { gid, ports }] of missing) {
      for (const port of ports) if (port.has(gid)) this.listen(port, gid);
      if (this.#sockets.has(key)) {
        this.#user.note('info', `UDP port ${ROCE_PORT} of ${gidAddress(gid)} is open now`);
      }
    }
    this.#groups.reopen();
  }

  /** The path of packets with this vector; undefined if they cannot leave. */
  path(port: PacketPort, sgid: Uint8Array, vector: AddressVector): LinkPath | undefined {
    const { dgid, trafficClass, hopLimit } = vector;
    if (!isRoutable(sgid) || !isRoutable(dgid) || isIpv4Gid(sgid) !== isIpv4Gid(dgid)) {
      return undefined;
    }
    this.listen(port, sgid);
    const socket = this.#sockets.get(sgid.join('.'));
    if (socket === undefined) return undefined;
    const name = socketAddress(gidAddress(dgid), ROCE_PORT);
    return { socket, port, name, trafficClass, hopLimit, sourceGid: sgid, destGid: dgid };
  }

  join(port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>): void {
    this.#groups.join(port, gid, members);
  }

  /** Stops receiving the group on this port. */
  leave(port: PacketPort, gid: Uint8Array): void {
    this.#groups.leave(port, gid);
  }

  /** Closes the sockets of addresses that no port has any longer. */
  follow(): void {
    for (const [key, socket] of this.#sockets) {
      for (const port of socket.ports) if (!port.has(socket.gid)) socket.ports.delete(port);
      if (socket.ports.size > 0) continue;
      this.#sockets.delete(key);
      socket.udp.close();
    }
    this.#own = [...this.#sockets.values()];
    this.#groups.follow();
  }

  close(): void {
    for (const { udp } of this.#sockets.values()) udp.close();
    this.#sockets.clear();
    this.#missing.clear();
    this.#groups.close();
    this.#clear();
  }

  #open(port: PacketPort, gid: Uint8Array): void {
    const key = gid.join('.');
    const known = this.#sockets.get(key);
    if (known !== undefined) {
      known.ports.add(port);
      return;
    }
    const address = gidAddress(gid);
    try {
      const socket = openSocket(
        { gid, port },
        (onReadable) => this.#network.open(address, onReadable),
        (readable) => this.#read(readable),
      );
      this.#sockets.set(key, socket);
      this.#own = [...this.#sockets.values()];
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      throw new VerbsError('EADDRINUSE', openingText(error, address));
    }
  }

  /** Code of the largest path MTU between two addresses; 0 if there is no route. */
  #mtuBetween(sgid: Uint8Array, dgid: Uint8Array): number {
    try {
      const mtuBytes = this.#network.routeMtu(gidAddress(sgid), gidAddress(dgid));
      return largestPathMtu(mtuBytes - IP_HEADERS_BYTES);
    } catch (error) {
      if (error instanceof SystemCallError) return 0;
      throw error;
    }
  }

  // Output

  /** True while the kernel has no room: nothing may be added. */
  get blocked(): boolean {
    return this.#retryAt !== undefined;
  }

  /** When `handleDeadline` is due; undefined if never. */
  get deadline(): Micros | undefined {
    if (this.#missing.size === 0 && !this.#groups.incomplete) return this.#retryAt;
    return Math.min(this.#reopenAt, this.#retryAt ?? this.#reopenAt);
  }

  /** Sends a full batch. False while the kernel has no room for another one. */
  makeRoom(now: Micros): boolean {
    if (this.#out.count === SLOTS) this.transmit(now);
    return !this.blocked;
  }

  /** True if a packet with this path may be added before `transmit`. */
  takes({ socket }: LinkPath): boolean {
    if (this.blocked || this.#out.count === SLOTS) return false;
    return this.#socket === undefined || this.#socket === socket;
  }

  /** The batch. The next packet, up to `PACKET_BYTES_MAX`, is written at `nextStart`. */
  get bytes(): Uint8Array {
    return this.#out.bytes;
  }

  get nextStart(): number {
    return this.#out.slotAt(this.#out.count);
  }

  /**
   * Adds the packet of `length` bytes in place to the batch, for `path`, which must take it. `damaged`: with
   * a wrong ICRC.
   */
  add(length: number, path: LinkPath, damaged = false): void {
    this.#socket = path.socket;
    this.#paths[this.#out.count] = path;
    this.#masks[this.#out.count] = damaged ? WRONG : 0;
    this.#out.add(length + ICRC_BYTES, path);
  }

  /** Drops the packets of the batch. */
  discard(): void {
    this.#clear();
  }

  /** Sends the batch. Counts packets that cannot be sent, such as ones that are too long. */
  transmit(now: Micros): void {
    if (this.blocked) return;
    if (this.#socket?.udp.segments === true) this.#out.join();
    this.#seal(0);
    this.#send(now);
  }

  /** Writes the ICRCs of the packets from this slot on. */
  #seal(first: number): void {
    let known: LinkPath | undefined;
    let headers = this.#headers.four;
    for (let slot = first; slot < this.#out.count; slot += 1) {
      const path = this.#paths[slot] as LinkPath;
      if (path !== known) {
        headers = path.socket.four ? this.#headers.four : this.#headers.six;
        headers.setEnds(path.sourceGid, path.destGid, ROCE_PORT);
        known = path;
      }
      const start = this.#out.slotAt(slot);
      const length = this.#out.lengthOf(slot) - ICRC_BYTES;
      const end = start + length;
      const crc = headers.crcOf(this.bytes, start, length, this.#out.segmentOf(slot));
      const icrc = this.#outCrc.crcOf(slot, start + BTH_BYTES, end, crc);
      writeIcrc(this.bytes, end, icrc ^ (this.#masks[slot] as number));
    }
  }

  /** Retries sockets, and the rest of the batch. True if senders may continue. */
  handleDeadline(now: Micros): boolean {
    if (now >= this.#reopenAt) this.#reopen(now);
    if (this.#retryAt === undefined || now < this.#retryAt) return false;
    this.#retryAt = undefined;
    this.#send(now);
    return !this.blocked;
  }

  #send(now: Micros): void {
    const { count } = this.#out;
    while (this.#first < count) {
      const sent = (this.#socket as LinkSocket).udp.send(this.#out, this.#first);
      if (sent > 0) {
        this.#first += sent;
      } else if (sent === EAGAIN) {
        this.#retryAt = now + RETRY_MICROS;
        return;
      } else {
        const path = this.#paths[this.#first] as LinkPath;
        if (this.#out.split(this.#first)) {
          // Other errors may be about the packets, or pass.
          if (sent === EIO) path.single = true;
          this.#seal(this.#first);
          continue;
        }
        this.#lose(path, -sent);
        this.#first += 1;
      }
    }
    this.#clear();
  }

  #clear(): void {
    this.#out.clear();
    this.#first = 0;
    this.#socket = undefined;
    this.#retryAt = undefined;
  }

  /** Counts a packet that cannot be sent; logs each reason and address once. */
  #lose({ port, destGid }: LinkPath, errno: number): void {
    port.counters.undeliverable += 1;
    const key = `to ${gidAddress(destGid)}`;
    this.#noteOnce('warn', key, `packets ${key} cannot leave (${errnoName(errno)})`);
  }

  /** Logs a line unless it was the last one about this address. */
  #noteOnce(level: 'info' | 'warn', key: string, text: string): void {
    if (this.#failures.get(key) === text) return;
    if (this.#failures.size >= FAILURES_MAX) this.#failures.clear();
    this.#failures.set(key, text);
    this.#user.note(level, text);
  }

  // Input

  #read(socket: LinkSocket): void {
    const shares = this.#shares;
    shares.begin();
    this.#taken = 0;
    let most = DATAGRAMS_MAX;
    for (let messages = 0; messages < MESSAGES_MAX && this.#taken < most; messages += IN_SLOTS) {
      const count = socket.udp.receive(this.#in);
      // A socket error is about a sent packet; continue with the next read.
      if (count <= 0) break;
      for (let slot = 0; slot < count; slot += 1) this.#takeMessage(socket, slot);
      this.#user.handleArrivalsEnd();
      if (count < IN_SLOTS) break;
      most = shares.shared ? SHARED_DATAGRAMS_MAX : DATAGRAMS_MAX;
    }
    this.#user.handleInputEnd();
  }

  #takeMessage(socket: LinkSocket, slot: number): void {
    const batch = this.#in;
    const arrival = this.#arrival;
    const messageBytes = batch.truncated(slot) ? 0 : batch.lengthOf(slot);
    const segmentBytes = batch.segmentBytesOf(slot) || messageBytes;
    arrival.sourcePort = batch.readSender(slot, arrival.sourceGid);
    arrival.destGid = socket.gid;
    arrival.members = socket.members;
    arrival.trafficClass = batch.trafficClassOf(slot);
    arrival.hopLimit = batch.hopLimitOf(slot);
    arrival.start = batch.slotAt(slot);
    // Linux joins no more. A packet in segments of a few bytes would cost as much as thousands.
    const whole = messageBytes <= segmentBytes * SEGMENTS_MAX;
    let left = whole ? messageBytes : 0;
    let segment = 0;
    do {
      arrival.length = Math.min(segmentBytes, left) - ICRC_BYTES;
      this.#take(socket, slot, segment);
      arrival.start += segmentBytes;
      left -= segmentBytes;
      segment += 1;
    } while (left > 0);
  }

  /** Takes the datagram that `#arrival` describes, with the identification of the one before it in the message. */
  #take(socket: LinkSocket, slot: number, segment: number): void {
    const arrival = this.#arrival;
    if (!this.#shares.take(arrival.sourceGid)) {
      countAll(socket, 'overShare');
      return;
    }
    this.#taken += 1;
    const { length } = arrival;
    if (length < BTH_BYTES || length > PACKET_BYTES_MAX || (length & 3) !== 0) {
      countAll(socket, 'malformed');
      return;
    }
    // Our own multicast, which our queue pairs have already received.
    if (socket.members !== undefined && this.#isOurs(arrival.sourceGid)) return;
    if (!this.#isWhole(socket, slot, segment)) {
      countAll(socket, 'icrcErrors');
      return;
    }
    this.#user.handleArrival(socket.ports, arrival, this.#in.bytes);
  }

  #isOurs(sourceGid: Uint8Array): boolean {
    for (const { gid } of this.#own) if (sameBytes(gid, sourceGid)) return true;
    return false;
  }

  /**
   * Checks the ICRC, first with the identification that follows that of the datagram before, and recovers
   * another one.
   */
  #isWhole(socket: LinkSocket, slot: number, segment: number): boolean {
    const { headers, gid, four } = socket;
    const arrival = this.#arrival;
    const { bytes } = this.#in;
    const { start, length, sourceGid, sourcePort } = arrival;
    const end = start + length;
    headers.setEnds(sourceGid, gid, sourcePort);
    const before = arrival.identification;
    const guess = segment === 0 || !four ? 0 : (before + this.#step) & 0xffff;
    const crc = headers.crcOf(bytes, start, length, guess);
    const view = slot * SEGMENTS_MAX + segment;
    const icrc = this.#inCrc.crcOf(view, start + BTH_BYTES, end, crc);
    const sent = readIcrc(bytes, end);
    arrival.identification = guess;
    if (sent === icrc) return true;
    if (!four) return false;
    const difference = identificationOf(sent, icrc, bytesFromIdentification(length));
    if (difference === undefined) return false;
    arrival.identification ^= difference;
    if (segment > 0) this.#step = arrival.identification === before ? 0 : 1;
    countAll(socket, 'identified');
    return true;
  }
}

/** Limit of remembered failures, so that each is logged once. */
const FAILURES_MAX = 256;

type ArrivalCounter = 'malformed' | 'icrcErrors' | 'identified' | 'overShare';

function countAll({ ports }: LinkSocket, counter: ArrivalCounter): void {
  for (const { counters } of ports) counters[counter] += 1;
}

/** False for an address that a device generated: no other host can reach it. */
function isRoutable(gid: Uint8Array): boolean {
  return !isLinkLocalGid(gid);
}

function unreachableText(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): string {
  const ends = `${port.name} cannot reach ${gidAddress(dgid)} from ${gidAddress(sgid)}`;
  if (!isRoutable(sgid) || !isRoutable(dgid)) {
    return `${ends} (no other host knows link-local GIDs); use another GID index (-g, -x)`;
  }
  return `${ends} (no route); use the GID index of an address that reaches it (-g, -x), at both ends`;
}

function openingText({ code }: SystemCallError, address: string): string {
  const where = `UDP port ${ROCE_PORT} of ${address}`;
  if (code !== 'EADDRINUSE') return `${where} cannot be opened (${code})`;
  return (
    `${where} is taken: by another daemon, or by the kernel's rxe. Stop that one, or give the device ` +
    'another address. Until then it reaches no other host; devices of this host reach each other'
  );
}
