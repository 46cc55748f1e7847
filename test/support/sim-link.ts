/**
 * A simulated TCP connection. Bytes arrive late, in order, cut and joined at random; buffers fill
 * up; a FIN ends one direction, a reset both. Callbacks run in later turns, never inside a call.
 */

import type { Transmit } from '#base/transmit';
import { type Link, type LinkUser, NO_USER } from '#daemon/host/links/link';
import { LinkAround } from '#daemon/host/links/link-around';
import { NO_BYTES } from './hex.ts';
import type { Prng } from './prng.ts';
import type { VirtualTime } from './virtual-time.ts';

/** Delays and limits of a wire. */
export interface WireTraits {
  /** Least and most time between two deliveries. */
  readonly delayMin: number;
  readonly delayMax: number;
  /** Maximum bytes in flight in one direction before its sender must wait. */
  readonly bufferBytes: number;
  /** Maximum bytes of one delivery. */
  readonly deliverMax: number;
  readonly emssBytes: number;
}

const READ_BUFFER_BYTES = 262_144;
/** A backlog arrives in at least about 2^5 pieces. */
const BACKLOG_SHIFT = 5;
/** Overwrites a read buffer once the callback has returned. */
const POISON = 0xdb;
/** The read buffer of all links, valid only during a callback, as a host's is. */
const READ_BUFFER = new Uint8Array(READ_BUFFER_BYTES).fill(POISON);
/** TCP gives up on a silent peer after about 15 minutes. */
const USER_TIMEOUT_MICROS = 924_600_000;

/** State that both ends of a wire share. */
export interface Wire {
  readonly time: VirtualTime;
  readonly prng: Prng;
  traits: WireTraits;
  /** Drops everything silently: the path, or the peer's machine, is gone. */
  vanished: boolean;
}

/** One end of a wire. */
export class SimLink implements Link {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  segmentAligned = false;
  user: LinkUser = NO_USER;
  readonly wire: Wire;
  #peer: SimLink | undefined;
  /** Called once, when this end is gone. */
  readonly #onGone: () => void;
  /** Chunks in flight to the peer, oldest first; the first one from `#outStart`. */
  readonly #out: Uint8Array[] = [];
  #outStart = 0;
  #outBytes = 0;
  /** Bytes delivered to the peer, and bytes that it accepted. */
  deliveredBytes = 0;
  writtenBytes = 0;
  /** When the latest byte was sent. */
  movedAt: number;
  /** The caller's bytes that did not fit. */
  #left: Uint8Array = NO_BYTES;
  #leftTaken = 0;
  #finished = false;
  #finDelivered = false;
  #delivering = false;
  /** The user accepts no input: it paused, the link is stalled, or no user is attached. */
  #paused = false;
  #stalledUntil = 0;
  #ready = false;
  /** The user released the link, or it broke. */
  #dead = false;
  #reported = false;
  #resetSent = false;
  #errorCode: string | undefined;

  constructor(
    wire: Wire,
    ends: {
      readonly localAddress: string;
      readonly localPort: number;
      readonly remoteAddress: string;
      readonly remotePort: number;
    },
    onGone: () => void,
  ) {
    this.wire = wire;
    this.localAddress = ends.localAddress;
    this.localPort = ends.localPort;
    this.remoteAddress = ends.remoteAddress;
    this.remotePort = ends.remotePort;
    this.#onGone = onGone;
    this.movedAt = wire.time.now;
  }

  /** Joins the two ends of a wire. */
  static join(one: SimLink, other: SimLink): void {
    one.#peer = other;
    other.#peer = one;
  }

  /** Attaches the user: callbacks start. */
  open(): void {
    this.#ready = true;
    this.#resumePeer();
  }

  /** The other end. */
  get peer(): SimLink | undefined {
    return this.#peer;
  }

  /** True if no byte and no FIN is in flight or will follow. */
  get idle(): boolean {
    return this.#outBytes === 0 && this.#left.length === 0;
  }

