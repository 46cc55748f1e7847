/**
 * Writes small records to a socket in the same turn of the event loop, straight to the descriptor,
 * and falls back to Node's buffered writing while the socket is full. Order is kept.
 */
import type { Socket } from 'node:net';
import { sendNow } from './descriptor.ts';
import { descriptorOf } from './unix-socket.ts';

/** Octets that wait for the end of the turn before they leave at once all the same. */
const GATHERED_MAX_BYTES = 64 * 1024;

/** See the module's comment. The socket must be connected. */
export class DirectWriter {
  readonly #socket: Socket;
  readonly #fd: number | undefined;
  /** What `gather` took and has not written yet. */
  #gathered: Uint8Array[] = [];
  #gatheredBytes = 0;
  readonly #flush = () => this.flush();

  constructor(socket: Socket) {
    this.#socket = socket;
    this.#fd = descriptorOf(socket);
  }

  /** Octets that the kernel has not taken yet. */
  get pendingBytes(): number {
    return this.#socket.writableLength + this.#gatheredBytes;
  }

  /** True when octets wait, so that the next ones would wait behind them. */
  get congested(): boolean {
    return this.#socket.writableLength > 0;
  }

  /**
   * Sends the first `length` octets; they may be reused as soon as the call returns. Nothing
   * happens on a closed socket; a failed one reports through its own 'error' and 'close'.
   * `onDrained` is called once the kernel took everything that had to wait, if it had to.
   */
  write(octets: Uint8Array, length = octets.length, onDrained?: () => void): void {
    if (this.#gatheredBytes > 0) this.flush();
    const sent = this.#send(octets, length);
    if (sent < length) this.#socket.write(octets.slice(sent, length), onDrained);
  }

  /**
   * Sends octets at the end of this turn of the event loop, in one system call with all that is
   * gathered until then: for many small messages whose reader would wake up for each. They stay
   * the writer's.
   */
  gather(octets: Uint8Array): void {
    if (this.#gathered.push(octets) === 1) setImmediate(this.#flush);
    this.#gatheredBytes += octets.length;
    if (this.#gatheredBytes >= GATHERED_MAX_BYTES) this.flush();
  }

  /**
   * Sends octets now; until `onDone` they are the writer's, so that what has to wait is not copied.
   * `onDone` may never come once the socket has failed.
   */
  lend(octets: Uint8Array, onDone: () => void): void {
    if (this.#gatheredBytes > 0) this.flush();
    const sent = this.#send(octets, octets.length);
    if (sent < octets.length) this.#socket.write(octets.subarray(sent), onDone);
    else onDone();
  }

  /** Sends what is gathered now. */
  flush(): void {
    const [first] = this.#gathered;
    if (first === undefined) return;
    const octets =
      this.#gathered.length === 1 ? first : Buffer.concat(this.#gathered, this.#gatheredBytes);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    const sent = this.#send(octets, octets.length);
    // What was gathered is nobody else's, and need not be copied to wait.
    if (sent < octets.length) this.#socket.write(octets.subarray(sent));
  }

  /** Sends what the kernel takes now; how much of it is done with. */
  #send(octets: Uint8Array, length: number): number {
    // A destroyed socket's descriptor number may already belong to another file.
    if (this.#socket.destroyed || this.#socket.writableEnded) return length;
    if (this.congested || this.#fd === undefined) return 0;
    // Node's own write meets the same error and tells it in the usual way.
    return Math.max(sendNow(this.#fd, octets, length), 0);
  }
}
