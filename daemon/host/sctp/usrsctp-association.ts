/** An association of the stack: a socket of libusrsctp, from its opening to its end. */
import { errnoName } from '../../../native-bridge/libc/libc.ts';
import { AssociationState } from '../../../native-bridge/usrsctp/layouts.ts';
import {
  ReceiveArea,
  readNotification,
  received,
  type UsrsctpEvent,
  type UsrsctpSocket,
  unfragmentedBytes,
} from '../../../native-bridge/usrsctp/socket.ts';
import { HEARTBEAT_MS } from '../../../native-bridge/usrsctp/stack.ts';
import type { Alarm } from '../links/network.ts';
import {
  type Association,
  type AssociationEnd,
  type AssociationUser,
  MESSAGE_MAX_BYTES,
  type MessageKind,
  type SctpAddress,
} from './association.ts';
import type { Path } from './paths.ts';
import type { SctpStack, Served } from './sctp-stack.ts';

const EAGAIN = -11;
/** What one association takes of a turn. */
const TURN_BYTES = 1_048_576;
const TURN_MESSAGES = 512;

/** How often a peer is asked that the network cannot reach, as it says, and for how long. */
const DOUBT_HEARTBEAT_MS = 200;
const DOUBT_MICROS = 30_000_000;

/** All associations receive into the same memory, a message at a time; one byte shows a longer one. */
let sharedArea: ReceiveArea | undefined;

/** What becomes of an association before it has a user. */
export interface Opening {
  /** Up, with the peer's indication known. It must have a user on return, or have been aborted. */
  handleUp(association: UsrsctpAssociation): void;
  handleFailed(errorCode: string, text: string): void;
}

/** Before there is a user, nothing is delivered. */
const NO_USER: AssociationUser = {
  handleMessage: () => {},
  handleWritable: () => {},
  handleAcknowledged: () => {},
  handlePathChanged: () => {},
  handlePeerShutdown: () => {},
  handleEnded: () => {},
};

/**
 * - opening: until the handshake is over.
 * - rising: until the peer's adaptation indication is known, which comes right behind.
 * - up: until the end.
 */
type State = 'opening' | 'rising' | 'up' | 'ended';

/** See the module's comment. */
export class UsrsctpAssociation implements Association, Served {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  readonly socket: UsrsctpSocket;
  readonly path: Path;
  queued = false;
  user: AssociationUser = NO_USER;
  peerAdaptation: number | undefined;
  streamCount = 0;
  messageMaxBytes: number;
  unacknowledged = false;
  readonly #stack: SctpStack;
  readonly #opening: Opening;
  #state: State = 'opening';
  #paused = false;
  /** `send` was refused, and the user waits for room. */
  #blocked = false;
  /** Set while the peer is asked more often. */
  #doubtAlarm: Alarm | undefined;
  /** Parts of a message whose end has not come. */
  #part: Uint8Array | undefined;

  /** `stack.beginAssociation` was called for the path. */
  constructor(
    stack: SctpStack,
    socket: UsrsctpSocket,
    path: Path,
    ports: { readonly local: number; readonly remote: number },
    opening: Opening,
  ) {
    this.#stack = stack;
    this.#opening = opening;
    this.socket = socket;
    this.path = path;
    this.local = { address: path.socket.address, port: ports.local };
    this.remote = { address: path.address, port: ports.remote };
    this.messageMaxBytes = unfragmentedBytes(path.packetBytes);
    stack.watch(this);
    stack.queue(this);
  }

