/** Two ends of SCTP by libusrsctp in one process, on loopback, or with a bad network between. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { hostSystem } from '#daemon/host/links/system';
import type {
  Association,
  AssociationEnd,
  AssociationUser,
  MessageKind,
  SctpPort,
} from '#daemon/host/sctp/association';
import { UsrsctpTransport } from '#daemon/host/sctp/usrsctp-transport';
import { ownAddress } from './own-address.ts';
import { until } from './patience.ts';

export { until };

/** DDP segments' kind of message (RFC 5043). */
export const SEGMENT: MessageKind = {
  payloadProtocol: 16,
  unordered: true,
  acknowledgeAtOnce: false,
};
const DDP_INDICATION = 1;
export const SCTP_UDP_PORT = 9899;

interface ReceivedMessage {
  readonly streamId: number;
  readonly payloadProtocol: number;
  readonly unordered: boolean;
  readonly bytes: Uint8Array;
}

/** Keeps the events of an association. */
export class AssociationRecorder implements AssociationUser {
  readonly messages: ReceivedMessage[] = [];
  /** Everything else, in its order. */
  readonly events: string[] = [];
  end: AssociationEnd | undefined;
  onWritable: () => void = () => {};

  handleMessage(
    streamId: number,
    payloadProtocol: number,
    unordered: boolean,
    bytes: Uint8Array,
  ): void {
    this.messages.push({ streamId, payloadProtocol, unordered, bytes: bytes.slice() });
  }

  handleWritable(): void {
    this.events.push('writable');
    this.onWritable();
  }

  handleAcknowledged(): void {
    this.events.push('acknowledged');
  }

  handlePathChanged(): void {
    this.events.push('path');
  }

  handlePeerShutdown(): void {
    this.events.push('peer-shutdown');
  }

  handleEnded(end: AssociationEnd): void {
    this.end = end;
    this.events.push(end.kind);
  }
}

export interface RecordedEnd {
  readonly association: Association;
  readonly user: AssociationRecorder;
}

/** Ports of two addresses; `close` releases all that was opened. */
export class SctpRig {
  readonly clock = hostSystem().clock;
  readonly transport = new UsrsctpTransport(this.clock);
  /** Addresses of the opening end, the listening end, and a network between. */
  readonly here = ownAddress(21);
  readonly there = ownAddress(22);
  readonly between = ownAddress(23);
  readonly accepted: RecordedEnd[] = [];
  readonly #ports: SctpPort[] = [];
  readonly #ends: Association[] = [];

  hold(address: string, port = 0, adaptation = DDP_INDICATION, streamCount = 4): SctpPort {
    const held = this.transport.hold({ address, port }, { adaptation, streamCount });
    this.#ports.push(held);
    return held;
  }

  /** A port of `there` that takes associations into `accepted`. */
  listen(streamCount = 8): SctpPort {
    const port = this.hold(this.there, 0, DDP_INDICATION, streamCount);
    this.acceptAt(port);
    return port;
  }

  /** Takes the associations of a port into `accepted`. */
  acceptAt(port: SctpPort): void {
    port.listen((association) => {
      const user = new AssociationRecorder();
      association.user = user;
      this.#ends.push(association);
      this.accepted.push({ association, user });
    });
  }

  /** Opens an association, or throws with the code and text of the failure. */
  async open(from: SctpPort, address: string, port: number, idleMs?: number): Promise<RecordedEnd> {
    let end: RecordedEnd | undefined;
    let failure: Error | undefined;
    const attempt = from.open(
      { address, port },
      (association) => {
        const user = new AssociationRecorder();
        association.user = user;
        this.#ends.push(association);
        end = { association, user };
      },
      (code, text) => {
        failure = new Error(`${code}: ${text}`);
      },
    );
    const isDecided = () => (end ?? failure) !== undefined;
    try {
      await until('the association is up, or refused', isDecided, idleMs);
    } catch (error) {
      attempt.cancel();
      throw error;
    }
    if (end === undefined) throw failure;
    return end;
  }

  /** Both ends of an association; `address` is the apparent address of the other one. */
  async pair(address = this.there): Promise<readonly [RecordedEnd, RecordedEnd]> {
    const listener = this.listen();
    const mine = await this.open(this.hold(this.here), address, listener.port);
    await until('it is accepted', () => this.accepted.length > 0);
    return [mine, this.accepted.at(-1) as RecordedEnd];
  }

  close(): void {
    for (const end of this.#ends.splice(0)) end.abort();
    for (const port of this.#ports.splice(0)) port.release();
    this.accepted.length = 0;
  }
}

/** The fate of each datagram: how many copies of it arrive, and whether later ones overtake it. */
type Fate = () => { readonly copies: number; readonly late: boolean };

/** A network between two ends, which know only its address. */
export class BadNetwork {
  lost = 0;
  late = 0;
  /** Datagrams to insert before one that passes, to the same target. */
  forge: (bytes: Uint8Array) => readonly Uint8Array[] = () => [];
  readonly #socket: Socket;
  readonly #fate: Fate;
  #held: (() => void)[] = [];

  private constructor(socket: Socket, fate: Fate, ends: readonly [string, string]) {
    this.#socket = socket;
    this.#fate = fate;
    socket.on('message', (bytes, { address }) => {
      const to = address === ends[0] ? ends[1] : ends[0];
      for (const forged of this.forge(bytes)) socket.send(forged, SCTP_UDP_PORT, to);
      this.#carry(() => socket.send(bytes, SCTP_UDP_PORT, to));
    });
  }

  static async between(rig: SctpRig, fate: Fate): Promise<BadNetwork> {
    const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20 });
    socket.bind(SCTP_UDP_PORT, rig.between);
    await once(socket, 'listening');
    return new BadNetwork(socket, fate, [rig.here, rig.there]);
  }

  close(): void {
    this.#held = [];
    this.#socket.close();
  }

  #carry(send: () => void): void {
    const { copies, late } = this.#fate();
    if (copies === 0) this.lost += 1;
    for (let copy = 1; copy < copies; copy += 1) send();
    if (late && copies > 0) {
      this.late += 1;
      this.#held.push(send);
      // No message follows the last one.
      setTimeout(() => this.#release(), 20);
      return;
    }
    if (copies > 0) send();
    this.#release();
  }

  #release(): void {
    const held = this.#held;
    this.#held = [];
    for (const send of held) send();
  }
}
