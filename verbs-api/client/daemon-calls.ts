/** Requests to a daemon and their replies. */
import {
  CLIENT_FRAME_MAX_BYTES,
  DAEMON_FRAME_MAX_BYTES,
  emitValueFrame,
  FRAME_HEADER_BYTES,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
} from '#contract/protocol/ipc-frames';
import { decodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { isErrnoCode, VerbsError } from '#contract/verbs/errors';
import { type DaemonConnection, messageOf } from './daemon-connection.ts';

/** How long `close` waits for the daemon to clean up. */
const CLOSE_TIMEOUT_MS = 2_000;

/** Requests with their replies, and events, on one framed connection. */
export class DaemonCalls {
  onEvent: (event: IpcValue) => void = () => undefined;
  /** Called once when the daemon is gone. */
  onClosed: (error: Error) => void = () => undefined;
  readonly #connection: DaemonConnection;
  readonly #waiting = new Map<
    number,
    { resolve: (reply: IpcValue) => void; reject: (error: Error) => void }
  >();
  #nextId = 1;
  /** The error that the daemon sent before it disconnected. */
  #farewell: string | undefined;
  #closed = false;
  #whenClosed: () => void = () => undefined;

  constructor(connection: DaemonConnection) {
    this.#connection = connection;
    const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => this.#take(frame));
    connection.onBytes = (bytes) => {
      try {
        reader.push(bytes);
      } catch (error) {
        this.#farewell = `the daemon sent an invalid message: ${messageOf(error)}`;
        connection.destroy();
      }
    };
    connection.onClosed = () => this.#end();
  }

  call(name: string, request: IpcValue): Promise<IpcValue> {
    return new Promise((resolve, reject) => {
      const id = this.#nextId;
      const frame = emitValueFrame(FrameType.request, id, [name, request]);
      if (frame.length > FRAME_HEADER_BYTES + CLIENT_FRAME_MAX_BYTES) {
        throw new VerbsError('EMSGSIZE');
      }
      if (this.#closed) throw this.#goneError();
      this.#nextId = id === 0xffff_ffff ? 1 : id + 1;
      this.#waiting.set(id, { resolve, reject });
      this.#connection.gather(frame);
    });
  }

  /** Ends the connection gracefully and waits, with a time limit, for the daemon to clean up. */
  async close(): Promise<void> {
    if (this.#closed) return;
    const closed = new Promise<void>((resolve) => {
      this.#whenClosed = resolve;
    });
    const timer = setTimeout(() => this.#connection.destroy(), CLOSE_TIMEOUT_MS);
    this.#connection.end();
    await closed;
    clearTimeout(timer);
  }

  #take(frame: IpcFrame): void {
    const call = this.#waiting.get(frame.id);
    if (frame.type === FrameType.event) this.onEvent(decodeValue(frame.payload));
    else if (frame.type === FrameType.reply) call?.resolve(decodeValue(frame.payload));
    else if (frame.type === FrameType.error) {
      const error = parseError(decodeValue(frame.payload));
      if (frame.id === 0) this.#farewell = error.message;
      call?.reject(error);
    }
    if (frame.type !== FrameType.event) this.#waiting.delete(frame.id);
  }

  #end(): void {
    this.#closed = true;
    const error = this.#goneError();
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    this.#whenClosed();
    this.onClosed(error);
  }

  #goneError(): VerbsError {
    return new VerbsError('EIO', this.#farewell ?? 'the daemon ended or closed the connection');
  }
}

function parseError(value: IpcValue): VerbsError {
  const [code, text] = Array.isArray(value) ? value : [];
  if (typeof code === 'string' && typeof text === 'string' && isErrnoCode(code)) {
    return new VerbsError(code, text);
  }
  return new VerbsError('EPROTO');
}
