/**
 * Simulated UDP: sockets of simulated hosts at port 4791, and paths between the hosts that lose,
 * repeat, damage, delay and reorder datagrams, and may be interrupted for a while.
 */
import type { UdpNetwork, UdpSocket } from '#daemon/host/roce/udp-network';
import { tableCrc32 } from '#daemon/roce/wire/crc32';
import { bytesFromIdentification, ICRC_BYTES, ROCE_PORT, readIcrc } from '#daemon/roce/wire/icrc';
import { identificationOf } from '#daemon/roce/wire/identification';
import type { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { SystemCallError } from '#native-bridge/libc/libc';
import { type Datagram, fillSlot, sentMessages } from '#test/support/datagram-slots';
import type { Prng } from '#test/support/prng';
import type { VirtualTime } from '#test/support/virtual-time';

const Errno = { badf: 9, again: 11, msgSize: 90, inUse: 98, notAvailable: 99, unreachable: 101 };
const UDP_HEADERS_BYTES = 28;
const UDP_HEADERS6_BYTES = 48;

/**
 * A path between two hosts, the same in both directions. A rate of N means that one datagram in N
 * is lost, repeated and so on; 0: none.
 */
export interface PathTraits {
  readonly mtuBytes: number;
  readonly delayMin: number;
  readonly delayMax: number;
  /** Datagrams do not overtake each other. */
  readonly ordered: boolean;
  readonly lostOneIn: number;
  readonly repeatedOneIn: number;
  readonly damagedOneIn: number;
}

/** Traits of a host's sockets. */
export interface SocketTraits {
  readonly bufferDatagrams: number;
  /** One call in this many finds no room to send; 0: none. */
  readonly fullOneIn: number;
  /** The longest time until a program reads a socket. */
  readonly readMicros: number;
}

interface Path {
  readonly traits: PathTraits;
  /** No datagram passes until then. */
  closedUntil: number;
  /** When the last datagram of each direction arrives. */
  readonly lastAt: Map<UdpHost, number>;
}

/** The paths of a simulation. */
export class DatagramNetwork {
  readonly time: VirtualTime;
  readonly prng: Prng;
  readonly socketTraits: SocketTraits;
  readonly hosts: UdpHost[] = [];
  /** Sees every datagram that a host sends. */
  observer: ((datagram: Datagram) => void) | undefined;
  lost = 0;
  readonly #traits: () => PathTraits;
  readonly #paths = new Map<string, Path>();

  constructor(time: VirtualTime, prng: Prng, traits: () => PathTraits, sockets: SocketTraits) {
    this.time = time;
    this.prng = prng;
    this.#traits = traits;
    this.socketTraits = sockets;
  }

  /** Adds a host; `addresses` may change. */
  host(addresses: readonly string[]): UdpHost {
    const host = new UdpHost(this, this.hosts.length, addresses);
    this.hosts.push(host);
    return host;
  }

  ownerOf(address: string): UdpHost | undefined {
    return this.hosts.find(({ addresses }) => addresses.includes(address));
  }

  /** Interrupts the path between two hosts. */
  interrupt(one: UdpHost, other: UdpHost, micros: number): void {
    const path = this.pathOf(one, other);
    path.closedUntil = Math.max(path.closedUntil, this.time.now + micros);
  }

  /** Ends all interruptions. */
  heal(): void {
    for (const path of this.#paths.values()) path.closedUntil = 0;
  }

  pathOf(one: UdpHost, other: UdpHost): Path {
    const [low, high] = one.index < other.index ? [one, other] : [other, one];
    const key = `${low.index} ${high.index}`;
    let path = this.#paths.get(key);
    if (path === undefined) {
      path = { traits: this.#traits(), closedUntil: 0, lastAt: new Map() };
      this.#paths.set(key, path);
    }
    return path;
  }

  /** Carries a datagram of a host to the hosts that receive it. */
  carry(sender: UdpHost, datagram: Datagram): void {
    this.observer?.(datagram);
    if (!isGroup(datagram.to)) {
      const receiver = this.ownerOf(datagram.to);
      if (receiver === undefined) this.lost += 1;
      else this.#launch(sender, receiver, datagram);
      return;
    }
    for (const host of this.hosts)
      if (host.receives(datagram.to)) this.#launch(sender, host, datagram);
  }

  /** Delivers a forged datagram, which no socket sent. False if no socket takes it. */
  forge(datagram: Datagram): boolean {
    return this.ownerOf(datagram.to)?.arrive(datagram) === true;
  }

  #launch(sender: UdpHost, receiver: UdpHost, datagram: Datagram): void {
    const path = this.pathOf(sender, receiver);
    const { lostOneIn, repeatedOneIn, damagedOneIn } = path.traits;
    const { prng } = this;
    const own = sender === receiver;
    if (!own && (path.closedUntil > this.time.now || (lostOneIn > 0 && prng.oneIn(lostOneIn)))) {
      this.lost += 1;
      return;
    }
    const damage = !own && damagedOneIn > 0 && prng.oneIn(damagedOneIn);
    const carried = damage ? { ...datagram, bytes: damaged(datagram.bytes, prng) } : datagram;
    this.#deliver(path, receiver, carried);
    while (!own && repeatedOneIn > 0 && prng.oneIn(repeatedOneIn)) {
      this.#deliver(path, receiver, carried);
    }
  }

  #deliver({ traits, lastAt }: Path, receiver: UdpHost, datagram: Datagram): void {
    const { time } = this;
    let at = time.now + this.prng.between(traits.delayMin, traits.delayMax);
    if (traits.ordered) at = Math.max(at, lastAt.get(receiver) ?? 0);
    lastAt.set(receiver, at);
    time.after(at - time.now, () => receiver.arrive(datagram));
  }
}

/** Limit of a received message: less than Linux's, so that a run costs less memory. */
const MESSAGE_BYTES_MAX = 8192;

/** UDP of one host. */
export class UdpHost implements UdpNetwork {
  readonly messageBytes = MESSAGE_BYTES_MAX;
  readonly network: DatagramNetwork;
  readonly index: number;
  readonly addresses: readonly string[];
  readonly sockets = new Set<SimUdpSocket>();
  /** Datagrams that left it, and that its sockets read. */
  sent = 0;
  read = 0;
  /** Datagrams of `read` that it had sent to a group itself. */
  echoes = 0;

  constructor(network: DatagramNetwork, index: number, addresses: readonly string[]) {
    this.network = network;
    this.index = index;
    this.addresses = addresses;
  }

  open(address: string, onReadable: () => void): UdpSocket {
    if (!this.addresses.includes(address)) {
      throw new SystemCallError('bind', Errno.notAvailable, address);
    }
    for (const socket of this.sockets) {
      if (socket.address === address) throw new SystemCallError('bind', Errno.inUse, address);
    }
    return this.#add(address, onReadable);
  }

  openGroup(group: string, on: readonly string[], onReadable: () => void): UdpSocket {
    if (!on.some((address) => this.addresses.includes(address))) {
      throw new SystemCallError('setsockopt', Errno.notAvailable, group);
    }
    return this.#add(group, onReadable);
  }

  routeMtu(source: string, destination: string): number {
    const peer = this.network.ownerOf(destination);
    if (peer === undefined || !this.addresses.includes(source)) {
      throw new SystemCallError('route', Errno.unreachable, destination);
    }
    return this.network.pathOf(this, peer).traits.mtuBytes;
  }

  /** True if a socket receives the group. */
  receives(group: string): boolean {
    for (const { address } of this.sockets) if (address === group) return true;
    return false;
  }

  /** False if no socket takes the datagram. */
  arrive(datagram: Datagram): boolean {
    let taken = false;
    for (const socket of this.sockets) {
      if (socket.address === datagram.to && socket.take(datagram)) taken = true;
    }
    return taken;
  }

  /** Sends a message of one or more datagrams. Returns 0, or a negative errno. */
  send(message: readonly Datagram[]): number {
    const { network } = this;
    for (const { bytes, to } of message) {
      const peer = isGroup(to) ? undefined : network.ownerOf(to);
      const mtu = peer === undefined ? UNKNOWN_MTU : network.pathOf(this, peer).traits.mtuBytes;
      const headers = to.includes(':') ? UDP_HEADERS6_BYTES : UDP_HEADERS_BYTES;
      if (bytes.length + headers > mtu) return -Errno.msgSize;
    }
    this.sent += message.length;
    for (const datagram of message) network.carry(this, datagram);
    return 0;
  }

  #add(address: string, onReadable: () => void): SimUdpSocket {
    const socket = new SimUdpSocket(this, address, onReadable);
    this.sockets.add(socket);
    return socket;
  }
}

