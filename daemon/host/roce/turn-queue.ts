/** Connections that may have packets, in the order of their turns, and the cost of the turns. */
import { assert } from '#base/assert';
import type { PacketConnection } from './packet-connection.ts';

/** Bytes that one connection sends before the next gets its turn. */
export const SHARE_BYTES = 131_072;
/** Cost of a packet in addition to its payload, expressed in bytes. */
export const PACKET_COST_BYTES = 1024;
/** Bytes that all connections send before sockets and clients get their turn: about a millisecond. */
const TURN_BYTES = 4_194_304;
/** Finished places that are kept in the queue. */
const DONE_MAX = 1024;

export class TurnQueue {
  /** Valid from `#head` up to `#tail`; the rest is kept for reuse, since setting a length is a slow call. */
  readonly #turns: (PacketConnection | undefined)[] = [];
  #head = 0;
  #tail = 0;
  /** Cost since the host's other work had its turn. */
  #spentBytes = 0;

  /** Queues a connection, once. */
  add(connection: PacketConnection): void {
    if (connection.queued || !connection.alive) return;
    connection.queued = true;
    this.#turns[this.#tail] = connection;
    this.#tail += 1;
  }

  /** True if no connection waits for a turn. */
  get idle(): boolean {
    return this.#head === this.#tail;
  }

  /** Number of waiting connections. */
  get length(): number {
    return this.#tail - this.#head;
  }

  /** Removes the first waiting connection. There must be one. */
  take(): PacketConnection {
    const connection = this.#turns[this.#head] as PacketConnection;
    this.#turns[this.#head] = undefined;
    this.#head += 1;
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

  /** Removes finished places. */
  dropDone(): void {
    if (this.idle) {
      this.#head = 0;
      this.#tail = 0;
      this.#spentBytes = 0;
      if (this.#turns.length > DONE_MAX) this.#turns.length = DONE_MAX;
    } else if (this.#head >= DONE_MAX) {
      this.#turns.splice(0, this.#head);
      this.#tail -= this.#head;
      this.#head = 0;
    }
  }

  /** Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (let at = this.#head; at < this.#tail; at += 1) {
      assert(this.#turns[at]?.queued === true, 'queued flag missing');
    }
  }
}
