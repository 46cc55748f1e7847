/** Connected queue pairs: their parts, their operations, and their end. */
import { refusalBy } from '#contract/verbs/arguments';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type {
  CMEvent,
  ConnectionId,
  Context,
  CQ,
  PD,
  QP,
  SocketAddress,
  WaitLimit,
} from '#contract/verbs/provider';
import type { RemoteMemory } from '#contract/verbs/remote-memory';
import type { SGE } from '#contract/verbs/work-request';
import { quiet } from './client/cancellation.ts';
import { NO_LIMIT, orAbort, within } from './client/deadline.ts';
import {
  ConnectionTraffic,
  checkOperation,
  type Ending,
  type RemoteOptions,
  type TrafficParts,
} from './connection-traffic.ts';
import type { MessageWindow } from './message-window.ts';

/** The parts of a connection. */
export interface ConnectionParts {
  /** The connection id. */
  readonly id: ConnectionId;
  /** Shared with other connections unless `pd` was given: do not close it. */
  readonly context: Context;
  /** The protection domain of the queue pair and its memory. */
  readonly pd: PD;
  /** Queue for the completions of both queues. */
  readonly cq: CQ;
  /** The queue pair. */
  readonly qp: QP;
}

/**
 * A connected queue pair and its supporting objects.
 *
 * The operations below may be awaited, or not: they execute in the order of their calls. They need
 * the connection's own completion queue; from the first of them on the connection takes all
 * completions of `cq`, so a program uses either these or `cq` with its own work requests.
 *
 * Buffer ownership: bytes given to `send` and `write` must not change until the promise settles;
 * they are copied before they are sent, and need no registration. An SGE names registered memory
 * that the device uses directly: it belongs to the device until the promise resolves. After an
 * abort, a timeout or an error it does so until the connection is closed. Bytes that `read` and
 * `messages` return belong to the program.
 *
 * Errors of every operation: `OperationError` (a `VerbsError` with the completion) when it fails,
 * ENOTCONN once the connection has ended, ECONNABORTED when it is closed here in the meantime,
 * ETIMEDOUT after `timeoutMs`, the signal's reason when that aborts, EINVAL on a connection with a
 * `cq` of the program's, EIO when the device is lost. An operation that was cancelled while its
 * request was in flight may still take effect.
 */
export interface Connection extends ConnectionParts, AsyncDisposable {
  /** The peer's private data and the negotiated depths. */
  readonly established: CMEvent;
  /**
   * Sends one message to the peer's next receive (RFC 5040 §5.1). Text is sent as UTF-8.
   *
   * Resolves when the device has taken the bytes. This does not mean that they arrived, nor that
   * the peer's program saw them: only an answer proves that. With `messages` it first waits until
   * the peer has room. EMSGSIZE for more bytes than the peer accepts.
   */
  send(data: Uint8Array | SGE | string, limit?: WaitLimit): Promise<void>;
  /**
   * Writes into memory that the peer exported (RFC 5040 §5.2), starting at `offset`. The peer's program
   * is not notified; a `send` after the write arrives after its bytes.
   *
   * Resolves when the device has taken the bytes, not when they are written (RFC 5040 §5.5). A write
   * that the peer denies therefore ends the connection later. EINVAL beyond the exported region.
   */
  write(remote: RemoteMemory, data: Uint8Array | SGE, options?: RemoteOptions): Promise<void>;
  /**
   * Reads from memory that the peer exported (RFC 5040 §5.3), starting at `offset`. `into` is a
   * buffer or an SGE to fill, or the number of bytes to read; by default the read extends to the
   * end of the region.
   *
   * Resolves when the bytes have arrived: with the bytes, which are `into` itself if that is a
   * buffer, or with no bytes if it is an SGE. EACCES if the peer denies the read, which also ends
   * the connection.
   */
  read(
    remote: RemoteMemory,
    into?: number | Uint8Array | SGE,
    options?: RemoteOptions,
  ): Promise<Uint8Array>;
  /**
   * Adds to 8 bytes of the peer atomically, modulo 2^64 (RFC 7306 §5.1). Resolves with the previous
   * value. The bytes are at `offset`, a multiple of 8, little endian.
   */
  fetchAdd(remote: RemoteMemory, add: number | bigint, options?: RemoteOptions): Promise<bigint>;
  /**
   * Replaces 8 bytes of the peer by `value` if they are `expected` (RFC 7306 §5.2). Resolves with
   * the previous value, which was replaced if it equals `expected`. Position of the bytes: as for
   * `fetchAdd`.
   */
  compareSwap(
    remote: RemoteMemory,
    expected: number | bigint,
    value: number | bigint,
    options?: RemoteOptions,
  ): Promise<bigint>;
  /**
   * Messages as they arrive, each a copy that belongs to the program. Needs the option `messages`.
   *
   * The loop ends when the connection was closed, after the last message. It throws ECONNRESET when
   * the connection was aborted, EPROTO when the peer violated the protocol, and as the operations
   * do. `timeoutMs` limits the wait for each message. Several loops share the messages. A loop that
   * is left early does not take a message with it.
   *
   * Credits: the peer sends no more than `window` messages that this program has not taken; its
   * `send` waits then. A slow program thus loses neither messages nor memory, and no message arrives
   * without a receive, which would end the connection (RFC 5040 §7.1). Without credits messages are
   * copied out as they arrive: up to 1,024 wait in memory besides those in their receives, and a
   * peer that sends more, or `window` messages within a turn of the event loop, ends the connection.
   */
  messages(limit?: WaitLimit): AsyncGenerator<Uint8Array, void, undefined>;
  /**
   * Resolves when the connection has ended, at either side's initiative, with the reason. Rejects
   * with EIO when the device is lost, with the signal's reason or ETIMEDOUT. Consumes the id's
   * further events.
   */
  disconnected(limit?: WaitLimit): Promise<Ending>;
  /**
   * Disconnects gracefully and closes everything created for the connection; a second call does
   * nothing. Operations that were not posted yet reject with ECONNABORTED.
   */
  close(): Promise<void>;
}

