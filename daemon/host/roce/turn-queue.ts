/** Connections that may have packets, in the order of their turns, and the cost of the turns. */
import { assert } from '#base/assert';
import { Fifo } from '#base/fifo';
import type { PacketConnection } from './packet-connection.ts';

/** Bytes that one connection sends before the next gets its turn. */
export const SHARE_BYTES = 131_072;
/** Cost of a packet in addition to its payload, expressed in bytes. */
export const PACKET_COST_BYTES = 1024;
/** Bytes that all connections send before sockets and clients get their turn: about a millisecond. */
const TURN_BYTES = 4_194_304;

export class TurnQueue {
  readonly #turns = new Fifo<PacketConnection>();
  /** Cost since the host's other work had its turn. */
  #spentBytes = 0;

  /** Queues a connection, once. */
  add(connection: PacketConnection): void {
    if (connection.queued || !connection.alive) return;
    connection.queued = true;
    this.#turns.push(connection);
  }

  /** True if no connection waits for a turn. */
  get idle(): boolean {
    return this.#turns.count === 0;
  }

  /** Number of waiting connections. */
  get length(): number {
    return this.#turns.count;
  }

  /** Removes the first waiting connection. There must be one. */
  take(): PacketConnection {
    const connection = this.#turns.shift() as PacketConnection;
    connection.queued = false;
    return connection;
  }

  /** Counts the cost of a turn. */
  spend(bytes: number): void {
    this.#spentBytes += bytes;
  }

  /** True if the host's other work comes first. */
  get spent(): boolean {
    return this.#spentBytes >= TURN_BYTES;
  }

  /** The host's other work had its turn. */
  restore(): void {
    this.#spentBytes = 0;
  }

  /** Ends a round of turns: if no connection waits, the cost counts from 0 again. */
  endRound(): void {
    if (this.idle) this.#spentBytes = 0;
  }

  /** Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const { queued } of this.#turns.items()) assert(queued, 'queued flag missing');
  }
}