/** MTU of the interface of a route to an address that no host has. */
const UNKNOWN_MTU = 1500;

/** True if a datagram may follow the last one of a message. */
function continues(
  [first, ...others]: readonly [Datagram, ...Datagram[]],
  next: Datagram,
): boolean {
  const last = others.at(-1) ?? first;
  const bytes = first.bytes.length * (others.length + 1) + next.bytes.length;
  return (
    last.bytes.length === first.bytes.length &&
    next.bytes.length <= first.bytes.length &&
    bytes <= MESSAGE_BYTES_MAX &&
    next.from === first.from &&
    next.fromPort === first.fromPort &&
    next.to === first.to &&
    next.trafficClass === first.trafficClass &&
    next.hopLimit === first.hopLimit
  );
}

class SimUdpSocket implements UdpSocket {
  /** As a host's kernel does: some send or receive several datagrams as one message, some do both. */
  readonly segments: boolean;
  readonly #joins: boolean;
  readonly address: string;
  readonly #host: UdpHost;
  readonly #onReadable: () => void;
  readonly #queue: Datagram[] = [];
  #closed = false;
  #notified = false;

  constructor(host: UdpHost, address: string, onReadable: () => void) {
    this.#host = host;
    this.segments = host.index % 2 === 0;
    this.#joins = host.index % 3 === 0;
    this.address = address;
    this.#onReadable = onReadable;
  }

