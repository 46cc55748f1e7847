/**
 * SCTP over UDP (RFC 6951) by libusrsctp: each host of a process has a `UsrsctpTransport`, over one stack.
 */
import { isVerbsError } from '#contract/verbs/errors';
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { type UsrsctpOptions, UsrsctpSocket } from '#native-bridge/usrsctp/socket';
import { type HostClock, NetworkError } from '../links/network.ts';
import {
  type Association,
  type AssociationAttempt,
  MESSAGE_MAX_BYTES,
  type SctpAddress,
  type SctpPort,
  type SctpPortOptions,
} from './association.ts';
import type { MemoryDatagrams } from './memory-datagrams.ts';
import { arrivingAt, asNetworkError, attempt, type Opening } from './opening.ts';
import type { CarrierSocket, Path } from './paths.ts';
import type { PacketTransport } from './sctp-network.ts';
import { type SctpPortHolder, type SctpStack, sctpStack } from './sctp-stack.ts';
import type { PacketCarrier, PacketFilter, PacketObserver } from './udp-carrier.ts';
import { UsrsctpAssociation } from './usrsctp-association.ts';

/** The port that IANA has assigned to SCTP in UDP (RFC 6951 section 6.1). */
const SCTP_UDP_PORT = 9899;
/** Limit of unacknowledged message bytes: enough for a fast path. */
const SEND_BYTES = 2_097_152;
/** The most that a peer may send before it is read. */
const RECEIVE_BYTES_MAX = 2_097_152;
/** Room for one message of any length. */
const RECEIVE_BYTES_MIN = 2 * MESSAGE_MAX_BYTES;
/** Until the path is known: each association gets its MTU when it starts. */
const PACKET_BYTES_MAX = 65_504;

/** UDP ports of SCTP. */
interface UdpPorts {
  /** Our port, 9899 by default. */
  readonly own?: number;
  /** The peers' port, 9899 by default; incoming peers may have any. */
  readonly peer?: number;
}

export class UsrsctpTransport implements PacketTransport {
  readonly #clock: HostClock;
  readonly #ports: Required<UdpPorts>;
  readonly #memory: MemoryDatagrams | undefined;
  /** UDP sockets that are open with or without a held SCTP port. */
  readonly #opened: CarrierSocket[] = [];
  readonly #stops: (() => void)[] = [];

  /** With `memory`, packets stay on the host. */
  constructor(
    clock: HostClock,
    { own = SCTP_UDP_PORT, peer = SCTP_UDP_PORT }: UdpPorts = {},
    memory?: MemoryDatagrams,
  ) {
    this.#clock = clock;
    this.#memory = memory;
    this.#ports = { own, peer };
  }

  /**
   * Opens our UDP port at `address`, until `close`. Packets for no association are answered. Throws
   * `NetworkError`.
   */
  open(address: string): void {
    this.#opened.push(this.#openSocket(address));
  }

  #openSocket(address: string): CarrierSocket {
    return sctpStack(this.#clock).openSocket(address, this.#ports.own, this.#memory);
  }

  /** Shows every packet of the process over UDP, or in this memory, until `close`. */
  observe(observer: PacketObserver): void {
    this.#stops.push(sctpStack(this.#clock).carrier.observe(observer, this.#memory));
  }

