/**
 * Writes small records to a socket in the same turn of the event loop, directly to the descriptor, and
 * falls back to Node's buffered writing while the socket is full. Preserves the order.
 */
import type { Socket } from 'node:net';
import { sendNow } from './descriptor.ts';
import { descriptorOf } from './unix-socket.ts';

/** Gathered bytes above this size are sent before the end of the turn. */
const GATHERED_MAX_BYTES = 64 * 1024;

/** The socket must be connected. */
export class DirectWriter {
  readonly #socket: Socket;
  readonly #fd: number | undefined;
  /** Bytes from `gather` that have not been written. */
  #gathered: Uint8Array[] = [];
  #gatheredBytes = 0;
  readonly #onWaiting: () => void;
  readonly #flush = () => this.flush();

  /** `onWaiting` is called if bytes have to wait until the peer reads. Default: nothing. */
  constructor(socket: Socket, onWaiting: () => void = () => undefined) {
    this.#socket = socket;
    this.#onWaiting = onWaiting;
    this.#fd = descriptorOf(socket);
  }

  /** Bytes not yet accepted by the kernel. */
  get pendingBytes(): number {
    return this.#socket.writableLength + this.#gatheredBytes;
  }

  /** True if bytes are queued: later ones are queued after them. */
  get congested(): boolean {
    return this.#socket.writableLength > 0;
  }

  /**
   * Sends the first `length` bytes; the caller may reuse them as soon as the call returns. Does
   * nothing on a closed socket; a failed one reports through its own 'error' and 'close'. If bytes
   * had to wait, `onDrained` is called once the kernel has taken all of them.
   */
  write(bytes: Uint8Array, length = bytes.length, onDrained?: () => void): void {
    if (this.#gatheredBytes > 0) this.flush();
    const sent = this.#send(bytes, length);
    if (sent < length) this.#wait(bytes.slice(sent, length), onDrained);
  }

  /**
   * Sends bytes at the end of this turn of the event loop, in one system call with everything else
   * gathered: for many small messages whose reader would wake up for each. The caller must not
   * change them afterwards.
   */
  gather(bytes: Uint8Array): void {
    const last = this.#gathered.length - 1;
    const joined = joinedBytes(this.#gathered[last], bytes);
    if (joined !== undefined) this.#gathered[last] = joined;
    else if (this.#gathered.push(bytes) === 1) setImmediate(this.#flush);
    this.#gatheredBytes += bytes.length;
    if (this.#gatheredBytes >= GATHERED_MAX_BYTES) this.flush();
  }

  /**
   * Sends bytes now; if some have to wait, they are not copied, so the caller must not change them
   * until `onDone`. `onDone` may never be called if the socket fails.
   */
  lend(bytes: Uint8Array, onDone: () => void): void {
    if (this.#gatheredBytes > 0) this.flush();
    const sent = this.#send(bytes, bytes.length);
    if (sent < bytes.length) this.#wait(bytes.subarray(sent), onDone);
    else onDone();
  }

  /** Sends the gathered bytes now. */
  flush(): void {
    const [first] = this.#gathered;
    if (first === undefined) return;
    const bytes =
      this.#gathered.length === 1 ? first : Buffer.concat(this.#gathered, this.#gatheredBytes);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    const sent = this.#send(bytes, bytes.length);
    // Gathered bytes belong to the writer and need no copy to wait.
    if (sent < bytes.length) this.#wait(bytes.subarray(sent));
  }

  #wait(bytes: Uint8Array, onDone?: () => void): void {
    this.#socket.write(bytes, onDone);
    this.#onWaiting();
  }

  /** Sends what the kernel accepts now. Returns the number of bytes. */
  #send(bytes: Uint8Array, length: number): number {
    // A destroyed socket's descriptor number may already belong to another file.
    if (this.#socket.destroyed || this.#socket.writableEnded) return length;
    if (this.congested || this.#fd === undefined) return 0;
    // Node's own write meets the same error and reports it in the usual way.
    return Math.max(sendNow(this.#fd, bytes, length), 0);
  }
}

/** Both as one array, if `next` directly follows `bytes` in the same memory. */
function joinedBytes(bytes: Uint8Array | undefined, next: Uint8Array): Uint8Array | undefined {
  if (bytes === undefined || bytes.buffer !== next.buffer) return undefined;
  const { buffer, byteOffset, length } = bytes;
  if (byteOffset + length !== next.byteOffset) return undefined;
  return new Uint8Array(buffer, byteOffset, length + next.length);
}
