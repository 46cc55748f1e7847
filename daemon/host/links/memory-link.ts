/**
 * One end of a connection between two devices of one host: bytes go from one end to the other without a
 * socket, in order, as TCP on loopback carries them.
 *
 * A small write is copied and accepted at once, as the kernel does. A large one is not accepted: the peer
 * reads it in place, and `handleFlushed` follows. So each direction holds at most one buffer and one write.
 * While the peer does not read, both stay in place.
 *
 * What stands for lent payload stays in place as well, so that the peer's memory can take it from where it is.
 *
 * Nothing is delivered from inside a call: the carrier of the network calls `deliver` in a later turn.
 */
import { assert } from '#base/assert';
import { type Delivery, type LentBytes, PLAIN, type Transmit } from '#base/transmit';
import type { TapLinkEnds } from '#contract/protocol/tap-records';
import { type Link, type LinkUser, NO_USER } from './link.ts';
import { BUFFER_BYTES, type CarriedLink, type MemoryCarrier } from './memory-carrier.ts';

/** Segment size of the kernel's loopback, so that FPDUs have the same length. */
const EMSS_BYTES = 65_483;

const NO_BYTES = new Uint8Array(0);
const UNSEALED: Delivery = { payloadProtocol: 0, unsealed: true, lent: undefined };

export class MemoryLink implements Link, CarriedLink {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly faithful = true;
  /** No effect: there are no segments. */
  segmentAligned = false;
  user: LinkUser = NO_USER;
  queued = false;
  readonly #carrier: MemoryCarrier;
  /** Called once, when this end has closed. */
  readonly #onGone: () => void;
  /** The other end; this one until `pair` joins them. */
  #peer: MemoryLink = this;
  /** Accepted bytes for the peer: the first `#copiedEnd` bytes of a carrier's buffer. */
  #copied: Uint8Array | undefined;
  #copiedEnd = 0;
  /** They were written unsealed. Bytes that a fault changed are never among them. */
  #copiedUnsealed = false;
  /** The caller's bytes that were not accepted. */
  #left: Uint8Array = NO_BYTES;
  #leftUnsealed = false;
  #leftLent: LentBytes | undefined;
  /** `deliver` has to be called once lent payload is copied. */
  #awaitsCopies = false;
  /** The user is set, and reads. */
  #open = false;
  #paused = false;
  /** We sent our FIN; the peer received it. */
  #finished = false;
  #finDelivered = false;
  /** The user has released the link, or it was reset. */
  #dead = false;
  /** The peer gets a reset. */
  #resets = false;
  #errorCode: string | undefined;

  /** Used by `pair`. */
  constructor(ends: TapLinkEnds, carrier: MemoryCarrier, onGone: () => void) {
    this.localAddress = ends.localAddress;
    this.localPort = ends.localPort;
    this.remoteAddress = ends.remoteAddress;
    this.remotePort = ends.remotePort;
    this.#carrier = carrier;
    this.#onGone = onGone;
  }