  /** Filters the same packets, until `close`. */
  addFilter(filterOf: (carrier: PacketCarrier) => PacketFilter): void {
    const { carrier } = sctpStack(this.#clock);
    this.#stops.push(carrier.addFilter(filterOf(carrier), this.#memory));
  }

  /** Undoes every `open`, `observe` and `addFilter`. */
  close(): void {
    for (const stop of this.#stops.splice(0)) stop();
    for (const socket of this.#opened.splice(0)) sctpStack(this.#clock).closeSocket(socket);
  }

  hold(local: SctpAddress, options: SctpPortOptions): SctpPort {
    const stack = sctpStack(this.#clock);
    const socket = this.#openSocket(local.address);
    try {
      return new UsrsctpPort(stack, socket, local.port, { ...options, peer: this.#ports.peer });
    } catch (error) {
      stack.closeSocket(socket);
      throw error;
    }
  }
}

/** An SCTP port at the address of a UDP socket. */
class UsrsctpPort implements SctpPort, SctpPortHolder {
  readonly address: string;
  readonly port: number;
  readonly #stack: SctpStack;
  readonly #socket: CarrierSocket;
  readonly #peerUdpPort: number;
  readonly #adaptation: number;
  readonly #streamCount: number;
  readonly #account: IdAccount | undefined;
  #onAssociation: ((association: Association) => void) | undefined;
  #released = false;

  constructor(
    stack: SctpStack,
    socket: CarrierSocket,
    port: number,
    options: SctpPortOptions & { readonly peer: number },
  ) {
    this.#stack = stack;
    this.#socket = socket;
    this.#peerUdpPort = options.peer;
    this.#adaptation = options.adaptation;
    this.#streamCount = options.streamCount;
    this.#account = options.account;
    this.address = socket.address;
    this.port = stack.holdPort(socket, port, this);
  }

  get listensFor(): number | undefined {
    return this.#onAssociation === undefined ? undefined : this.#adaptation;
  }

  listen(onAssociation: (association: Association) => void): void {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    if (this.#onAssociation === undefined) {
      try {
        this.#stack.listen(this.port, this.#options(PACKET_BYTES_MAX));
      } catch (error) {
        throw asNetworkError(error);
      }
    }
    this.#onAssociation = onAssociation;
  }

  open(
    remote: SctpAddress,
    onOpen: (association: Association) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt {
    const start = (opening: Opening) => this.#start(remote, opening);
    return attempt(start, this.#stack, this.#adaptation, onOpen, onFailed);
  }

  take(socket: UsrsctpSocket, path: Path, remotePort: number): boolean {
    const deliver = this.#onAssociation;
    if (deliver === undefined || !this.#begun(path)) return false;
    socket.lowerPacketBytes(path.packetBytes);
    const opening = arrivingAt(this.#adaptation, () => this.#onAssociation);
    const ports = { local: this.port, remote: remotePort };
    new UsrsctpAssociation(this.#stack, socket, path, ports, opening, this.#account);
    return true;
  }

  /** False without a route to the peer, or at a limit of associations. */
  #begun(path: Path): boolean {
    try {
      this.#stack.measure(path);
      this.#stack.beginAssociation(path, this.port, this.#account);
      return true;
    } catch (error) {
      if (error instanceof NetworkError || isVerbsError(error)) return false;
      throw error;
    }
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#stack.releasePort(this.#socket, this.port);
    if (this.#onAssociation !== undefined) this.#stack.unlisten(this.port);
    this.#onAssociation = undefined;
    this.#stack.closeSocket(this.#socket);
  }

  #start(remote: SctpAddress, opening: Opening): UsrsctpAssociation {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    const stack = this.#stack;
    const path = stack.pathTo(this.#socket, remote.address, this.#peerUdpPort);
    const socket = UsrsctpSocket.open(stack.library, this.#options(path.packetBytes));
    const account = this.#account;
    try {
      stack.beginAssociation(path, this.port, account);
    } catch (error) {
      socket.close();
      throw error;
    }
    const ports = { local: this.port, remote: remote.port };
    const association = new UsrsctpAssociation(stack, socket, path, ports, opening, account);
    try {
      socket.bind(path.token, this.port);
      socket.connect(path.token, remote.port);
    } catch (error) {
      association.abort();
      throw error;
    }
    return association;
  }

  #options(packetBytes: number): UsrsctpOptions {
    // The window must fit the UDP socket's buffer, or datagrams are lost there.
    const window = Math.floor(this.#socket.receiveBufferBytes / 2);
    return {
      adaptation: this.#adaptation,
      streamCount: this.#streamCount,
      sendBytes: SEND_BYTES,
      receiveBytes: Math.max(RECEIVE_BYTES_MIN, Math.min(RECEIVE_BYTES_MAX, window)),
      packetBytes,
    };
  }
}
