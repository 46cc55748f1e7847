/** Paths: one of our UDP sockets and a peer's address and port, identified to the library by a token. */
import type { UdpDestination } from '#native-bridge/libc/datagram-batch';
import type { DescriptorWatch } from '#native-bridge/libc/watched-descriptor';
import type { Mailbox } from './memory-datagrams.ts';
import type { SentTags } from './sent-tags.ts';

const GID_BYTES = 16;
/** Limit of idle paths. Each INIT makes one, and anyone can send an INIT. */
const IDLE_MAX = 1024;
/** How long they are kept: a COOKIE ECHO that arrives later after its INIT is stale (RFC 9260 section 16). */
const IDLE_MICROS = 60_000_000;

/** A bound UDP socket, of the kernel or of an isolated host. */
export interface CarrierSocket {
  /** The kernel's descriptor; -1 with a `mailbox`. */
  readonly fd: number;
  readonly mailbox: Mailbox | undefined;
  readonly address: string;
  readonly port: number;
  /** Identifies the socket. */
  readonly number: number;
  /** As the kernel counts it, including its overhead. */
  readonly receiveBufferBytes: number;
  readonly watch: DescriptorWatch | undefined;
  /** If true, another file may have the descriptor. */
  closed: boolean;
}

export interface Path extends UdpDestination {
  readonly token: number;
  readonly socket: CarrierSocket;
  /** The peer's address as 16 bytes, IPv4 after ::ffff, and its UDP port. */
  readonly peer: Uint8Array;
  readonly peerPort: number;
  /** The destination of its packets, if they go through memory. */
  readonly mailbox: Mailbox | undefined;
  /** The peer's address as text. */
  readonly address: string;
  /** Largest SCTP packet in bytes; 0 until the path is measured. */
  packetBytes: number;
  /** Undefined for a path that sends one answer. */
  readonly tags: SentTags | undefined;
  /** Number of associations and attempts. */
  users: number;
  /** When it became idle, in microseconds. */
  idleSince: number;
}

export class Paths {
  readonly #byToken = new Map<number, Path>();
  /** By a hash of socket and peer. */
  readonly #byPeer = new Map<number, Path[]>();
  /** Longest idle first. */
  readonly #idle = new Set<Path>();
  #nextToken = 1;

  /** A new token. */
  takeToken(): number {
    const token = this.#nextToken;
    this.#nextToken += 1;
    return token;
  }

  get idleCount(): number {
    return this.#idle.size;
  }

  of(token: number): Path | undefined {
    return this.#byToken.get(token);
  }

  find(socket: CarrierSocket, peer: Uint8Array, peerPort: number): Path | undefined {
    const found = this.#byPeer.get(hashOf(socket.number, peer, peerPort));
    if (found === undefined) return undefined;
    for (const path of found) {
      if (path.socket === socket && path.peerPort === peerPort && isSame(path.peer, peer)) {
        return path;
      }
    }
    return undefined;
  }

  add(path: Path): void {
    this.#byToken.set(path.token, path);
    this.#idle.add(path);
    const hash = hashOf(path.socket.number, path.peer, path.peerPort);
    const same = this.#byPeer.get(hash);
    if (same === undefined) this.#byPeer.set(hash, [path]);
    else same.push(path);
  }

  /** Adds an association or attempt to the path. */
  hold(path: Path): void {
    path.users += 1;
    this.#idle.delete(path);
  }

  release(path: Path, now: number): void {
    path.users -= 1;
    if (path.users > 0 || !this.#byToken.has(path.token)) return;
    path.idleSince = now;
    this.#idle.add(path);
  }

  /** Removes a path that was idle for too long, or the longest idle of too many. */
  takeIdle(now: number): Path | undefined {
    for (const path of this.#idle) {
      const due = this.#idle.size > IDLE_MAX || now - path.idleSince >= IDLE_MICROS;
      if (!due) return undefined;
      this.#remove(path);
      return path;
    }
    return undefined;
  }

  /** Removes the paths of a socket. */
  takeAllOf(socket: CarrierSocket): Path[] {
    const taken = [...this.#byToken.values()].filter((path) => path.socket === socket);
    for (const path of taken) this.#remove(path);
    return taken;
  }

  #remove(path: Path): void {
    this.#byToken.delete(path.token);
    this.#idle.delete(path);
    const hash = hashOf(path.socket.number, path.peer, path.peerPort);
    const rest = (this.#byPeer.get(hash) ?? []).filter((other) => other !== path);
    if (rest.length === 0) this.#byPeer.delete(hash);
    else this.#byPeer.set(hash, rest);
  }
}

function hashOf(socketNumber: number, peer: Uint8Array, port: number): number {
  let hash = Math.imul(socketNumber, 0x9e37_79b1) ^ port;
  for (let index = 0; index < GID_BYTES; index += 1) {
    hash = Math.imul(hash ^ (peer[index] as number), 0x0100_0193);
  }
  return hash >>> 0;
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  for (let index = 0; index < GID_BYTES; index += 1) if (one[index] !== other[index]) return false;
  return true;
}
