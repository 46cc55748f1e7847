/** An association of the stack: a socket of libusrsctp on a path. */
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { errnoName } from '#native-bridge/libc/libc';
import { type UsrsctpSocket, unfragmentedBytes } from '#native-bridge/usrsctp/socket';
import { HEARTBEAT_MS } from '#native-bridge/usrsctp/stack';
import type { Alarm } from '../links/network.ts';
import type { Opening } from './opening.ts';
import type { Path } from './paths.ts';
import type { SctpStack, ServedSocket } from './sctp-stack.ts';
import { SocketAssociation } from './socket-association.ts';

/** Heartbeat interval while the network reports the peer as unreachable, and for how long. */
const DOUBT_HEARTBEAT_MS = 200;
const DOUBT_MICROS = 30_000_000;

export class UsrsctpAssociation extends SocketAssociation implements ServedSocket {
  readonly socket: UsrsctpSocket;
  readonly path: Path;
  queued = false;
  readonly #stack: SctpStack;
  readonly #account: IdAccount | undefined;
  /** Set while heartbeats are more frequent. */
  #doubtAlarm: Alarm | undefined;

  /** Call after `stack.beginAssociation` for the path and the account. */
  constructor(
    stack: SctpStack,
    socket: UsrsctpSocket,
    path: Path,
    ports: { readonly local: number; readonly remote: number },
    opening: Opening,
    account: IdAccount | undefined,
  ) {
    const ends = {
      local: { address: path.socket.address, port: ports.local },
      remote: { address: path.address, port: ports.remote },
    };
    super(socket, ends, opening);
    this.#stack = stack;
    this.#account = account;
    this.socket = socket;
    this.path = path;
    stack.watch(this);
    stack.queue(this);
  }

  handleShrunk(): void {
    if (this.isOver) return;
    this.socket.lowerPacketBytes(this.path.packetBytes);
    this.measurePath();
  }

  /**
   * Ends an attempt. On an established association, sends heartbeats more often for a while instead, since
   * anyone can forge what the network reports.
   */
  handleUnreachable(errno: number): void {
    if (this.isUp) this.#doubt();
    if (!this.isOpening) return;
    const code = errnoName(errno);
    const { address, peerPort } = this.path;
    const text = `UDP port ${peerPort} of ${address} cannot be reached (${code})`;
    this.abortFor({ kind: 'lost', code, text });
  }

  protected override requestTurn(): void {
    this.#stack.queue(this);
  }

  protected override handleLeaving(): void {
    this.#doubtAlarm?.cancel();
    this.#stack.unwatch(this);
  }

  protected override handleClosed(): void {
    this.#stack.endAssociation(this.path, this.local.port, this.#account);
  }

  protected override pathMessageBytes(): number {
    return unfragmentedBytes(this.path.packetBytes);
  }

  #doubt(): void {
    if (this.#doubtAlarm !== undefined) return;
    this.socket.setHeartbeat(DOUBT_HEARTBEAT_MS);
    this.#doubtAlarm = this.#stack.after(DOUBT_MICROS, () => {
      this.#doubtAlarm = undefined;
      this.socket.setHeartbeat(HEARTBEAT_MS);
    });
  }
}