  send(batch: OutgoingBatch, first: number): number {
    if (this.#closed) return -Errno.badf;
    const { prng, socketTraits } = this.#host.network;
    const { fullOneIn } = socketTraits;
    const full = fullOneIn > 0 && prng.oneIn(fullOneIn);
    const room = full ? prng.below(batch.count - first) : batch.count;
    let sent = 0;
    for (const message of sentMessages(batch, first, this.address, ROCE_PORT)) {
      if (sent >= room) return sent === 0 ? -Errno.again : sent;
      const error = this.#host.send(message);
      if (error !== 0) return sent === 0 ? error : sent;
      sent += message.length;
    }
    return sent;
  }

  receive(batch: IncomingBatch): number {
    let count = 0;
    for (; count < batch.slots; count += 1) {
      const datagram = this.#queue.shift();
      if (datagram === undefined) break;
      const message: [Datagram, ...Datagram[]] = [datagram];
      for (let next = this.#queue[0]; this.#joins && next !== undefined; next = this.#queue[0]) {
        if (!continues(message, next)) break;
        message.push(next);
        this.#queue.shift();
      }
      fillSlot(batch, count, message);
      const { from, to } = datagram;
      this.#host.read += message.length;
      if (isGroup(to) && this.#host.addresses.includes(from)) this.#host.echoes += message.length;
    }
    return count === 0 ? -Errno.again : count;
  }

  close(): void {
    this.#closed = true;
    this.#queue.length = 0;
    this.#host.sockets.delete(this);
  }

  /** A datagram arrived. False if there is no room. */
  take(datagram: Datagram): boolean {
    const { network } = this.#host;
    if (this.#queue.length >= network.socketTraits.bufferDatagrams) {
      network.lost += 1;
      return false;
    }
    this.#queue.push(datagram);
    this.#notify();
    return true;
  }

  #notify(): void {
    if (this.#notified) return;
    this.#notified = true;
    const { time, prng, socketTraits } = this.#host.network;
    const wake = (): void => {
      this.#notified = false;
      if (this.#closed || this.#queue.length === 0) return;
      this.#onReadable();
      if (this.#queue.length > 0) this.#notify();
    };
    const { readMicros } = socketTraits;
    if (readMicros === 0) time.soon(wake);
    else time.after(prng.below(readMicros), wake);
  }
}

/** True for a multicast address. */
function isGroup(address: string): boolean {
  return /^(22[4-9]|23\d)\./.test(address) || address.startsWith('ff');
}

/** A copy with a wrong bit. */
function damaged(bytes: Uint8Array, prng: Prng): Uint8Array {
  for (;;) {
    const copy = bytes.slice();
    const at = prng.below(copy.length);
    copy[at] = (copy[at] ?? 0) ^ (1 << prng.below(8));
    if (!passes(bytes, copy)) return copy;
  }
}

/**
 * True if a receiver mistakes the damage for the sender's identification, as for one datagram in
 * 65,536. The kernel drops these by the checksum of UDP.
 */
function passes(bytes: Uint8Array, copy: Uint8Array): boolean {
  const end = bytes.length - ICRC_BYTES;
  const difference =
    tableCrc32(bytes, 0, end) ^
    tableCrc32(copy, 0, end) ^
    readIcrc(bytes, end) ^
    readIcrc(copy, end);
  return identificationOf(difference >>> 0, 0, bytesFromIdentification(end)) !== undefined;
}
