/**
 * The SCTP stack of this process: libusrsctp, which exists once per process, with UDP sockets and a clock.
 * The hosts of the process share it.
 *
 * A turn receives packets, then serves the associations on which something happened, then sends the batch of
 * packets. Messages that a user sends outside a turn are sent in an extra turn.
 */
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { SystemCallError } from '#native-bridge/libc/libc';
import { routeMtu } from '#native-bridge/libc/route-mtu';
import { UsrsctpUnavailable } from '#native-bridge/usrsctp/library';
import { UsrsctpSocket } from '#native-bridge/usrsctp/socket';
import { type UsrsctpStack, usrsctpStack } from '#native-bridge/usrsctp/stack';
import { gidAddress, gidBytes } from '../host-addresses.ts';
import { type Alarm, type HostClock, NetworkError } from '../links/network.ts';
import { ASSOCIATIONS_MAX } from './association.ts';
import type { MemoryDatagrams } from './memory-datagrams.ts';
import {
  ANSWER_BYTES,
  destinationPort,
  initAdaptation,
  judgePacket,
  Verdict,
  writeAnswer,
} from './packet-gate.ts';
import { type CarrierSocket, type Path, Paths } from './paths.ts';
import { SentTags } from './sent-tags.ts';
import { type ArrivedPacket, type CarrierUser, UdpCarrier } from './udp-carrier.ts';

const EMSGSIZE = 90;
const MICROS_PER_MILLISECOND = 1000;
/** Period of the library's timers while packets are exchanged, and otherwise. */
const BUSY_TICK_MICROS = 10_000;
const IDLE_TICK_MICROS = 100_000;
/**
 * Time without a packet until the stack is idle: longer than any timer of the library except the heartbeat's.
 */
const BUSY_MICROS = 2_000_000;
/** The pause before retrying datagrams for which the kernel had no room. */
const RETRY_MICROS = 1000;
/** Sockets served in a turn; each has its own limit. */
const SERVED_MAX = 256;
/** Associations waiting to be accepted, which happens in the same turn. */
const BACKLOG = 128;
/** Ephemeral ports. */
const DYNAMIC_PORT_MIN = 49_152;
const DYNAMIC_PORTS = 16_384;
/**
 * The longest IP packet (its length field has 16 bits), and the smallest path MTU that is accepted.
 */
const IP_BYTES_MAX = 65_535;
const IP_BYTES_MIN = 576;
const IPV4_UDP_BYTES = 28;
const IPV6_UDP_BYTES = 48;

/** An object with a socket of the library. */
export interface ServedSocket {
  readonly socket: UsrsctpSocket;
  /** Undefined for a listener. */
  readonly path: Path | undefined;
  queued: boolean;
  /** Handles events; true if more are left. */
  serve(): boolean;
  /** The largest packet of its path has become smaller. */
  handleShrunk(): void;
  /** The network reports that a packet of its path was not delivered. */
  handleUnreachable(errno: number): void;
}

/** The holder of a port. */
export interface SctpPortHolder {
  /** The adaptation indication that it accepts; undefined while it does not listen. */
  readonly listensFor: number | undefined;
  /** Offers an association. True if it is accepted. */
  take(socket: UsrsctpSocket, path: Path, remotePort: number): boolean;
}

/** Why packets were dropped. */
interface StackCounters {
  /** ICMP messages that quote none of our packets. */
  unfounded: number;
  /** Not SCTP, or with an extension that is never negotiated. */
  malformed: number;
  /** Answered here: no listener, no such association, or another adaptation. */
  refused: number;
}

/** Accepts associations on a port, for all addresses: the library distinguishes paths, not addresses. */
class Listener implements ServedSocket {
  readonly socket: UsrsctpSocket;
  readonly path = undefined;
  users = 0;
  queued = false;
  readonly #accept: (listener: UsrsctpSocket) => boolean;

  constructor(socket: UsrsctpSocket, accept: (listener: UsrsctpSocket) => boolean) {
    this.socket = socket;
    this.#accept = accept;
  }

