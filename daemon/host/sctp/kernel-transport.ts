/** SCTP by the kernel's sockets: IP protocol 132, or over UDP (RFC 6951) if the kernel supports it. */
import { readFileSync } from 'node:fs';
import { isVerbsError } from '#contract/verbs/errors';
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { SystemCallError } from '#native-bridge/libc/libc';
import type { AssociationSocket } from '#native-bridge/libc/sctp-event';
import { probeSctp, SctpSocket, type SctpSocketOptions } from '#native-bridge/libc/sctp-socket';
import { type SocketWatch, watchSocket } from '#native-bridge/libc/watched-descriptor';
import { gidAddress } from '../host-addresses.ts';
import { type HostClock, NetworkError } from '../links/network.ts';
import {
  ASSOCIATIONS_MAX,
  type Association,
  type AssociationAttempt,
  type HostSctpTransport,
  type SctpAddress,
  type SctpPort,
  type SctpPortOptions,
} from './association.ts';
import { KernelAssociation } from './kernel-association.ts';
import { arrivingAt, asNetworkError, attempt, type Opening } from './opening.ts';
import { RecordedSocket } from './recorded-socket.ts';
import type { AssociationEnds } from './socket-association.ts';
import type { PacketObserver } from './udp-carrier.ts';

/** The port that IANA has assigned to SCTP in UDP (RFC 6951 section 6.1). */
const SCTP_UDP_PORT = 9899;
/** The UDP port of the kernel's SCTP; 0: none. */
const KERNEL_UDP_PORT = '/proc/sys/net/sctp/udp_port';
/** Limits of unacknowledged and of unread messages, as for libusrsctp. */
const BUFFER_BYTES = 2_097_152;
/** As for libusrsctp; see the reasons in native-bridge/usrsctp/stack.ts. */
const TIMING = { firstMs: 200, leastMs: 50, mostMs: 1000, heartbeatMs: 10_000 } as const;
/** Associations waiting to be accepted. */
const BACKLOG = 128;
/** Pause after an accept that failed because the process has no free descriptor. */
const ACCEPT_RETRY_MICROS = 100_000;

/** Shared by the ports of a transport. */
interface Shared {
  readonly clock: HostClock;
  /** Held ports, as `address port`. Needed since the kernel lets sockets share a port while none listens. */
  readonly held: Set<string>;
  associations: number;
  /** Shows the messages of new associations as packets. */
  observer: PacketObserver | undefined;
}

export class KernelSctpTransport implements HostSctpTransport {
  readonly #shared: Shared;
  readonly #remoteUdpPort: number | undefined;

  /** `inUdp`: opens associations over UDP. Incoming ones may use either. */
  constructor(clock: HostClock, inUdp: boolean) {
    this.#shared = { clock, held: new Set(), associations: 0, observer: undefined };
    this.#remoteUdpPort = inUdp ? SCTP_UDP_PORT : undefined;
  }

