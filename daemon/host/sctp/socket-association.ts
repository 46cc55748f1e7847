/** An association over a socket, libusrsctp's or the kernel's, from its opening to its end. */
import { errnoName } from '#native-bridge/libc/libc';
import {
  type AssociationSocket,
  ReceiveArea,
  type SctpEvent,
} from '#native-bridge/libc/sctp-event';
import {
  type Association,
  type AssociationEnd,
  type AssociationUser,
  MESSAGE_MAX_BYTES,
  type MessageKind,
  type SctpAddress,
} from './association.ts';
import type { Opening } from './opening.ts';

const EAGAIN = -11;
/** Bytes that one association receives in a turn. */
const TURN_BYTES = 1_048_576;
const TURN_MESSAGES = 512;

/**
 * The receive buffer of all associations, for one message at a time. Its last byte shows that a message is
 * too long.
 */
let sharedArea: ReceiveArea | undefined;

/** The ends of an association. */
export interface AssociationEnds {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
}

/** Nothing is delivered without a user. */
export const NO_USER: AssociationUser = {
  handleMessage: () => {},
  handleWritable: () => {},
  handleAcknowledged: () => {},
  handlePathChanged: () => {},
  handlePeerShutdown: () => {},
  handleEnded: () => {},
};

/**
 * - opening: until the handshake is complete.
 * - rising: until the peer's adaptation indication is known, right after the handshake.
 * - up: until the end.
 */
type State = 'opening' | 'rising' | 'up' | 'ended';

/** Transports derive classes that decide when it is served. */
export abstract class SocketAssociation implements Association {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  user: AssociationUser = NO_USER;
  peerAdaptation: number | undefined;
  streamCount = 0;
  messageMaxBytes = 0;
  unacknowledged = false;
  readonly #socket: AssociationSocket;
  readonly #opening: Opening;
  #state: State = 'opening';
  #paused = false;
  /** `send` failed, and the user waits for room. */
  #blocked = false;
  /** Parts of an incomplete message. */
  #part: Uint8Array | undefined;

  constructor(socket: AssociationSocket, ends: AssociationEnds, opening: Opening) {
    this.#socket = socket;
    this.#opening = opening;
    this.local = ends.local;
    this.remote = ends.remote;
  }

  // Implemented by transports

  /** Requests a call of `serve` in a later turn. */
  protected abstract requestTurn(): void;
  /** The association has ended, and its socket is about to be closed. */
  protected abstract handleLeaving(): void;
  /** Its socket is closed. */
  protected abstract handleClosed(): void;
  /** Length of the longest message that the path carries unfragmented at present. */
  protected abstract pathMessageBytes(): number;