  /** Makes the dialed and the accepted end of a connection. `onGone` is called for each end that closes. */
  static pair(
    dialed: TapLinkEnds,
    carrier: MemoryCarrier,
    onGone: () => void,
  ): { readonly dialed: MemoryLink; readonly accepted: MemoryLink } {
    const { localAddress, localPort, remoteAddress, remotePort } = dialed;
    const facing: TapLinkEnds = {
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

  /** The user is set: input may be delivered. */
  open(): void {
    this.#open = true;
    this.#peer.#schedule();
  }

  /** True once the link was released or reset. */
  get dead(): boolean {
    return this.#dead;
  }

  // Link

  emssBytes(): number {
    return EMSS_BYTES;
  }

  /** False while a capture or fault looks at either end. */
  get unsegmented(): boolean {
    return this.user.inspectsInput !== true && this.#peer.user.inspectsInput !== true;
  }

  get lends(): boolean {
    const { user } = this.#peer;
    return this.unsegmented && user.takesLent === true;
  }

  get congested(): boolean {
    return this.#left.length > 0;
  }

  get writable(): boolean {
    return this.#left.length === 0 && !this.#finished && !this.#dead;
  }

  write({ bytes, unsealed, lent }: Transmit): number {
    if (!this.writable) throw new Error('the link is not writable');
    this.#schedule();
    if (lent === undefined && this.#copy(bytes, unsealed)) return bytes.length;
    this.#left = bytes;
    this.#leftLent = lent;
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
    this.#leftLent = undefined;
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
    assert((this.#copied === undefined) === (this.#copiedEnd === 0), 'empty buffer');
    assert(!this.#dead || this.#left.length === 0, 'closed link borrows bytes');
    const waits = this.#holdsBytes && this.#peer.reads && !this.#awaitsCopies;
    assert(!waits || this.queued, 'undelivered bytes without a scheduled delivery');
  }

  // From the carrier

  /** True if input may be delivered. */
  get reads(): boolean {
    return this.#open && !this.#paused && !this.#dead;
  }

  deliver(): number {
    const peer = this.#peer;
    if (this.#resets) {
      peer.#breakWith('ECONNRESET');
      return 0;
    }
    if (peer.#dead) {
      // Bytes for a closed socket are answered with a reset.
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

  /** True if there was room after bytes of the same kind. */
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
    // Writes made by the receiver go to another buffer.
    this.#copied = undefined;
    this.#copiedEnd = 0;
    this.#pass(bytes, this.#copiedUnsealed, peer.user);
    this.#carrier.release(buffer);
    return bytes.length;
  }

  /** Leaves checksums out only if just the peer's stream reads the bytes. */
  #pass(bytes: Uint8Array, unsealed: boolean, receiver: LinkUser): void {
    const bare = unsealed && receiver.inspectsInput !== true;
    if (unsealed && !bare) this.user.seal?.(bytes);
    receiver.handleBytes(bytes, bare ? UNSEALED : PLAIN);
  }

  #deliverLeft(peer: MemoryLink): number {
    const left = this.#left;
    // Bytes that the receiver wrote in answer were copied first.
    if (left.length === 0 || this.#copied !== undefined || !peer.reads) return 0;
    if (this.#leftLent === undefined) this.#pass(left, this.#leftUnsealed, peer.user);
    else if (!this.#passLent(left, this.#leftLent, peer.user)) return 0;
    // The call may have ended the link.
    if (this.#left !== left) return left.length;
    this.#left = NO_BYTES;
    this.#leftLent = undefined;
    this.user.handleFlushed(left.length);
    return left.length;
  }

  /** Returns false if it cannot be delivered now. */
  #passLent(left: Uint8Array, lent: LentBytes, receiver: LinkUser): boolean {
    const held = receiver.heldInput?.length ?? 0;
    if (!this.lends || held > 0) lent.recall();
    if (lent.failed) {
      this.reset();
      return false;
    }
    if (lent.waits) {
      this.#awaitCopies(lent);
      return false;
    }
    const bare = this.#leftUnsealed && receiver.inspectsInput !== true;
    if (this.#leftUnsealed && !bare) this.user.seal?.(left);
    receiver.handleBytes(left, { payloadProtocol: 0, unsealed: bare, lent });
    return true;
  }

  #awaitCopies(lent: LentBytes): void {
    if (this.#awaitsCopies) return;
    this.#awaitsCopies = true;
    lent.whenCopied(() => {
      this.#awaitsCopies = false;
      this.#schedule();
    });
  }

  #deliverEnd(peer: MemoryLink): void {
    if (!this.#finished || this.#finDelivered || this.#holdsBytes || this.#resets) return;
    if (!peer.reads) return;
    this.#finDelivered = true;
    peer.user.handlePeerClosed();
    peer.#endWhenBoth();
    this.#endWhenBoth();
  }

  /** Ends the link if both directions have ended. */
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

  /** Drops everything for the peer. */
  #drop(): void {
    this.#left = NO_BYTES;
    this.#leftLent = undefined;
    if (this.#copied === undefined) return;
    this.#carrier.release(this.#copied);
    this.#copied = undefined;
    this.#copiedEnd = 0;
  }

  /** Notifies the user in a later turn. */
  #die(): void {
    this.#dead = true;
    // The peer may have sent bytes that will never be read.
    this.#peer.#schedule();
    this.#carrier.soon(() => {
      this.#onGone();
      this.user.handleClosed(this.#errorCode);
    });
  }
}
