/**
 * One end of a simulated SCTP association: messages arrive whole and once, each after a separate
 * delay, so they overtake each other. Send buffer and receive window are bounded; SHUTDOWN waits
 * for everything sent, ABORT for nothing, and a path that has vanished is noticed late.
 *
 * Callbacks run in later turns, never inside a call. Input waits while reading is paused, the
 * end included.
 */
import {
  type Association,
  type AssociationEnd,
  type AssociationUser,
  MESSAGE_MAX_BYTES,
  type MessageKind,
  type SctpAddress,
} from '#daemon/host/sctp/association';
import type { Prng } from '#test/support/prng';
import type { VirtualTime } from '#test/support/virtual-time';

/** Delays and limits of a path. */
export interface MessageTraits {
  readonly delayMin: number;
  readonly delayMax: number;
  /** Most bytes unacknowledged in one direction before `send` refuses. */
  readonly bufferBytes: number;
  /** Most unread bytes that are acknowledged. */
  readonly windowBytes: number;
  readonly messageMaxBytes: number;
  /** Acknowledgements and room are reported in order with input, as by libusrsctp. */
  readonly eventsInLine: boolean;
}

/** Shared by both ends of an association. */
export interface MessagePath {
  readonly time: VirtualTime;
  readonly prng: Prng;
  traits: MessageTraits;
  /** Drops everything silently: the path, or the peer's machine, is gone. */
  vanished: boolean;
}

const NO_USER: AssociationUser = {
  handleMessage: () => {},
  handleWritable: () => {},
  handleAcknowledged: () => {},
  handlePathChanged: () => {},
  handlePeerShutdown: () => {},
  handleEnded: () => {},
};
const SHUTDOWN: AssociationEnd = { kind: 'shutdown', code: undefined, text: 'SHUTDOWN complete' };
const ABORTED: AssociationEnd = { kind: 'aborted', code: 'ECONNRESET', text: 'ABORT of the peer' };
const LOST: AssociationEnd = { kind: 'lost', code: 'ETIMEDOUT', text: 'the peer is silent' };
/** Overwrites a delivered message once the callback has returned. */
const POISON = 0xdb;
/** No stack sends further ahead of the oldest unacknowledged message. */
const FLIGHT_MAX_MESSAGES = 4096;
/** Timeouts for a silent peer: with data in flight, and with only heartbeats. */
const DATA_TIMEOUT_MICROS = 8_000_000;
const HEARTBEAT_TIMEOUT_MICROS = 120_000_000;

/** Something that the user will read. */
interface Unread {
  readonly bytes: number;
  readonly read: () => void;
}

/** See the module's comment. */
export class SimAssociation implements Association {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  readonly peerAdaptation: number;
  readonly streamCount: number;
  readonly path: MessagePath;
  user: AssociationUser = NO_USER;
  /** Messages sent, and messages that the peer has read. */
  sentCount = 0;
  readCount = 0;
  readonly #onGone: (end: SimAssociation) => void;
  #peer: SimAssociation | undefined = undefined;
  /** Lengths of the messages from the oldest one that is not acknowledged on, by number. */
  readonly #lengths = new Map<number, number>();
  readonly #acknowledged = new Set<number>();
  #oldest = 0;
  #sentBytes = 0;
  #refused = false;
  #stalledUntil = 0;
  /** The user may read: it knows of the association. */
  #open = false;
  #paused = false;
  readonly #unread: Unread[] = [];
  #unreadBytes = 0;
  /** State of SHUTDOWN: requested here; requested by the peer; its chunk, or the answer, is sent. */
  #shutdown: 'no' | 'asked' | 'answering' | 'sent' | 'answered' = 'no';
  /** The association is over, whether or not the user knows. */
  #gone = false;
  #ended = false;

  constructor(
    path: MessagePath,
    ends: { readonly local: SctpAddress; readonly remote: SctpAddress },
    agreed: { readonly peerAdaptation: number; readonly streamCount: number },
    onGone: (end: SimAssociation) => void,
  ) {
    this.path = path;
    this.local = ends.local;
    this.remote = ends.remote;
    this.peerAdaptation = agreed.peerAdaptation;
    this.streamCount = agreed.streamCount;
    this.#onGone = onGone;
  }

  static join(one: SimAssociation, other: SimAssociation): void {
    one.#peer = other;
    other.#peer = one;
  }

  /** The user has been notified of the association: callbacks start. */
  open(): void {
    this.#open = true;
    this.#serve();
  }

  /** The other end. */
  get peer(): SimAssociation | undefined {
    return this.#peer;
  }

  get gone(): boolean {
    return this.#gone;
  }

  get messageMaxBytes(): number {
    return this.path.traits.messageMaxBytes;
  }

  get unacknowledged(): boolean {
    return this.#lengths.size > 0;
  }