interface Established {
  readonly parts: ConnectionParts;
  readonly event: CMEvent;
  readonly window: MessageWindow | undefined;
  /** The completion queue was created for this connection. */
  readonly ownsCQ: boolean;
  readonly closeParts: () => Promise<void>;
}

const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** The `Connection` over an established id. */
export class EstablishedConnection implements Connection {
  readonly id: ConnectionId;
  readonly context: Context;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  readonly established: CMEvent;
  readonly #closeParts: () => Promise<void>;
  readonly #traffic: ConnectionTraffic;
  readonly #window: MessageWindow | undefined;
  /** One reader of the id's events, shared by all who wait for the end. */
  #ending: Promise<Ending> | undefined;
  #ended: Ending | undefined;
  #closing: Promise<void> | undefined;

  constructor({ parts, event, window, ownsCQ, closeParts }: Established) {
    this.id = parts.id;
    this.context = parts.context;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.qp = parts.qp;
    this.established = event;
    this.#closeParts = closeParts;
    this.#window = window;
    const traffic: TrafficParts = {
      ...parts,
      ownsCQ,
      window,
      endText: () => this.#ended?.text,
      ended: () => this.#end(),
      abort: () => void parts.id.disconnect().catch(() => {}),
    };
    this.#traffic = new ConnectionTraffic(traffic);
    if (window !== undefined) this.#traffic.start();
  }

  send(data: Uint8Array | SGE | string, limit: WaitLimit = NO_LIMIT): Promise<void> {
    return this.#traffic.send(data, limit);
  }

  write(
    remote: RemoteMemory,
    data: Uint8Array | SGE,
    options: RemoteOptions = NO_LIMIT,
  ): Promise<void> {
    return this.#traffic.write(remote, data, options);
  }

  read(
    remote: RemoteMemory,
    into?: number | Uint8Array | SGE,
    options: RemoteOptions = NO_LIMIT,
  ): Promise<Uint8Array> {
    return this.#traffic.read(remote, into, options);
  }

  fetchAdd(
    remote: RemoteMemory,
    add: number | bigint,
    options: RemoteOptions = NO_LIMIT,
  ): Promise<bigint> {
    return this.#traffic.fetchAdd(remote, add, options);
  }

  compareSwap(
    remote: RemoteMemory,
    expected: number | bigint,
    value: number | bigint,
    options: RemoteOptions = NO_LIMIT,
  ): Promise<bigint> {
    return this.#traffic.compareSwap(remote, expected, value, options);
  }

  async *messages(limit: WaitLimit = NO_LIMIT): AsyncGenerator<Uint8Array, void, undefined> {
    checkOperation.messages(limit);
    for (;;) {
      const message = await this.#traffic.next(limit);
      if (message === undefined) return;
      yield message;
    }
  }

  disconnected(limit: WaitLimit = NO_LIMIT): Promise<Ending> {
    const refused = refusalBy(checkOperation.disconnected, limit);
    if (refused !== undefined) return quiet(Promise.reject(refused));
    const ending = this.#end();
    return quiet(within(limit, 'the end of the connection', (signal) => orAbort(ending, signal)));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Three lines for `console.log`: the peers, the connection's parameters, and its state. */
  [INSPECT](): string {
    const { id, qp, established } = this;
    const depths = `ORD ${established.initiatorDepth ?? '?'}, IRD ${established.responderResources ?? '?'}`;
    const messages =
      this.#window === undefined
        ? 'no messages'
        : `messages of ${this.#window.plan.bytes} bytes, window ${this.#window.plan.window}`;
    const state = this.#ended?.text ?? (this.#closing === undefined ? 'connected' : 'closing');
    return [
      `Connection ${hostPort(id.localAddress)} -> ${hostPort(id.peerAddress)} (${state})`,
      `  device ${this.context.device.name}, QP ${qp.qpNum}, ${depths}`,
      `  ${qp.capabilities.maxSendWr} sends, ${qp.capabilities.maxRecvWr} receives, ${messages}`,
    ].join('\n');
  }

  #end(): Promise<Ending> {
    this.#ending ??= quiet(this.#untilEnded());
    return this.#ending;
  }

  async #untilEnded(): Promise<Ending> {
    for await (const event of this.id.events()) {
      if (event.type === CMEventType.deviceRemoval) throw new VerbsError('EIO', event.text);
      if (event.type === CMEventType.disconnected) return this.#noteEnded(endingOf(event));
    }
    return this.#noteEnded(undefined);
  }

  /** `ending` is undefined once the id was closed here, and the connection with it. */
  #noteEnded(ending: Ending | undefined): Ending {
    const here = this.#closing !== undefined && ending?.kind !== 'aborted';
    this.#ended =
      ending === undefined || here
        ? { kind: 'closedHere', error: undefined, text: 'closed here' }
        : ending;
    return this.#ended;
  }

  async #close(): Promise<void> {
    await Promise.resolve();
    await this.id.close();
    await this.#traffic.close();
    await this.#closeParts();
  }
}

function endingOf({ error, text }: CMEvent): Ending {
  return error === undefined
    ? { kind: 'closed', error, text: 'closed gracefully' }
    : { kind: 'aborted', error, text };
}

function hostPort(address: SocketAddress | undefined): string {
  if (address === undefined) return '?';
  return address.address.includes(':')
    ? `[${address.address}]:${address.port}`
    : `${address.address}:${address.port}`;
}