  serve(): boolean {
    for (let count = 0; count < BACKLOG; count += 1) if (!this.#accept(this.socket)) return false;
    return true;
  }

  handleShrunk(): void {}
  handleUnreachable(): void {}
}

export class SctpStack {
  readonly library: UsrsctpStack;
  readonly carrier: UdpCarrier;
  readonly counters: StackCounters = { malformed: 0, refused: 0, unfounded: 0 };
  readonly #clock: HostClock;
  readonly #paths = new Paths();
  /** The open UDP sockets, with the number of their users. */
  readonly #sockets = new Map<CarrierSocket, number>();
  /** By number of the UDP socket and SCTP port. */
  readonly #ports = new Map<string, SctpPortHolder>();
  /**
   * Holders and associations of each SCTP port, on all UDP sockets. To the library they share one space of
   * ports: it refuses to listen on a port from which an association was opened.
   */
  readonly #portUsers = new Map<number, number>();
  readonly #listeners = new Map<number, Listener>();
  readonly #served = new Map<number, ServedSocket>();
  #ready: ServedSocket[] = [];
  /** Paths whose MTU shrank, with the new number of bytes, or undefined to query the route. */
  readonly #shrunk = new Map<Path, number | undefined>();
  #associations = 0;
  #inTurn = false;
  #turnScheduled = false;
  #timer: Alarm | undefined;
  #timerDue = 0;
  #lastTick = 0;
  #lastPacket = 0;

  constructor(library: UsrsctpStack, clock: HostClock) {
    this.library = library;
    this.#clock = clock;
    this.carrier = new UdpCarrier({
      handleArrival: (socket, packet) => this.#handleArrival(socket, packet),
      handleInputEnd: () => this.#handleInputEnd(),
      handleTooLong: (path) => this.#shrunk.set(path, undefined),
      handleError: (...error) => this.#handleError(...error),
      handleOutput: (blocked) => this.#handleOutput(blocked),
    });
    const packets = {
      reserve: (token: number, length: number) => this.#reserve(token, length),
      handlePacket: (token: number, _start: number, length: number) => {
        const path = this.#paths.of(token);
        if (path !== undefined) this.carrier.add(path, length);
      },
      handleSocket: (id: number) => this.#handleSocket(id),
    };
    library.serve(packets, this.carrier.incoming, this.carrier.outgoing);
  }

  // UDP sockets and ports

  /**
   * Opens a UDP socket, of the kernel or of a network in memory, or counts a user of an open one; for
   * `closeSocket`. Throws `NetworkError`.
   */
  openSocket(address: string, port: number, memory?: MemoryDatagrams): CarrierSocket {
    let socket: CarrierSocket | undefined;
    for (const each of this.#sockets.keys()) {
      const same = each.address === address && each.port === port;
      if (same && each.mailbox?.network === memory) socket = each;
    }
    socket ??= this.carrier.open(address, port, memory);
    this.#sockets.set(socket, (this.#sockets.get(socket) ?? 0) + 1);
    return socket;
  }

