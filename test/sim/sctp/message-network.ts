/**
 * SCTP associations without SCTP: messages arrive whole and once, each after a delay of its own, so
 * unordered ones overtake each other. Callbacks run in later turns, never inside a call.
 */
import { TransportError } from '../../../daemon/host/links/network.ts';
import {
  type Association,
  type AssociationAttempt,
  type AssociationEnd,
  type AssociationUser,
  MESSAGE_MAX_BYTES,
  type MessageKind,
  type SctpAddress,
  type SctpPort,
  type SctpPortOptions,
  type SctpTransport,
} from '../../../daemon/host/sctp/association.ts';
import type { Prng } from '../prng.ts';
import type { VirtualTime } from '../virtual-time.ts';

/** Delays and limits of the network. */
interface MessageTraits {
  readonly delayMin: number;
  readonly delayMax: number;
  /** Most bytes unacknowledged in one direction before `send` refuses. */
  readonly bufferBytes: number;
  readonly messageMaxBytes: number;
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
const FIRST_FREE_PORT = 49_152;

/** All ports of a simulation. */
export class MessageNetwork implements SctpTransport {
  readonly time: VirtualTime;
  readonly prng: Prng;
  traits: MessageTraits;
  readonly #ports = new Map<string, SimSctpPort>();
  #nextPort = FIRST_FREE_PORT;

  constructor(time: VirtualTime, prng: Prng, traits: MessageTraits) {
    this.time = time;
    this.prng = prng;
    this.traits = traits;
  }

  hold(local: SctpAddress, options: SctpPortOptions): SimSctpPort {
    const { address } = local;
    const port = local.port === 0 ? this.#nextPort++ : local.port;
    const key = keyOf({ address, port });
    if (this.#ports.has(key)) throw new TransportError('EADDRINUSE', `${key} is in use`);
    const held = new SimSctpPort(this, { address, port }, options, () => this.#ports.delete(key));
    this.#ports.set(key, held);
    return held;
  }

  portAt(address: SctpAddress): SimSctpPort | undefined {
    return this.#ports.get(keyOf(address));
  }

  /** Runs `then` when a packet sent now would arrive. */
  later(then: () => void): void {
    this.time.after(this.prng.between(this.traits.delayMin, this.traits.delayMax), then);
  }
}

function keyOf({ address, port }: SctpAddress): string {
  return `${address}:${port}`;
}

/** A port of `MessageNetwork`. */
class SimSctpPort implements SctpPort {
  readonly address: string;
  readonly port: number;
  readonly options: SctpPortOptions;
  readonly #network: MessageNetwork;
  readonly #onReleased: () => void;
  #onAssociation: ((association: Association) => void) | undefined = undefined;

  constructor(
    network: MessageNetwork,
    local: SctpAddress,
    options: SctpPortOptions,
    onReleased: () => void,
  ) {
    this.address = local.address;
    this.port = local.port;
    this.options = options;
    this.#network = network;
    this.#onReleased = onReleased;
  }

  listen(onAssociation: (association: Association) => void): void {
    this.#onAssociation = onAssociation;
  }

  open(
    remote: SctpAddress,
    onOpen: (association: Association) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt {
    let wanted = true;
    this.#network.later(() => {
      if (!wanted) return;
      const peer = this.#network.portAt(remote);
      const deliver = peer === undefined ? undefined : peer.#onAssociation;
      if (peer === undefined || deliver === undefined) {
        onFailed('ECONNREFUSED', 'no listener');
        return;
      }
      if (peer.options.adaptation !== this.options.adaptation) {
        onFailed('EPROTO', `the peer's adaptation indication is ${peer.options.adaptation}`);
        return;
      }
      const ours = new SimAssociation(this.#network, this, peer);
      const theirs = new SimAssociation(this.#network, peer, this);
      SimAssociation.join(ours, theirs);
      deliver(theirs);
      onOpen(ours);
    });
    return {
      cancel: () => {
        wanted = false;
      },
    };
  }

  release(): void {
    this.#onAssociation = undefined;
    this.#onReleased();
  }
}

/** One end of an association. */
class SimAssociation implements Association {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  readonly peerAdaptation: number;
  readonly streamCount: number;
  user: AssociationUser = NO_USER;
  readonly #network: MessageNetwork;
  #peer: SimAssociation | undefined = undefined;
  #unacknowledgedBytes = 0;
  #refused = false;
  #paused = false;
  readonly #waiting: (() => void)[] = [];
  #shutdown: 'no' | 'asked' | 'sent' = 'no';
  #ended = false;

  constructor(network: MessageNetwork, local: SimSctpPort, remote: SimSctpPort) {
    this.#network = network;
    this.local = local;
    this.remote = remote;
    this.peerAdaptation = remote.options.adaptation;
    this.streamCount = Math.min(local.options.streamCount, remote.options.streamCount);
  }

  static join(one: SimAssociation, other: SimAssociation): void {
    one.#peer = other;
    other.#peer = one;
  }

  get messageMaxBytes(): number {
    return this.#network.traits.messageMaxBytes;
  }

  get unacknowledged(): boolean {
    return this.#unacknowledgedBytes > 0;
  }

  get ended(): boolean {
    return this.#ended;
  }

  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean {
    if (bytes.length > MESSAGE_MAX_BYTES) throw new RangeError('a message has a limit');
    if (this.#ended || this.#shutdown !== 'no') return false;
    const room = this.#network.traits.bufferBytes;
    if (this.#unacknowledgedBytes > 0 && this.#unacknowledgedBytes + bytes.length > room) {
      this.#refused = true;
      return false;
    }
    this.#unacknowledgedBytes += bytes.length;
    const message = bytes.slice();
    this.#network.later(() => this.#arrive(streamId, kind, message));
    return true;
  }

  pauseReading(): void {
    this.#paused = true;
  }

  resumeReading(): void {
    this.#paused = false;
    this.#network.time.soon(() => {
      while (!this.#paused && !this.#ended) {
        const next = this.#waiting.shift();
        if (next === undefined) return;
        next();
      }
    });
  }

  shutdown(): void {
    if (this.#ended || this.#shutdown !== 'no') return;
    this.#shutdown = 'asked';
    this.#network.time.soon(() => this.#sendShutdown());
  }

  abort(): void {
    if (this.#ended) return;
    this.#ended = true;
    const peer = this.#peer;
    this.#network.later(() => {
      if (peer !== undefined) peer.#end(ABORTED);
    });
  }

  /** The path is gone: both ends notice. */
  lose(): void {
    this.#network.time.soon(() => {
      this.#end(LOST);
      if (this.#peer !== undefined) this.#peer.#end(LOST);
    });
  }

  /** Tells the user that the path has changed; `traits` of the network say how. */
  changePath(): void {
    this.#network.time.soon(() => {
      if (!this.#ended) this.user.handlePathChanged();
    });
  }