  // What its user calls

  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean {
    if (this.#state !== 'up') return false;
    const sent = this.socket.send(streamId, kind, bytes);
    if (sent >= 0) {
      this.unacknowledged = true;
      return true;
    }
    // What else there may be is an end, of which the library tells next.
    this.#blocked = true;
    if (sent !== EAGAIN) this.#stack.queue(this);
    return false;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#state !== 'ended') this.#stack.queue(this);
  }

  shutdown(): void {
    if (this.#state === 'ended') return;
    this.socket.shutdown();
    this.#stack.queue(this);
  }

  abort(): void {
    if (!this.#leave()) return;
    this.socket.abort();
    this.#stack.endAssociation(this.path);
  }

  // What the stack calls

  serve(): boolean {
    let bytes = 0;
    for (let count = 0; count < TURN_MESSAGES && bytes < TURN_BYTES; count += 1) {
      if (this.#paused || this.#isOver()) return false;
      const length = this.#receive();
      if (length < 0) {
        this.#signalRoom();
        return false;
      }
      bytes += length;
    }
    this.#signalRoom();
    return true;
  }

  handleShrunk(): void {
    if (this.#isOver()) return;
    this.socket.lowerPacketBytes(this.path.packetBytes);
    this.messageMaxBytes = unfragmentedBytes(this.path.packetBytes);
    if (this.#state === 'up') this.user.handlePathChanged();
  }

  /**
   * Ends an attempt. Of an association that is up the peer is asked more often for a while, since
   * anybody may forge what the network reports.
   */
  handleUnreachable(errno: number): void {
    if (this.#state === 'up') this.#doubt();
    if (this.#state !== 'opening') return;
    const code = errnoName(errno);
    const { address, peerPort } = this.path;
    const text = `UDP port ${peerPort} of ${address} cannot be reached (${code})`;
    this.#abortFor({ kind: 'lost', code, text });
  }

  #doubt(): void {
    if (this.#doubtAlarm !== undefined) return;
    this.socket.setHeartbeat(DOUBT_HEARTBEAT_MS);
    this.#doubtAlarm = this.#stack.after(DOUBT_MICROS, () => {
      this.#doubtAlarm = undefined;
      this.socket.setHeartbeat(HEARTBEAT_MS);
    });
  }

  /** Receives once. Returns the bytes, or -1 if nothing is there or the association has ended. */
  #receive(): number {
    sharedArea ??= new ReceiveArea(MESSAGE_MAX_BYTES + 1);
    const area = sharedArea;
    const part = this.#part;
    if (part !== undefined) area.bytes.set(part);
    const before = part?.length ?? 0;
    const length = this.socket.receive(area, before);
    if (length === EAGAIN) {
      // Nothing came behind the handshake, so the peer has no indication.
      if (this.#state === 'rising') this.#rise();
      return -1;
    }
    if (length <= 0) {
      this.#end(endOf(-length));
      return -1;
    }
    // A notification may come between the parts of a message; it would lie behind them.
    if (received.isNotification) this.#notify(area, before, length);
    else this.#take(area, before + length);
    return length;
  }

  #take({ bytes }: ReceiveArea, length: number): void {
    if (this.#state === 'rising') this.#rise();
    if (this.#state !== 'up') return;
    if (length > MESSAGE_MAX_BYTES) {
      const text = `the peer sent a message of more than ${MESSAGE_MAX_BYTES} bytes`;
      this.#abortFor({ kind: 'invalid', code: 'EMSGSIZE', text });
      return;
    }
    if (!received.isEnd) {
      this.#part = bytes.slice(0, length);
      return;
    }
    this.#part = undefined;
    const { streamId, payloadProtocol, unordered } = received;
    this.user.handleMessage(streamId, payloadProtocol, unordered, bytes.subarray(0, length));
  }

  #notify(area: ReceiveArea, start: number, length: number): void {
    if (start > 0) area.bytes.copyWithin(0, start, start + length);
    const event = readNotification(area, length);
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
    // It may be of before the last send.
    if (this.#state !== 'up' || !this.unacknowledged || this.socket.unacknowledged > 0) return;
    this.unacknowledged = false;
    this.user.handleAcknowledged();
  }

  #handleChange(event: UsrsctpEvent & { readonly type: 'association' }): void {
    if (event.state === AssociationState.up) {
      this.streamCount = Math.min(event.streamsIn, event.streamsOut);
      this.#state = 'rising';
    } else if (event.state === AssociationState.shutdownComplete) {
      this.#end({ kind: 'shutdown', code: undefined, text: 'the association was shut down' });
    } else if (event.state === AssociationState.restart) {
      // The peer's new association has nothing of the old one: DDP's streams are gone.
      const text = 'the peer started the association anew';
      this.#abortFor({ kind: 'lost', code: 'ECONNRESET', text });
    } else if (event.aborted) {
      const code = this.#state === 'opening' ? 'ECONNREFUSED' : 'ECONNRESET';
      this.#end({ kind: 'aborted', code, text: 'the peer sent an ABORT' });
    } else {
      this.#end({ kind: 'lost', code: 'ETIMEDOUT', text: 'the peer does not answer' });
    }
  }

  #rise(): void {
    this.#state = 'up';
    this.#opening.handleUp(this);
  }

  #signalRoom(): void {
    if (!this.#blocked || this.#state !== 'up' || !this.socket.writable) return;
    this.#blocked = false;
    this.user.handleWritable();
  }

  /** Also after a call to the user, who may abort. */
  #isOver(): boolean {
    return this.#state === 'ended';
  }

  #abortFor(end: AssociationEnd): void {
    const { user } = this;
    const opening = this.#state !== 'up';
    this.abort();
    this.#tell(end, opening, user);
  }

  #end(end: AssociationEnd): void {
    const { user } = this;
    const opening = this.#state !== 'up';
    if (!this.#leave()) return;
    this.socket.close();
    this.#stack.endAssociation(this.path);
    this.#tell(end, opening, user);
  }

  #tell(end: AssociationEnd, opening: boolean, user: AssociationUser): void {
    if (opening) this.#opening.handleFailed(end.code ?? 'ECONNREFUSED', end.text);
    else user.handleEnded(end);
  }

  /** False if it had ended before. */
  #leave(): boolean {
    if (this.#isOver()) return false;
    this.#state = 'ended';
    this.#part = undefined;
    this.user = NO_USER;
    this.#doubtAlarm?.cancel();
    this.#stack.unwatch(this);
    return true;
  }
}

/** The end that a failed `receive` tells of, by its errno; 0 is the end of what the peer sends. */
function endOf(errno: number): AssociationEnd {
  if (errno === 0) {
    return { kind: 'shutdown', code: undefined, text: 'the association was shut down' };
  }
  const code = errnoName(errno);
  return { kind: 'lost', code, text: `the association was lost (${code})` };
}
