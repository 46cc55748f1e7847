/**
 * One end of a connection between two devices of one host: bytes go from one end to the other
 * without a socket, in order, as TCP on loopback carries them.
 *
 * A small write is copied and accepted at once, as the kernel does; of a large one nothing is
 * accepted, the peer reads it where it is, and `handleFlushed` follows. So each direction holds one
 * buffer and one write at most. A peer that does not read leaves both where they are.
 *
 * Nothing is delivered from inside a call: the carrier of the network calls `deliver` in a later
 * turn.
 */
import { assert } from '#base/assert';
import { type Link, type LinkUser, NO_USER } from './link.ts';
import { BUFFER_BYTES, type CarriedLink, type MemoryCarrier } from './memory-carrier.ts';

/** What one segment holds on the kernel's loopback: FPDUs are as long as there. */
const EMSS_BYTES = 65_483;

const NO_BYTES = new Uint8Array(0);

/** Address and port of both ends, seen from one. */
export interface LinkEnds {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

export class MemoryLink implements Link, CarriedLink {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly faithful = true;
  /** Means nothing here: no byte becomes a segment. */
  segmentAligned = false;
  user: LinkUser = NO_USER;
  queued = false;
  readonly #carrier: MemoryCarrier;
  /** Called once, when this end is gone. */
  readonly #onGone: () => void;
  /** The other end; until `pair` joins them, this one. */
  #peer: MemoryLink = this;
  /** Accepted bytes for the peer: the first `#copiedEnd` of a buffer of the carrier. */
  #copied: Uint8Array | undefined;
  #copiedEnd = 0;
  /** They were written unsealed: bytes that a fault has changed are never among them. */
  #copiedUnsealed = false;
  /** The caller's bytes that were not accepted. */
  #left: Uint8Array = NO_BYTES;
  #leftUnsealed = false;
  /** The user is there, and reads. */
  #open = false;
  #paused = false;
  /** Our FIN is sent; the peer has it. */
  #finished = false;
  #finDelivered = false;
  /** The user has released the link, or it broke. */
  #dead = false;
  /** The peer gets a reset. */
  #resets = false;
  #errorCode: string | undefined;

  /** For `pair`. */
  constructor(ends: LinkEnds, carrier: MemoryCarrier, onGone: () => void) {
    this.localAddress = ends.localAddress;
    this.localPort = ends.localPort;
    this.remoteAddress = ends.remoteAddress;
    this.remotePort = ends.remotePort;
    this.#carrier = carrier;
    this.#onGone = onGone;
  }

  /** The dialed and the accepted end of a connection. `onGone` is called for each that is gone. */
  static pair(
    dialed: LinkEnds,
    carrier: MemoryCarrier,
    onGone: () => void,
  ): { readonly dialed: MemoryLink; readonly accepted: MemoryLink } {
    const { localAddress, localPort, remoteAddress, remotePort } = dialed;
    const facing: LinkEnds = {
      localAddress: remoteAddress,
      localPort: remotePort,
      remoteAddress: localAddress,
      remotePort: localPort,
    };
    const one = new MemoryLink(dialed, carrier, onGone);
    const other = new MemoryLink(facing, carrier, onGone);
    one.#peer = other;
    other.#peer = one;
    return { dialed: one, accepted: other };
  }

  /** The user is set: input may come. */
  open(): void {
    this.#open = true;
    this.#peer.#schedule();
  }

  /** True once the link was released, or broke. */
  get dead(): boolean {
    return this.#dead;
  }

  // Link

  emssBytes(): number {
    return EMSS_BYTES;
  }

  get congested(): boolean {
    return this.#left.length > 0;
  }

  get writable(): boolean {
    return this.#left.length === 0 && !this.#finished && !this.#dead;
  }

