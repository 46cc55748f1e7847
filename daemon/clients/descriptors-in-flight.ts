/**
 * Sends descriptors to clients (SCM_RIGHTS). Until a client receives them, the kernel counts them for
 * the daemon's user and permits as many as open files; beyond that, no program gets one. So each
 * connection may have few in flight and each user has a share. A connection that ends with some in
 * flight is half-closed until its socket is gone, since they count until then.
 */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import { closeDescriptor, duplicateDescriptor } from '#native-bridge/libc/descriptor';
import { SystemCallError } from '#native-bridge/libc/libc';
import { sendDescriptor, shutdownSocket, unreadMemory } from '#native-bridge/libc/unix-socket';
import type { ProgramConnection } from './connection.ts';
import type { DaemonBudget, UserShare } from './objects/daemon-budget.ts';

/** Interval between checks of connections that have ended. */
const LOOK_MS = 1000;

/** Errors in sending a descriptor that neither the client nor the socket caused. */
const REFUSALS: ReadonlyMap<number, string> = new Map([
  [12, 'ENOMEM'],
  [24, 'EMFILE'],
  [105, 'ENOBUFS'],
  [109, 'ETOOMANYREFS'],
]);

interface Flight {
  readonly share: UserShare | undefined;
  /** The connection's descriptor, or a copy once it has ended. */
  readonly fd: () => number | undefined;
  /** Memory of one message; 0 until an unread one was seen. */
  messageBytes: number;
  count: number;
}

export class DescriptorsInFlight {
  readonly #budget: DaemonBudget | undefined;
  readonly #flights = new Map<ProgramConnection, Flight>();
  /** Flights of ended connections. */
  readonly #left = new Set<Flight & { readonly copy: number }>();
  #timer: NodeJS.Timeout | undefined;

  /** Without a budget, users have no shares. */
  constructor(budget: DaemonBudget | undefined) {
    this.#budget = budget;
  }

  /** Upper bound of the descriptors in flight: some may have been received. */
  get count(): number {
    let count = 0;
    for (const flight of this.#all()) count += flight.count;
    return count;
  }

  /**
   * Sends bytes with a descriptor, at most `most` in flight for a connection. Throws `VerbsError`
   * EMFILE without sending anything; `IpcFormatError` if the client does not read.
   */
  send(connection: ProgramConnection, bytes: Uint8Array, descriptor: number, most: number): void {
    const { fd, congested } = connection;
    if (fd === undefined) return;
    if (congested) throw new IpcFormatError('the client does not read replies');
    const flight = this.#flightOf(connection);
    settle(flight);
    if (flight.count >= most) {
      const text = `the connection has not received ${flight.count} descriptors; read them first`;
      throw new VerbsError('EMFILE', text);
    }
    this.#take(flight);
    const before = unreadMemory(fd);
    const sent = sendDescriptor(fd, bytes, descriptor);
    if (sent === bytes.length) {
      if (flight.messageBytes === 0) flight.messageBytes = Math.max(unreadMemory(fd) - before, 0);
      return;
    }
    flight.count -= 1;
    flight.share?.give('descriptorsInFlight');
    const refusal = REFUSALS.get(-sent);
    if (refusal === undefined) throw new IpcFormatError('the client does not read replies');
    throw new VerbsError('EMFILE', `cannot pass a descriptor: ${refusal}`);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const flight of this.#left) closeDescriptor(flight.copy);
    this.#left.clear();
    this.#flights.clear();
  }

  #flightOf(connection: ProgramConnection): Flight {
    const known = this.#flights.get(connection);
    if (known !== undefined) return known;
    const share = this.#budget?.of(connection.credentials.uid);
    const flight = { share, fd: () => connection.fd, messageBytes: 0, count: 0 };
    this.#flights.set(connection, flight);
    connection.onClosing = (fd) => {
      this.#flights.delete(connection);
      this.#ended(flight, fd);
    };
    return flight;
  }

  /** Charges one descriptor, after crediting those that clients have received. */
  #take(flight: Flight): void {
    try {
      flight.share?.take('descriptorsInFlight');
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      for (const each of this.#all()) settle(each);
      flight.share?.take('descriptorsInFlight');
    }
    flight.count += 1;
  }

  /** The connection ends: its descriptors stay in flight until the client reads them or closes its end. */
  #ended(flight: Flight, fd: number | undefined): void {
    const inFlight = { ...flight, fd: () => fd };
    settle(inFlight);
    if (inFlight.count === 0) return;
    if (fd === undefined) {
      // The client has closed its end.
      flight.share?.give('descriptorsInFlight', inFlight.count);
      return;
    }
    try {
      const copy = duplicateDescriptor(fd);
      shutdownSocket(copy);
      flight.share?.add('descriptors');
      this.#left.add({ ...inFlight, copy, fd: () => copy });
      this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref();
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      // Without a descriptor it cannot be inspected: forget it.
      flight.share?.give('descriptorsInFlight', inFlight.count);
    }
  }

  #look(): void {
    for (const flight of this.#left) {
      settle(flight);
      if (flight.count > 0) continue;
      this.#left.delete(flight);
      closeDescriptor(flight.copy);
      flight.share?.give('descriptors');
    }
    if (this.#left.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  *#all(): Iterable<Flight> {
    yield* this.#flights.values();
    yield* this.#left;
  }
}

/** Recounts from the memory of unread messages. */
function settle(flight: Flight): void {
  const fd = flight.fd();
  if (flight.count === 0 || fd === undefined) return;
  const unreadBytes = unreadMemory(fd);
  // As long as the size of a message is unknown, assume that all are unread.
  const unread = unreadBytes === 0 ? 0 : Math.ceil(unreadBytes / flight.messageBytes);
  const received = flight.count - Math.min(flight.count, unread);
  if (received === 0) return;
  flight.count -= received;
  flight.share?.give('descriptorsInFlight', received);
}