  // Association

  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean {
    if (bytes.length > MESSAGE_MAX_BYTES) throw new RangeError('a message has a limit');
    if (streamId >= this.streamCount) throw new RangeError(`there is no stream ${streamId}`);
    if (this.#gone || this.#shutdown !== 'no') return false;
    const full = this.#sentBytes + bytes.length > this.path.traits.bufferBytes;
    const far = this.sentCount - this.#oldest >= FLIGHT_MAX_MESSAGES;
    if (this.unacknowledged && (full || far)) {
      this.#refused = true;
      return false;
    }
    const number = this.sentCount;
    this.sentCount += 1;
    this.#lengths.set(number, bytes.length);
    this.#sentBytes += bytes.length;
    const message = bytes.slice();
    if (this.path.vanished) this.#giveUpIn(DATA_TIMEOUT_MICROS);
    this.#later(() => this.#arrive(number, streamId, kind, message), this.#stalledUntil);
    return true;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.path.time.soon(() => this.#serve());
  }

  shutdown(): void {
    if (this.#gone || this.#shutdown !== 'no') return;
    this.#shutdown = 'asked';
    this.path.time.soon(() => this.#goOnEnding());
  }

  abort(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#unread.length = 0;
    if (this.#gone) return;
    this.#leave();
    this.#toPeer((peer) => peer.#finish(ABORTED));
  }

  // The network

  /** Delays packets of this end by at least `micros`. */
  stall(micros: number): void {
    this.#stalledUntil = Math.max(this.#stalledUntil, this.path.time.now + micros);
  }

  /** A third party forges an ABORT: both ends see one. */
  break(): void {
    for (const end of this.#both) this.path.time.soon(() => end.#finish(ABORTED));
  }

  /** Everything is lost from now on; each end notices some time later. */
  vanish(): void {
    this.path.vanished = true;
    for (const end of this.#both) {
      end.#giveUpIn(end.unacknowledged ? DATA_TIMEOUT_MICROS : HEARTBEAT_TIMEOUT_MICROS);
    }
  }

  /** The path carries shorter messages from now on, or longer ones. */
  changePath(messageMaxBytes: number): void {
    this.path.traits = { ...this.path.traits, messageMaxBytes };
    for (const end of this.#both) {
      this.path.time.soon(() => {
        if (!end.#ended && end.#open) end.user.handlePathChanged();
      });
    }
  }

  get #both(): readonly SimAssociation[] {
    return this.#peer === undefined ? [this] : [this, this.#peer];
  }

  #toPeer(then: (peer: SimAssociation) => void): void {
    this.#later(() => {
      const peer = this.#peer;
      if (peer !== undefined) then(peer);
    });
  }

  /** Runs `then` when a packet sent now would arrive. */
  #later(then: () => void, notBefore = 0): void {
    const { time, prng, traits } = this.path;
    const delay = prng.between(traits.delayMin, traits.delayMax);
    time.after(Math.max(delay, notBefore - time.now), () => {
      if (!this.path.vanished) then();
    });
  }

  #giveUpIn(micros: number): void {
    this.path.time.after(micros, () => this.#finish(LOST));
  }

  #arrive(number: number, streamId: number, kind: MessageKind, message: Uint8Array): void {
    const peer = this.#peer;
    if (peer === undefined) return;
    if (peer.#gone) {
      // The association is unknown there, and the answer says so.
      this.#later(() => this.#finish(ABORTED));
      return;
    }
    const held = peer.#unreadBytes + message.length > this.path.traits.windowBytes;
    const acknowledge = (): void => this.#later(() => this.#acknowledge(number));
    if (!held) acknowledge();
    peer.#queue(message.length, () => {
      this.readCount += 1;
      if (held) acknowledge();
      peer.user.handleMessage(streamId, kind.payloadProtocol, kind.unordered, message);
      message.fill(POISON);
    });
  }

  #acknowledge(number: number): void {
    if (this.#gone) return;
    this.#acknowledged.add(number);
    while (this.#acknowledged.delete(this.#oldest)) {
      this.#sentBytes -= this.#lengths.get(this.#oldest) ?? 0;
      this.#lengths.delete(this.#oldest);
      this.#oldest += 1;
    }
    this.#signal();
    this.#goOnEnding();
  }

  /** Reports acknowledgements and room to the user. */
  #signal(): void {
    const notify = (): void => {
      if (!this.unacknowledged) this.user.handleAcknowledged();
      if (!this.#refused || this.#gone || this.#ended) return;
      if (this.unacknowledged && this.#sentBytes >= this.path.traits.bufferBytes) return;
      this.#refused = false;
      this.user.handleWritable();
    };
    if (this.path.traits.eventsInLine || !this.#open) this.#queue(0, notify);
    else if (!this.#ended) notify();
  }

  // Reading

  #queue(bytes: number, read: () => void): void {
    this.#unread.push({ bytes, read });
    this.#unreadBytes += bytes;
    this.#serve();
  }

  #serve(): void {
    while (this.#open && !this.#paused && !this.#ended) {
      const next = this.#unread.shift();
      if (next === undefined) return;
      this.#unreadBytes -= next.bytes;
      next.read();
    }
  }

  // The end

  /** The next step of SHUTDOWN, once everything sent is acknowledged. */
  #goOnEnding(): void {
    if (this.#gone || this.unacknowledged) return;
    if (this.#shutdown === 'asked') {
      this.#shutdown = 'sent';
      this.#toPeer((peer) => peer.#receiveShutdown());
    } else if (this.#shutdown === 'answering') {
      this.#shutdown = 'answered';
      this.#toPeer((peer) => peer.#receiveShutdownAck());
    }
  }

  #receiveShutdown(): void {
    if (this.#gone) return;
    if (this.#shutdown === 'no') this.#queue(0, () => this.user.handlePeerShutdown());
    if (this.#shutdown !== 'answered') this.#shutdown = 'answering';
    this.#goOnEnding();
  }

  #receiveShutdownAck(): void {
    if (this.#gone) return;
    this.#toPeer((peer) => peer.#finish(SHUTDOWN));
    this.#finish(SHUTDOWN);
  }

  #finish(end: AssociationEnd): void {
    if (this.#gone) return;
    this.#leave();
    // Data before an ABORT may be lost with it.
    if (end !== SHUTDOWN && this.path.prng.oneIn(2)) this.#unread.length = 0;
    this.#queue(0, () => {
      this.#ended = true;
      this.#unread.length = 0;
      this.user.handleEnded(end);
    });
  }

  #leave(): void {
    this.#gone = true;
    this.#onGone(this);
  }
}
