/**
 * Writes small records to a socket in the same turn of the event loop, straight to the descriptor,
 * and falls back to Node's buffered writing while the socket is full. Order is kept.
 */
import type { Socket } from 'node:net';
import { sendNow, WOULD_BLOCK } from './descriptor.ts';
import { descriptorOf } from './unix-socket.ts';

/** See the module's comment. The socket must be connected. */
export class DirectWriter {
  readonly #socket: Socket;
  readonly #fd: number | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.#fd = descriptorOf(socket);
  }

  /** Octets that the kernel has not taken yet. */
  get pendingBytes(): number {
    return this.#socket.writableLength;
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
    // A destroyed socket's descriptor number may already belong to another file.
    if (this.#socket.destroyed || this.#socket.writableEnded) return;
    let sent = 0;
    if (!this.congested && this.#fd !== undefined) {
      sent = sendNow(this.#fd, octets, length);
      if (sent === length) return;
      // Node's own write meets the same error and tells it in the usual way.
      if (sent < 0 && sent !== WOULD_BLOCK) sent = 0;
    }
    this.#socket.write(octets.slice(Math.max(sent, 0), length), onDrained);
  }
}