  /** Removes a user of the socket. Closes it after the last one. */
  closeSocket(socket: CarrierSocket): void {
    const users = this.#sockets.get(socket);
    if (users === undefined) return;
    if (users > 1) {
      this.#sockets.set(socket, users - 1);
      return;
    }
    this.#sockets.delete(socket);
    this.carrier.flush();
    this.carrier.close(socket);
    for (const path of this.#paths.takeAllOf(socket)) this.library.removePath(path.token);
  }

  /** Holds an SCTP port, 0 for a free one. Returns it. Throws `NetworkError` EADDRINUSE. */
  holdPort(socket: CarrierSocket, port: number, holder: SctpPortHolder): number {
    const held = port === 0 ? this.#freePort(socket) : port;
    const key = `${socket.number} ${held}`;
    if (held === undefined || this.#ports.has(key)) {
      const which = held === undefined ? 'every port' : `port ${held}`;
      throw new NetworkError('EADDRINUSE', `SCTP ${which} of ${socket.address} is taken`);
    }
    this.#ports.set(key, holder);
    this.#countPort(held, 1);
    return held;
  }

  releasePort(socket: CarrierSocket, port: number): void {
    this.#ports.delete(`${socket.number} ${port}`);
    this.#countPort(port, -1);
  }

  #countPort(port: number, change: 1 | -1): void {
    const users = (this.#portUsers.get(port) ?? 0) + change;
    if (users > 0) this.#portUsers.set(port, users);
    else this.#portUsers.delete(port);
  }

  /** Makes the library listen on a port, until `unlisten`; the first call's `options` count. */
  listen(port: number, options: Parameters<typeof UsrsctpSocket.open>[1]): void {
    let listener = this.#listeners.get(port);
    if (listener === undefined) {
      const socket = UsrsctpSocket.open(this.library, options);
      try {
        socket.bind(0, port);
        socket.listen(BACKLOG);
      } catch (error) {
        socket.close();
        throw error;
      }
      listener = new Listener(socket, (from) => this.#accept(from, port));
      this.#listeners.set(port, listener);
      this.watch(listener);
    }
    listener.users += 1;
  }

  unlisten(port: number): void {
    const listener = this.#listeners.get(port);
    if (listener === undefined) return;
    listener.users -= 1;
    if (listener.users > 0) return;
    this.#listeners.delete(port);
    this.unwatch(listener);
    listener.socket.close();
  }

  /** A port without any user, or else one that the socket does not hold. */
  #freePort(socket: CarrierSocket): number | undefined {
    const start = this.#clock.random32() % DYNAMIC_PORTS;
    let second: number | undefined;
    for (let step = 0; step < DYNAMIC_PORTS; step += 1) {
      const port = DYNAMIC_PORT_MIN + ((start + step) % DYNAMIC_PORTS);
      if (!this.#portUsers.has(port)) return port;
      if (second !== undefined || this.#listeners.has(port)) continue;
      if (!this.#ports.has(`${socket.number} ${port}`)) second = port;
    }
    return second;
  }

  // Paths and associations

  /** The path to an address and UDP port, known or new. Throws `NetworkError` without a route. */
  pathTo(socket: CarrierSocket, address: string, port: number): Path {
    const peer = gidBytes(address);
    const path = this.#paths.find(socket, peer, port) ?? this.#addPath(socket, peer, port);
    this.measure(path);
    return path;
  }

  /**
   * Queries the path's MTU, if unknown: for an association, not for each INIT, which anyone can send. Throws
   * `NetworkError` without a route.
   */
  measure(path: Path): void {
    if (path.packetBytes === 0) path.packetBytes = routePacketBytes(path);
  }

  /**
   * Counts an association with the local `port`, until `endAssociation`. Throws `NetworkError` ENOBUFS at
   * the host's limit, and `VerbsError` at the user's.
   */
  beginAssociation(path: Path, port: number, account: IdAccount | undefined): void {
    if (this.#associations >= ASSOCIATIONS_MAX) {
      throw new NetworkError('ENOBUFS', 'limit of SCTP associations reached');
    }
    account?.take('associations');
    this.#associations += 1;
    this.#countPort(port, 1);
    this.#paths.hold(path);
    const users = this.#sockets.get(path.socket);
    if (users !== undefined) this.#sockets.set(path.socket, users + 1);
    this.#arm();
  }

  endAssociation(path: Path, port: number, account: IdAccount | undefined): void {
    this.#associations -= 1;
    this.#countPort(port, -1);
    account?.give('associations');
    this.#paths.release(path, this.#clock.now());
    this.closeSocket(path.socket);
  }

  /** Calls `served` from now on when something happens on its socket. */
  watch(served: ServedSocket): void {
    this.#served.set(served.socket.id, served);
  }

  unwatch(served: ServedSocket): void {
    this.#served.delete(served.socket.id);
  }

  /** Serves it in the next turn. */
  queue(served: ServedSocket): void {
    if (!served.queued) {
      served.queued = true;
      this.#ready.push(served);
    }
    this.#scheduleTurn();
  }

  /** Calls `run` in a later turn of the event loop. */
  soon(run: () => void): void {
    this.#clock.soon(run);
  }

  /** Calls `run` after a delay. */
  after(delayMicros: number, run: () => void): Alarm {
    return this.#clock.after(delayMicros, run);
  }

  #addPath(socket: CarrierSocket, peer: Uint8Array, peerPort: number): Path {
    const path = newPath(this.#paths.takeToken(), socket, peer, peerPort, new SentTags());
    path.idleSince = this.#clock.now();
    this.#paths.add(path);
    this.library.addPath(path.token);
    this.#dropIdle();
    this.#arm();
    return path;
  }

  #dropIdle(): void {
    const now = this.#clock.now();
    for (let idle = this.#paths.takeIdle(now); idle; idle = this.#paths.takeIdle(now)) {
      this.library.removePath(idle.token);
    }
  }

  #accept(listener: UsrsctpSocket, port: number): boolean {
    const accepted = listener.accept();
    if (accepted === undefined) return false;
    const path = this.#paths.of(accepted.token);
    const holder = path && this.#ports.get(`${path.socket.number} ${port}`);
    if (path === undefined || !holder?.take(accepted.socket, path, accepted.port)) {
      accepted.socket.abort();
    }
    return true;
  }

  // Packets

  #handleArrival(socket: CarrierSocket, packet: ArrivedPacket): void {
    const { start, length, peer, peerPort } = packet;
    const bytes = this.carrier.incoming;
    const verdict = judgePacket(bytes, start, length);
    if (verdict === Verdict.malformed) {
      this.counters.malformed += 1;
      return;
    }
    const isInit = verdict === Verdict.init;
    const known = this.#paths.find(socket, peer, peerPort);
    if (isInit ? !this.#wants(socket, start) : known === undefined) {
      this.#refuse(socket, packet);
      return;
    }
    if (peerPort === 0) return;
    const path = known ?? this.#addPath(socket, peer, peerPort);
    this.library.input(path.token, start, length);
  }

  /** True if there is a listener for the association of the INIT at `start`. */
  #wants(socket: CarrierSocket, start: number): boolean {
    const bytes = this.carrier.incoming;
    const holder = this.#ports.get(`${socket.number} ${destinationPort(bytes, start)}`);
    if (holder?.listensFor === undefined) return false;
    // SCTP-7.1-01
    return initAdaptation(bytes, start) === holder.listensFor;
  }

