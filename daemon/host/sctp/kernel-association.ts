/** An association of the kernel's SCTP: a socket that the event loop watches. */
import type { AssociationSocket } from '#native-bridge/libc/sctp-event';
import type { SctpSocket } from '#native-bridge/libc/sctp-socket';
import { type SocketWatch, watchSocket } from '#native-bridge/libc/watched-descriptor';
import type { HostClock } from '../links/network.ts';
import type { MessageKind } from './association.ts';
import type { Opening } from './opening.ts';
import { type AssociationEnds, SocketAssociation } from './socket-association.ts';

export class KernelAssociation extends SocketAssociation {
  readonly #socket: SctpSocket;
  readonly #clock: HostClock;
  readonly #watch: SocketWatch;
  readonly #onClosed: () => void;
  #turnDue = false;

  /**
   * `passed` is the socket, or a wrapper of it. `onClosed` is called when either end has ended the
   * association.
   */
  constructor(
    clock: HostClock,
    [socket, passed]: readonly [SctpSocket, AssociationSocket],
    ends: AssociationEnds,
    opening: Opening,
    onClosed: () => void,
  ) {
    super(passed, ends, opening);
    this.#clock = clock;
    this.#socket = socket;
    this.#onClosed = onClosed;
    this.#watch = watchSocket(socket.fd, () => this.#turn());
    this.requestTurn();
  }

  override send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean {
    const taken = super.send(streamId, kind, bytes);
    // A turn requests room, and reports a narrower path.
    if (!taken || this.#socket.sentTooLong) this.requestTurn();
    return taken;
  }

  protected override requestTurn(): void {
    if (this.#turnDue) return;
    this.#turnDue = true;
    this.#clock.soon(this.#requestedTurn);
  }

  protected override handleLeaving(): void {
    this.#watch.close();
  }

  protected override handleClosed(): void {
    this.#onClosed();
  }

  protected override pathMessageBytes(): number {
    return this.#socket.unfragmentedBytes;
  }

  readonly #requestedTurn = (): void => {
    this.#turnDue = false;
    this.#turn();
  };

  #turn(): void {
    if (this.isOver) return;
    if (this.#socket.takeSentTooLong()) this.measurePath();
    const more = this.serve();
    if (this.isOver) return;
    if (more) this.requestTurn();
    this.#watch.want(!this.isPaused, this.isBlocked);
  }
}