  #arrive(streamId: number, kind: MessageKind, message: Uint8Array): void {
    const peer = this.#peer;
    if (peer === undefined || peer.#ended) return;
    const deliver = (): void => {
      if (peer.#ended) return;
      peer.user.handleMessage(streamId, kind.payloadProtocol, kind.unordered, message);
      const { length } = message;
      message.fill(POISON);
      this.#network.later(() => this.#acknowledge(length));
    };
    if (peer.#paused) peer.#waiting.push(deliver);
    else deliver();
  }

  #acknowledge(bytes: number): void {
    this.#unacknowledgedBytes -= bytes;
    if (this.#ended) return;
    if (this.#unacknowledgedBytes === 0) this.user.handleAcknowledged();
    if (this.#refused && !this.#ended) {
      this.#refused = false;
      this.user.handleWritable();
    }
    this.#sendShutdown();
  }

  #sendShutdown(): void {
    if (this.#ended || this.#shutdown !== 'asked' || this.#unacknowledgedBytes > 0) return;
    this.#shutdown = 'sent';
    const peer = this.#peer;
    this.#network.later(() => {
      if (peer !== undefined) peer.#receiveShutdown();
    });
  }

  #receiveShutdown(): void {
    if (this.#ended) return;
    if (this.#shutdown === 'no') {
      this.#shutdown = 'asked';
      this.user.handlePeerShutdown();
      this.#sendShutdown();
    }
    const peer = this.#peer;
    if (this.#unacknowledgedBytes > 0 || peer === undefined) return;
    this.#end(SHUTDOWN);
    peer.#end(SHUTDOWN);
  }

  #end(end: AssociationEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#waiting.length = 0;
    this.user.handleEnded(end);
  }
}