  /** Answers a packet for no association. */
  #refuse(socket: CarrierSocket, { peer, peerPort, start, length }: ArrivedPacket): void {
    this.counters.refused += 1;
    const at = this.carrier.reserve(socket, ANSWER_BYTES);
    if (at < 0 || peerPort === 0) return;
    const { incoming, outgoing } = this.carrier;
    if (!writeAnswer(incoming, start, length, outgoing, at)) return;
    this.carrier.add(newPath(0, socket, peer, peerPort), ANSWER_BYTES);
  }

  #handleError(
    ...[socket, peer, peerPort, errno, errors]: Parameters<CarrierUser['handleError']>
  ): void {
    const path = this.#paths.find(socket, peer, peerPort);
    if (path?.tags?.has(errors.quoted) !== true) {
      this.counters.unfounded += 1;
      return;
    }
    if (errno === EMSGSIZE) {
      this.#shrunk.set(path, packetBytesOf(path, errors.mtuBytes));
      return;
    }
    for (const served of [...this.#served.values()]) {
      if (served.path === path) served.handleUnreachable(errno);
    }
  }

  #reserve(token: number, length: number): number {
    const path = this.#paths.of(token);
    return path === undefined ? -1 : this.carrier.reserve(path.socket, length);
  }

  #handleInputEnd(): void {
    this.#lastPacket = this.#clock.now();
    this.#turn();
    this.#arm();
  }

  #handleOutput(blocked: boolean): void {
    this.#lastPacket = this.#clock.now();
    if (blocked) this.#clock.after(RETRY_MICROS, () => this.#turn());
    else this.#scheduleTurn();
    this.#arm();
  }

  #handleSocket(id: number): void {
    const served = this.#served.get(id);
    if (served !== undefined) this.queue(served);
  }

  // Turns

  #scheduleTurn(): void {
    if (this.#inTurn || this.#turnScheduled) return;
    this.#turnScheduled = true;
    this.#clock.soon(this.#scheduledTurn);
  }

  readonly #scheduledTurn = (): void => {
    this.#turnScheduled = false;
    this.#turn();
  };

  #turn(): void {
    if (this.#inTurn) return;
    this.#inTurn = true;
    try {
      this.#shrink();
      this.#serve();
      this.carrier.flush();
    } finally {
      this.#inTurn = false;
    }
    if (this.#ready.length > 0 || this.#shrunk.size > 0) this.#scheduleTurn();
  }

  #serve(): void {
    const unfinished: ServedSocket[] = [];
    for (let count = 0; count < this.#ready.length; count += 1) {
      if (count === SERVED_MAX) {
        this.#ready.splice(0, count);
        this.#ready.push(...unfinished);
        return;
      }
      const served = this.#ready[count] as ServedSocket;
      served.queued = false;
      if (served.serve() && !served.queued) {
        served.queued = true;
        unfinished.push(served);
      }
    }
    this.#ready = unfinished;
  }

  /** Reduces the packet size of paths for which a packet was too long. */
  #shrink(): void {
    if (this.#shrunk.size === 0) return;
    const shrunk = [...this.#shrunk];
    this.#shrunk.clear();
    for (const [path, bytes] of shrunk) {
      const now = bytes ?? knownPacketBytes(path);
      if (now === undefined || now >= path.packetBytes) continue;
      path.packetBytes = now;
      for (const served of this.#served.values()) if (served.path === path) served.handleShrunk();
    }
  }

  // Time

  /** Sets the timer, unless it is due earlier. */
  #arm(): void {
    const now = this.#clock.now();
    if (this.#associations === 0 && this.#paths.idleCount === 0) return;
    const busy = now - this.#lastPacket < BUSY_MICROS;
    const due = now + (busy ? BUSY_TICK_MICROS : IDLE_TICK_MICROS);
    if (this.#timer !== undefined) {
      if (this.#timerDue <= due) return;
      this.#timer.cancel();
    } else {
      this.#lastTick = now;
    }
    this.#timerDue = due;
    this.#timer = this.#clock.after(due - now, this.#tick);
  }

  readonly #tick = (): void => {
    const now = this.#clock.now();
    const elapsedMs = Math.floor((now - this.#lastTick) / MICROS_PER_MILLISECOND);
    const last = this.#lastTick + elapsedMs * MICROS_PER_MILLISECOND;
    this.#timer = undefined;
    if (elapsedMs > 0) this.library.advance(elapsedMs);
    this.#dropIdle();
    this.#turn();
    this.#arm();
    this.#lastTick = last;
  };
}

function newPath(
  token: number,
  socket: CarrierSocket,
  peer: Uint8Array,
  peerPort: number,
  tags?: SentTags,
): Path {
  const address = gidAddress(peer);
  return {
    token,
    socket,
    peer: peer.slice(),
    peerPort,
    mailbox: socket.mailbox?.network.find(peer, peerPort),
    address,
    name: socketAddress(address, peerPort),
    trafficClass: 0,
    hopLimit: 0,
    packetBytes: 0,
    tags,
    users: 0,
    idleSince: 0,
  };
}

/** Largest SCTP packet that the route of a path carries. Throws `NetworkError`. */
function routePacketBytes(path: Path): number {
  if (path.socket.mailbox !== undefined) {
    if (path.mailbox !== undefined) return packetBytesOf(path, IP_BYTES_MAX);
    throw new NetworkError('ECONNREFUSED', `no SCTP device has the address ${path.address}`);
  }
  try {
    return packetBytesOf(path, routeMtu(path.socket.address, path.address));
  } catch (error) {
    if (error instanceof SystemCallError) throw new NetworkError(error.code, error.message);
    throw error;
  }
}

/** The same; undefined without a route: the association then times out. */
function knownPacketBytes(path: Path): number | undefined {
  try {
    return routePacketBytes(path);
  } catch (error) {
    if (error instanceof NetworkError) return undefined;
    throw error;
  }
}

/** The same for a given MTU in bytes. */
function packetBytesOf({ address }: Path, mtuBytes: number): number {
  const mtu = Math.min(IP_BYTES_MAX, Math.max(IP_BYTES_MIN, mtuBytes));
  const headers = address.includes(':') ? IPV6_UDP_BYTES : IPV4_UDP_BYTES;
  return Math.floor((mtu - headers) / 4) * 4;
}

let shared: SctpStack | undefined;

/** The stack of this process. Throws `NetworkError` EPROTONOSUPPORT without the library. */
export function sctpStack(clock: HostClock): SctpStack {
  if (shared === undefined) {
    try {
      shared = new SctpStack(usrsctpStack(), clock);
    } catch (error) {
      if (!(error instanceof UsrsctpUnavailable)) throw error;
      throw new NetworkError(error.code, error.message);
    }
  }
  return shared;
}