  // Calls of its user

  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean {
    if (this.#state !== 'up') return false;
    const sent = this.#socket.send(streamId, kind, bytes);
    if (sent >= 0) {
      this.unacknowledged = true;
      return true;
    }
    // Any other error ends the association; the library reports it next.
    this.#blocked = true;
    if (sent !== EAGAIN) this.requestTurn();
    return false;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#state !== 'ended') this.requestTurn();
  }

  shutdown(): void {
    if (this.#state === 'ended') return;
    this.#socket.shutdown();
    this.requestTurn();
  }

  abort(): void {
    if (!this.#leave()) return;
    this.#socket.abort();
    this.handleClosed();
  }

  // Calls of transports

  serve(): boolean {
    let bytes = 0;
    for (let count = 0; count < TURN_MESSAGES && bytes < TURN_BYTES; count += 1) {
      // A user may stop reading until its pending output is sent.
      const length = this.#paused || this.isOver ? -1 : this.#receive();
      if (length < 0) {
        this.#signalRoom();
        return false;
      }
      bytes += length;
    }
    this.#signalRoom();
    return true;
  }

  /** The path may have become narrower. */
  protected measurePath(): void {
    if (this.isOver) return;
    this.messageMaxBytes = this.pathMessageBytes();
    if (this.#state === 'up') this.user.handlePathChanged();
  }

  protected get isOpening(): boolean {
    return this.#state === 'opening';
  }

  protected get isUp(): boolean {
    return this.#state === 'up';
  }

  /** Reading is paused until `resumeReading`. */
  protected get isPaused(): boolean {
    return this.#paused;
  }

  /** The user waits for room. */
  protected get isBlocked(): boolean {
    return this.#blocked;
  }

  /** Receives once. Returns the length, or -1 if there is nothing or the association has ended. */
  #receive(): number {
    sharedArea ??= new ReceiveArea(MESSAGE_MAX_BYTES + 1);
    const area = sharedArea;
    const part = this.#part;
    if (part !== undefined) area.bytes.set(part);
    const before = part?.length ?? 0;
    const length = this.#socket.receive(area, before);
    if (length === EAGAIN) {
      // Nothing follows the handshake, so the peer has no indication.
      if (this.#state === 'rising') this.#rise();
      return -1;
    }
    if (length <= 0) {
      this.#end(endOf(-length));
      return -1;
    }
    // A notification may arrive between the parts of a message; it was received after them.
    if (this.#socket.received.isNotification) this.#notify(area, before, length);
    else this.#take(area, before + length);
    return length;
  }

  #take({ bytes }: ReceiveArea, length: number): void {
    if (this.#state === 'rising') this.#rise();
    if (this.#state !== 'up') return;
    if (length > MESSAGE_MAX_BYTES) {
      const text = `the peer sent a message of more than ${MESSAGE_MAX_BYTES} bytes`;
      this.abortFor({ kind: 'invalid', code: 'EMSGSIZE', text });
      return;
    }
    if (!this.#socket.received.isEnd) {
      this.#part = bytes.slice(0, length);
      return;
    }
    this.#part = undefined;
    const { streamId, payloadProtocol, unordered } = this.#socket.received;
    this.user.handleMessage(streamId, payloadProtocol, unordered, bytes.subarray(0, length));
  }

  #notify(area: ReceiveArea, start: number, length: number): void {
    if (start > 0) area.bytes.copyWithin(0, start, start + length);
    const event = this.#socket.readEvent(area, length);
    if (event.type === 'association') {
      this.#handleChange(event);
    } else if (event.type === 'adaptation') {
      this.peerAdaptation = event.value;
      if (this.#state === 'rising') this.#rise();
    } else if (event.type === 'partial-delivery') {
      this.#part = undefined;
    } else if (event.type === 'shutdown') {
      if (this.#state === 'up') this.user.handlePeerShutdown();
    } else if (event.type === 'dry') {
      this.#handleDry();
    }
  }

  #handleDry(): void {
    // The event may be older than the last send.
    if (this.#state !== 'up' || !this.unacknowledged || this.#socket.unacknowledged > 0) return;
    this.unacknowledged = false;
    this.user.handleAcknowledged();
  }

  #handleChange(event: SctpEvent & { readonly type: 'association' }): void {
    if (event.state === 'up') {
      this.streamCount = Math.min(event.streamsIn, event.streamsOut);
      this.#state = 'rising';
    } else if (event.state === 'shutdown-complete') {
      this.#end({ kind: 'shutdown', code: undefined, text: 'the association was shut down' });
    } else if (event.state === 'restart') {
      // The peer's new association has no DDP streams of the old one.
      const text = 'the peer restarted the association';
      this.abortFor({ kind: 'lost', code: 'ECONNRESET', text });
    } else if (event.aborted) {
      const code = this.#state === 'opening' ? 'ECONNREFUSED' : 'ECONNRESET';
      this.#end({ kind: 'aborted', code, text: 'the peer sent an ABORT' });
    } else {
      this.#end({ kind: 'lost', code: 'ETIMEDOUT', text: 'no response from the peer' });
    }
  }

  #rise(): void {
    this.#state = 'up';
    this.messageMaxBytes = this.pathMessageBytes();
    this.#opening.handleUp(this);
  }

  #signalRoom(): void {
    if (!this.#blocked || this.#state !== 'up' || !this.#socket.writable) return;
    this.#blocked = false;
    this.user.handleWritable();
  }

  /** Check also after a call to the user, who may abort. */
  protected get isOver(): boolean {
    return this.#state === 'ended';
  }

  /** Aborts, and reports this end to the user. */
  protected abortFor(end: AssociationEnd): void {
    const { user } = this;
    const opening = this.#state !== 'up';
    this.abort();
    this.#notifyEnd(end, opening, user);
  }

  #end(end: AssociationEnd): void {
    const { user } = this;
    const opening = this.#state !== 'up';
    if (!this.#leave()) return;
    this.#socket.close();
    this.handleClosed();
    this.#notifyEnd(end, opening, user);
  }

  #notifyEnd(end: AssociationEnd, opening: boolean, user: AssociationUser): void {
    if (opening) this.#opening.handleFailed(end.code ?? 'ECONNREFUSED', end.text);
    else user.handleEnded(end);
  }

  /** False if it had ended before. */
  #leave(): boolean {
    if (this.isOver) return false;
    this.#state = 'ended';
    this.#part = undefined;
    this.user = NO_USER;
    this.handleLeaving();
    return true;
  }
}

/** Converts the errno of a failed `receive`; 0: the peer has shut down. */
function endOf(errno: number): AssociationEnd {
  if (errno === 0) {
    return { kind: 'shutdown', code: undefined, text: 'the association was shut down' };
  }
  const code = errnoName(errno);
  return { kind: 'lost', code, text: `the association was lost (${code})` };
}