  /** Throws `NetworkError` EPROTONOSUPPORT without the kernel's SCTP. */
  open(address: string): void {
    try {
      probeSctp(address);
    } catch (error) {
      if (!(error instanceof SystemCallError) || error.code !== 'EPROTONOSUPPORT') {
        throw asNetworkError(error);
      }
      throw new NetworkError(error.code, NO_KERNEL_SCTP);
    }
    if (this.#remoteUdpPort !== undefined) assertUdp();
  }

  /** Shows the messages of new associations as packets, until `close`. */
  observe(observer: PacketObserver): void {
    this.#shared.observer = observer;
  }

  close(): void {
    this.#shared.observer = undefined;
  }

  hold(local: SctpAddress, options: SctpPortOptions): SctpPort {
    const { address, port } = local;
    const { account, ...indicated } = options;
    const settings: SctpSocketOptions = {
      ...indicated,
      sendBytes: BUFFER_BYTES,
      receiveBytes: BUFFER_BYTES,
      remoteUdpPort: this.#remoteUdpPort,
      timing: TIMING,
    };
    if (this.#shared.held.has(`${address} ${port}`)) {
      throw new NetworkError('EADDRINUSE', `SCTP port ${port} of ${address} is taken`);
    }
    try {
      const socket = SctpSocket.open(address, port, settings);
      return new KernelPort(this.#shared, address, socket, settings, account);
    } catch (error) {
      throw asNetworkError(error);
    }
  }
}

/** A held port. Its socket listens; each opened association has a separate socket. */
class KernelPort implements SctpPort {
  readonly address: string;
  readonly port: number;
  readonly #shared: Shared;
  readonly #socket: SctpSocket;
  readonly #options: SctpSocketOptions;
  readonly #account: IdAccount | undefined;
  #onAssociation: ((association: Association) => void) | undefined;
  #watch: SocketWatch | undefined;
  #released = false;

  constructor(
    shared: Shared,
    address: string,
    socket: SctpSocket,
    options: SctpSocketOptions,
    account: IdAccount | undefined,
  ) {
    this.#shared = shared;
    this.#socket = socket;
    this.#options = options;
    this.#account = account;
    this.address = address;
    this.port = socket.port;
    this.#shared.held.add(this.#key);
  }

  listen(onAssociation: (association: Association) => void): void {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    if (this.#watch === undefined) {
      try {
        this.#socket.listen(BACKLOG);
      } catch (error) {
        throw asNetworkError(error);
      }
      this.#watch = watchSocket(this.#socket.fd, () => this.#accept());
    }
    this.#onAssociation = onAssociation;
  }

  open(
    remote: SctpAddress,
    onOpen: (association: Association) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt {
    const { clock } = this.#shared;
    const { adaptation } = this.#options;
    return attempt((opening) => this.#start(remote, opening), clock, adaptation, onOpen, onFailed);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#onAssociation = undefined;
    this.#shared.held.delete(this.#key);
    this.#watch?.close();
    this.#socket.close();
  }

  get #key(): string {
    return `${this.address} ${this.port}`;
  }

  #start(remote: SctpAddress, opening: Opening): KernelAssociation {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    this.#begin();
    let socket: SctpSocket | undefined;
    try {
      socket = SctpSocket.open(this.address, this.port, this.#options);
      socket.connect(remote.address, remote.port);
    } catch (error) {
      socket?.close();
      this.#end();
      throw error;
    }
    return this.#associate(socket, remote, true, opening);
  }

  /** Counts an association. Throws `NetworkError` or `VerbsError` at a limit. */
  #begin(): void {
    if (this.#shared.associations >= ASSOCIATIONS_MAX) {
      throw new NetworkError('ENOBUFS', 'limit of SCTP associations reached');
    }
    this.#account?.take('associations');
    this.#shared.associations += 1;
  }

  #end(): void {
    this.#account?.give('associations');
    this.#shared.associations -= 1;
  }

  #hasBegun(): boolean {
    try {
      this.#begin();
      return true;
    } catch (error) {
      if (error instanceof NetworkError || isVerbsError(error)) return false;
      throw error;
    }
  }

  /** Call after `#begin`. */
  #associate(
    socket: SctpSocket,
    remote: SctpAddress,
    dialed: boolean,
    opening: Opening,
  ): KernelAssociation {
    const { clock } = this.#shared;
    const ends = { local: { address: this.address, port: this.port }, remote };
    const passed = this.#recorded(socket, ends, dialed);
    return new KernelAssociation(clock, [socket, passed], ends, opening, () => this.#end());
  }

  /** The socket, wrapped in a recorder if captures are possible. */
  #recorded(socket: SctpSocket, ends: AssociationEnds, dialed: boolean): AssociationSocket {
    const { observer } = this.#shared;
    if (observer === undefined) return socket;
    const { adaptation, remoteUdpPort } = this.#options;
    const { address, port } = ends.remote;
    const udpPort = dialed ? remoteUdpPort : socket.udpPortOf(address, port);
    const udp = udpPort === undefined ? undefined : { local: SCTP_UDP_PORT, remote: udpPort };
    return new RecordedSocket(socket, observer, { ...ends, dialed, adaptation, udp });
  }

  #accept(): void {
    for (let count = 0; count < BACKLOG && !this.#released; count += 1) {
      try {
        if (!this.#acceptOne()) break;
      } catch (error) {
        if (!(error instanceof SystemCallError)) throw error;
        this.#watch?.want(false, false);
        this.#shared.clock.after(ACCEPT_RETRY_MICROS, () => this.#watch?.want(true, false));
        return;
      }
    }
    this.#watch?.want(true, false);
  }

  #acceptOne(): boolean {
    const accepted = this.#socket.accept();
    if (accepted === undefined) return false;
    const { socket, peer, port } = accepted;
    if (!this.#hasBegun()) {
      socket.abort();
      return true;
    }
    const opening = arrivingAt(this.#options.adaptation, () => this.#onAssociation);
    this.#associate(socket, { address: gidAddress(peer), port }, false, opening);
    return true;
  }
}

const NO_KERNEL_SCTP =
  'cannot open SCTP socket: protocol not supported (EPROTONOSUPPORT): load the kernel’s sctp module, or install libusrsctp and use sctp:ADDRESS';

/** Throws `NetworkError` if the kernel does not support SCTP over UDP. */
function assertUdp(): void {
  let port = '0';
  try {
    port = readFileSync(KERNEL_UDP_PORT, 'utf8').trim();
  } catch {
    // Kernels before 5.11 lack the file.
  }
  if (port !== '0') return;
  const advice = `sysctl -w net.sctp.udp_port=${SCTP_UDP_PORT}`;
  throw new NetworkError(
    'EPROTONOSUPPORT',
    `the kernel does not carry SCTP in UDP (net.sctp.udp_port is 0): ${advice}`,
  );
}