  /** The user of the link, or of the outermost link around it. */
  get outerUser(): LinkUser {
    let user = this.user;
    while (user instanceof LinkAround) user = user.user;
    return user;
  }

  get gone(): boolean {
    return this.#reported;
  }

  get dead(): boolean {
    return this.#dead;
  }

  get finDelivered(): boolean {
    return this.#finDelivered;
  }

  // Link

  emssBytes(): number {
    return this.wire.traits.emssBytes;
  }

  get congested(): boolean {
    return this.#left.length > 0;
  }

  get writable(): boolean {
    return this.#left.length === 0 && !this.#finished && !this.#dead;
  }

  write({ bytes }: Transmit): number {
    if (!this.writable) throw new Error('the link is not writable');
    const taken = Math.min(this.#room, bytes.length);
    this.#enqueue(bytes.subarray(0, taken));
    if (taken < bytes.length) {
      this.#left = bytes.subarray(taken);
      this.#leftTaken = 0;
    }
    this.#schedule();
    return taken;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    this.#paused = false;
    this.#resumePeer();
  }

  finish(): void {
    if (this.#finished || this.#dead) return;
    this.#finished = true;
    this.#schedule();
    this.#endWhenBoth();
  }

  close(): void {
    if (this.#dead) return;
    // The kernel resets a connection that is closed with unread input.
    if (this.#peer !== undefined && this.#peer.#outBytes > 0 && this.wire.prng.oneIn(2)) {
      this.#sendReset();
    }
    this.#finished = true;
    this.#left = NO_BYTES;
    this.#die();
    this.#schedule();
  }

  reset(): void {
    if (this.#dead) return;
    this.#finished = true;
    this.#die();
    this.#sendReset();
  }

  // The wire

  /** Stops deliveries to the peer for a while. */
  stall(micros: number): void {
    this.#stalledUntil = Math.max(this.#stalledUntil, this.wire.time.now + micros);
  }

  /** Breaks the connection, as a middlebox does: both ends see a reset. */
  break(): void {
    this.#breakWith('ECONNRESET');
    if (this.#peer !== undefined) this.#peer.#breakWith('ECONNRESET');
  }

  /** Everything is lost from now on, silently. */
  vanish(): void {
    this.wire.vanished = true;
  }

  #resumePeer(): void {
    if (this.#peer !== undefined) this.#peer.#schedule();
  }

  get #room(): number {
    return Math.max(0, this.wire.traits.bufferBytes - this.#outBytes);
  }

  #enqueue(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#out.push(bytes.slice());
    this.#outBytes += bytes.length;
    this.writtenBytes += bytes.length;
    this.movedAt = this.wire.time.now;
  }

  #schedule(): void {
    if (this.#delivering || this.wire.vanished) {
      if (this.wire.vanished) this.#watchVanished();
      return;
    }
    const fin =
      this.#finished && !this.#finDelivered && this.#left.length === 0 && !this.#resetSent;
    if (this.#outBytes === 0 && !fin) return;
    this.#delivering = true;
    const { time, prng, traits } = this.wire;
    const delay = prng.between(traits.delayMin, traits.delayMax);
    time.after(Math.max(delay, this.#stalledUntil - time.now), () => {
      this.#delivering = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    const peer = this.#peer;
    if (peer === undefined || this.wire.vanished) return;
    if (peer.#dead) {
      // The peer is gone: answer with a reset.
      const any = this.#outBytes > 0;
      this.#drop();
      this.#finDelivered ||= this.#finished;
      if (any) this.#breakWith('ECONNRESET');
      return;
    }
    if (!peer.#ready || peer.#paused) return;
    if (this.wire.time.now < this.#stalledUntil) {
      this.#schedule();
      return;
    }
    if (this.#outBytes > 0) this.#deliverBytes(peer);
    else this.#deliverFin(peer);
    this.#takeLeft();
    this.#schedule();
  }

  #deliverBytes(peer: SimLink): void {
    const { prng, traits } = this.wire;
    // Deliver long backlogs in larger pieces: they would dominate a run.
    const piece = Math.max(traits.deliverMax, this.#outBytes >> BACKLOG_SHIFT);
    const most = Math.min(this.#outBytes, piece, READ_BUFFER_BYTES);
    const count = prng.oneIn(3) ? most : prng.between(1, most);
    let filled = 0;
    let gone = 0;
    while (filled < count) {
      const chunk = this.#out[gone];
      if (chunk === undefined) break;
      const part = Math.min(count - filled, chunk.length - this.#outStart);
      READ_BUFFER.set(chunk.subarray(this.#outStart, this.#outStart + part), filled);
      filled += part;
      this.#outStart += part;
      if (this.#outStart === chunk.length) {
        gone += 1;
        this.#outStart = 0;
      }
    }
    // Removing them one by one would move all others, and a fault may have cut single bytes.
    this.#out.splice(0, gone);
    this.#outBytes -= filled;
    this.deliveredBytes += filled;
    const bytes = READ_BUFFER.subarray(0, filled);
    peer.user.handleBytes(bytes);
    bytes.fill(POISON);
  }

  #deliverFin(peer: SimLink): void {
    // A reset is in flight: send no FIN after bytes that it may have overtaken.
    if (this.#resetSent) return;
    if (!this.#finished || this.#finDelivered || this.#left.length > 0) return;
    this.#finDelivered = true;
    peer.user.handlePeerClosed();
    peer.#endWhenBoth();
    this.#endWhenBoth();
  }

  /** There is room for the bytes that did not fit. */
  #takeLeft(): void {
    const left = this.#left;
    if (left.length === 0 || this.#dead) return;
    const part = Math.min(this.#room, left.length - this.#leftTaken);
    this.#enqueue(left.subarray(this.#leftTaken, this.#leftTaken + part));
    this.#leftTaken += part;
    if (this.#leftTaken < left.length) return;
    this.wire.time.soon(() => {
      if (this.#dead || this.#left !== left) return;
      this.#left = NO_BYTES;
      this.movedAt = this.wire.time.now;
      this.user.handleFlushed(left.length);
      this.#schedule();
      this.#endWhenBoth();
    });
  }

  /** Closes the socket once both directions have ended. */
  #endWhenBoth(): void {
    if (this.#dead || !this.#finished || this.#left.length > 0) return;
    if (this.#peer?.finDelivered !== true) return;
    this.#die();
  }

  #sendReset(): void {
    const peer = this.#peer;
    if (peer === undefined || this.wire.vanished) return;
    this.#resetSent = true;
    const { time, prng, traits } = this.wire;
    // A reset overtakes its sender's bytes in flight, or follows them.
    if (prng.oneIn(2)) this.#drop();
    const when = prng.between(traits.delayMin, traits.delayMax);
    time.after(when, () => {
      if (this.wire.vanished) return;
      this.#drop();
      peer.#breakWith('ECONNRESET');
    });
  }

  #breakWith(errorCode: string): void {
    if (this.#dead) return;
    this.#errorCode = errorCode;
    this.#left = NO_BYTES;
    this.#drop();
    this.#die();
  }

  #watchVanished(): void {
    if (this.#delivering || this.#outBytes === 0) return;
    this.#delivering = true;
    this.wire.time.after(USER_TIMEOUT_MICROS, () => this.#breakWith('ETIMEDOUT'));
  }

  #drop(): void {
    this.#out.length = 0;
    this.#outStart = 0;
    this.#outBytes = 0;
  }

  /** Stops reading and writing; calls the user back in a later turn. */
  #die(): void {
    if (this.#dead) return;
    this.#dead = true;
    this.wire.time.soon(() => {
      this.#reported = true;
      this.#onGone();
      this.user.handleClosed(this.#errorCode);
    });
  }
}
