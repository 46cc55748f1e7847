/**
 * Writes the log to a descriptor without ever waiting. Writes lines at once while the descriptor
 * accepts them; otherwise queues a bounded number, and drops and counts further ones. A stopped
 * reader, a full disk or a closed pipe costs only log lines.
 *
 * O_NONBLOCK belongs to the open file, which other processes share: programs that do not expect it
 * lose output. A pipe or terminal is therefore reopened (/proc/self/fd), which creates an open file of
 * our own; a socket is written with MSG_DONTWAIT; where neither works, each write is preceded by
 * poll(2). A regular file has no reader to wait for.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';
import { awaitRoom, sendNow, WOULD_BLOCK } from '#native-bridge/libc/descriptor';

/** Maximum bytes queued: a few thousand lines, so a short pause loses none. */
const LOG_QUEUE_MAX_BYTES = 512 * 1024;
/** Retry interval for a full descriptor. */
const RETRY_MS = 100;
/** The size for which poll(2) guarantees room (PIPE_BUF). */
const PIECE_BYTES = 4096;
/** Maximum wait for a reader when the process ends. */
const EXIT_FLUSH_MS = 200;
/** pino's number for 'warn'. */
const WARN = 40;

/** Writes bytes without waiting; returns how many were accepted, undefined on failure. */
type Write = (bytes: Uint8Array) => number | undefined;

export class LogStream implements DestinationStream {
  readonly #fd: number;
  readonly #write: Write;
  readonly #format: (line: string) => string;
  readonly #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  /** Dropped lines not yet reported in the log. */
  #unreported = 0;
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;

  /** `fd` remains owned by the caller; `format` converts pino's JSON into the output. */
  constructor(fd: number, format: (line: string) => string = (line) => line) {
    this.#format = format;
    const { fd: own, write } = writerFor(fd);
    this.#fd = own;
    this.#write = write;
    process.once('exit', () => this.flushSync());
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** Accepts a line. Never waits or throws. */
  write(line: string): void {
    const bytes = Buffer.from(this.#format(line));
    if (this.#queue.length === 0) this.#reportDropped();
    if (this.#queuedBytes + bytes.length > LOG_QUEUE_MAX_BYTES) {
      this.#drop(1);
      return;
    }
    this.#enqueue(bytes);
    // While lines are queued, leave writing to the timer: an attempt per line would cost a call each.
    if (this.#timer === undefined) this.#drain();
  }

  /** Waits a limited time for queued lines to be written: the last lines matter most. */
  flushSync(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const deadline = performance.now() + EXIT_FLUSH_MS;
    for (;;) {
      this.#writeQueued();
      const leftMs = Math.ceil(deadline - performance.now());
      if (this.#queue.length === 0 || leftMs <= 0) return;
      awaitRoom(this.#fd, leftMs);
    }
  }

  #enqueue(bytes: Uint8Array): void {
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
  }

  #drop(lines: number): void {
    this.#dropped += lines;
    this.#unreported += lines;
  }

  #drain(): void {
    this.#writeQueued();
    if (this.#queue.length === 0) {
      this.#reportDropped();
      this.#writeQueued();
    }
    if (this.#queue.length === 0 || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#drain();
    }, RETRY_MS);
    this.#timer.unref();
  }

  /** Writes until the queue is empty or the descriptor is full. */
  #writeQueued(): void {
    for (;;) {
      const [first] = this.#queue;
      if (first === undefined) return;
      const taken = this.#write(first);
      if (taken === undefined) {
        this.#drop(this.#queue.length);
        this.#queue.length = 0;
        this.#queuedBytes = 0;
        return;
      }
      this.#queuedBytes -= taken;
      if (taken < first.length) {
        this.#queue[0] = first.subarray(taken);
        return;
      }
      this.#queue.shift();
    }
  }

  /** Reports dropped lines in their place. */
  #reportDropped(): void {
    if (this.#unreported === 0) return;
    const msg = `${this.#unreported} log lines dropped: standard error was not read`;
    const line = { level: WARN, time: Date.now(), kind: 'log', dropped: this.#unreported, msg };
    this.#unreported = 0;
    this.#enqueue(Buffer.from(this.#format(`${JSON.stringify(line)}\n`)));
  }
}

function writerFor(fd: number): { readonly fd: number; readonly write: Write } {
  const stats = fstatSync(fd);
  if (stats.isSocket()) return { fd, write: (bytes) => sent(fd, bytes) };
  if (stats.isFile()) return { fd, write: (bytes) => written(fd, bytes) };
  try {
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    const own = openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    return { fd: own, write: (bytes) => written(own, bytes) };
  } catch {
    // The terminal or pipe of another user, or no /proc.
    return { fd, write: (bytes) => writtenInPieces(fd, bytes) };
  }
}

function sent(fd: number, bytes: Uint8Array): number | undefined {
  const taken = sendNow(fd, bytes);
  if (taken >= 0) return taken;
  return taken === WOULD_BLOCK ? 0 : undefined;
}

function written(fd: number, bytes: Uint8Array): number | undefined {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    const code: unknown = error instanceof Error && 'code' in error ? error.code : undefined;
    return code === 'EAGAIN' || code === 'EINTR' ? 0 : undefined;
  }
}

/** For a descriptor that may block: writes only what it has room for. */
function writtenInPieces(fd: number, bytes: Uint8Array): number | undefined {
  let done = 0;
  while (done < bytes.length && awaitRoom(fd, 0)) {
    const taken = written(fd, bytes.subarray(done, done + PIECE_BYTES));
    if (taken === undefined) return undefined;
    done += taken;
  }
  return done;
}