  write(bytes: Uint8Array, _payloadProtocol = 0, _followed = false, unsealed = false): number {
    if (!this.writable) throw new Error('the link is not writable');
    this.#schedule();
    if (this.#copy(bytes, unsealed)) return bytes.length;
    this.#left = bytes;
    this.#leftUnsealed = unsealed;
    return 0;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    this.#paused = false;
    this.#peer.#schedule();
  }

  finish(): void {
    if (this.#finished || this.#dead) return;
    this.#finished = true;
    this.#schedule();
    this.#endWhenBoth();
  }

  close(): void {
    if (this.#dead) return;
    // As the kernel does with unread input.
    if (this.#peer.#holdsBytes) {
      this.reset();
      return;
    }
    this.#finished = true;
    this.#left = NO_BYTES;
    this.#die();
    this.#schedule();
  }

  reset(): void {
    if (this.#dead) return;
    this.#finished = true;
    this.#resets = true;
    this.#drop();
    this.#die();
    this.#schedule();
  }

  assertInvariants(): void {
    assert((this.#copied === undefined) === (this.#copiedEnd === 0), 'a buffer holds bytes');
    assert(!this.#dead || this.#left.length === 0, 'a link that is gone borrows nothing');
    const waits = this.#holdsBytes && this.#peer.reads;
    assert(!waits || this.queued, 'bytes for a peer that reads are on their way');
  }

  // From the carrier

  /** True while input is delivered. */
  get reads(): boolean {
    return this.#open && !this.#paused && !this.#dead;
  }

  /**
   * Gives the peer what it may have: bytes, then the end of the connection. Returns how many bytes
   * the peer took.
   */
  deliver(): number {
    const peer = this.#peer;
    if (this.#resets) {
      peer.#breakWith('ECONNRESET');
      return 0;
    }
    if (peer.#dead) {
      // Bytes for a socket that is closed are answered with a reset.
      if (this.#holdsBytes) {
        this.#drop();
        this.#breakWith('ECONNRESET');
      }
      return 0;
    }
    let bytes = this.#deliverCopied(peer);
    bytes += this.#deliverLeft(peer);
    this.#deliverEnd(peer);
    return bytes;
  }

  // Steps

  get #holdsBytes(): boolean {
    return this.#copied !== undefined || this.#left.length > 0;
  }

  #schedule(): void {
    this.#carrier.schedule(this);
  }

  /** True if there was room behind bytes of the same kind. */
  #copy(bytes: Uint8Array, unsealed: boolean): boolean {
    const empty = this.#copied === undefined;
    const room = empty ? BUFFER_BYTES : BUFFER_BYTES - this.#copiedEnd;
    if (bytes.length > room || (!empty && this.#copiedUnsealed !== unsealed)) return false;
    this.#copied ??= this.#carrier.acquire();
    this.#copiedUnsealed = unsealed;
    this.#copied.set(bytes, this.#copiedEnd);
    this.#copiedEnd += bytes.length;
    return true;
  }

  #deliverCopied(peer: MemoryLink): number {
    const buffer = this.#copied;
    if (buffer === undefined || !peer.reads) return 0;
    const bytes = buffer.subarray(0, this.#copiedEnd);
    // What is written meanwhile goes to another buffer.
    this.#copied = undefined;
    this.#copiedEnd = 0;
    this.#pass(bytes, this.#copiedUnsealed, peer.user);
    this.#carrier.release(buffer);
    return bytes.length;
  }

  /** Checksums are left out only of what the peer's stream alone sees. */
  #pass(bytes: Uint8Array, unsealed: boolean, receiver: LinkUser): void {
    const bare = unsealed && receiver.inspectsInput !== true;
    if (unsealed && !bare) this.user.seal?.(bytes);
    receiver.handleBytes(bytes, 0, bare);
  }

  #deliverLeft(peer: MemoryLink): number {
    const left = this.#left;
    // What the peer's answer made the user write was copied first.
    if (left.length === 0 || this.#copied !== undefined || !peer.reads) return 0;
    this.#pass(left, this.#leftUnsealed, peer.user);
    // The call may have ended the link.
    if (this.#left !== left) return left.length;
    this.#left = NO_BYTES;
    this.user.handleFlushed(left.length);
    return left.length;
  }

  #deliverEnd(peer: MemoryLink): void {
    if (!this.#finished || this.#finDelivered || this.#holdsBytes || this.#resets) return;
    if (!peer.reads) return;
    this.#finDelivered = true;
    peer.user.handlePeerClosed();
    peer.#endWhenBoth();
    this.#endWhenBoth();
  }

  /** Both directions have ended. */
  #endWhenBoth(): void {
    if (this.#dead || !this.#finished || this.#left.length > 0) return;
    if (this.#peer.#finDelivered) this.#die();
  }

  #breakWith(errorCode: string): void {
    if (this.#dead) return;
    this.#errorCode = errorCode;
    this.#drop();
    this.#die();
  }

  /** Everything for the peer is lost. */
  #drop(): void {
    this.#left = NO_BYTES;
    if (this.#copied === undefined) return;
    this.#carrier.release(this.#copied);
    this.#copied = undefined;
    this.#copiedEnd = 0;
  }

  /** The user hears of it in a later turn. */
  #die(): void {
    this.#dead = true;
    // The peer may have sent what will not be read any more.
    this.#peer.#schedule();
    this.#carrier.soon(() => {
      this.#onGone();
      this.user.handleClosed(this.#errorCode);
    });
  }
}
