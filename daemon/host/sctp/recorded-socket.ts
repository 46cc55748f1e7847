/** The socket of an association of the kernel: shows its messages to captures, as packets. */
import type {
  AssociationSocket,
  ReceiveArea,
  ReceivedFacts,
  SctpEvent,
} from '#native-bridge/libc/sctp-event';
import { gidBytes } from '../host-addresses.ts';
import type { MessageKind, SctpAddress } from './association.ts';
import { ClosingChunk, MessagePackets, type Way } from './message-packets.ts';
import type { PacketObserver } from './udp-carrier.ts';

/** Facts about an association that is not up yet. */
interface RecordedEnds {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  /** True if this end opened the association. */
  readonly dialed: boolean;
  /** Our adaptation indication. */
  readonly adaptation: number;
  /** UDP ports, for SCTP in UDP. */
  readonly udp: { readonly local: number; readonly remote: number } | undefined;
}

export class RecordedSocket implements AssociationSocket {
  readonly #socket: AssociationSocket;
  readonly #observer: PacketObserver;
  readonly #ends: RecordedEnds;
  readonly #place: { readonly address: string; readonly port: number | undefined };
  readonly #peer: Uint8Array;
  readonly #packets: MessagePackets;
  /** Set while an association is coming up, until its beginning is shown. */
  #streamCount: number | undefined;
  #up = false;
  #peerShutDown = false;
  #complete = false;

  constructor(socket: AssociationSocket, observer: PacketObserver, ends: RecordedEnds) {
    const { local, remote, dialed, udp } = ends;
    this.#socket = socket;
    this.#observer = observer;
    this.#ends = ends;
    this.#place = { address: local.address, port: udp?.local };
    this.#peer = gidBytes(remote.address);
    this.#packets = new MessagePackets(local, remote, dialed, udp !== undefined);
  }

  get received(): ReceivedFacts {
    return this.#socket.received;
  }

  get writable(): boolean {
    return this.#socket.writable;
  }

  get unacknowledged(): number {
    return this.#socket.unacknowledged;
  }

  send(streamId: number, kind: MessageKind, bytes: Uint8Array): number {
    const sent = this.#socket.send(streamId, kind, bytes);
    if (sent >= 0 && this.#isShown('out', bytes.length)) {
      this.#packets.showMessage('out', streamId, kind, bytes, this.#show);
    }
    return sent;
  }

  receive(area: ReceiveArea, start: number): number {
    const length = this.#socket.receive(area, start);
    if (length > 0) this.#take(area, start + length);
    else if (length === 0) this.#complete = true;
    return length;
  }

  readEvent(area: ReceiveArea, length: number): SctpEvent {
    const event = this.#socket.readEvent(area, length);
    if (event.type === 'adaptation') {
      this.#begin(event.value);
    } else if (event.type === 'shutdown') {
      this.#peerShutDown = true;
      this.#shutDown('in');
      this.#close('out', ClosingChunk.shutdownAck);
    } else if (event.type === 'association') {
      if (event.state === 'up') {
        this.#up = true;
        this.#streamCount = Math.min(event.streamsIn, event.streamsOut);
      } else if (event.state === 'shutdown-complete') this.#complete = true;
      else if (event.aborted) this.#close('in', ClosingChunk.abort);
    }
    return event;
  }

  shutdown(): void {
    if (!this.#peerShutDown) this.#shutDown('out');
    this.#socket.shutdown();
  }

  abort(): void {
    this.#close('out', ClosingChunk.abort);
    this.#socket.abort();
  }

  close(): void {
    if (this.#complete && this.#peerShutDown) this.#close('in', ClosingChunk.shutdownComplete);
    else if (this.#complete) {
      this.#close('in', ClosingChunk.shutdownAck);
      this.#close('out', ClosingChunk.shutdownComplete);
    }
    this.#socket.close();
  }

  #take({ bytes }: ReceiveArea, end: number): void {
    const { received } = this.#socket;
    if (received.isNotification || !received.isEnd) return;
    if (!this.#isShown('in', end)) return;
    const { streamId, payloadProtocol, unordered } = received;
    const kind = { payloadProtocol, unordered, acknowledgeAtOnce: false };
    this.#packets.showMessage('in', streamId, kind, bytes.subarray(0, end), this.#show);
  }

  /** Without a capture, only counts a message of this length, and returns false. */
  #isShown(way: Way, bytes: number): boolean {
    if (this.#streamCount !== undefined) this.#begin(undefined);
    const { watched } = this.#observer;
    if (!watched) this.#packets.skip(way, bytes);
    return watched;
  }

  /**
   * The peer's indication, from its INIT or INIT ACK, arrives right after the handshake; it may be missing.
   */
  #begin(peer: number | undefined): void {
    const streamCount = this.#streamCount;
    this.#streamCount = undefined;
    if (streamCount === undefined || !this.#observer.watched) return;
    this.#packets.showOpening(streamCount, { us: this.#ends.adaptation, peer }, this.#show);
  }

  #shutDown(way: Way): void {
    if (this.#up && this.#observer.watched) this.#packets.showShutdown(way, this.#show);
  }

  #close(way: Way, chunk: number): void {
    if (this.#up && this.#observer.watched) this.#packets.showClosing(way, chunk, this.#show);
  }

  readonly #show = (way: Way, packet: Uint8Array): void => {
    this.#observer.packet(way, this.#place, this.#peer, this.#ends.udp?.remote, packet);
  };
}
