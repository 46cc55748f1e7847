/**
 * The daemon's log (pino): JSON or text, one line per message, and how the parts of the daemon
 * write to it.
 */
import { constants, openSync } from 'node:fs';
import { isatty } from 'node:tty';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { CaptureTap } from '../capture/capture-tap.ts';
import type { HostNotice, HostObserver } from '../host/observer.ts';
import type { DaemonConfig } from './config.ts';
import { LogStream } from './log-stream.ts';
import { logText } from './log-text.ts';
import { LogThrottle } from './log-throttle.ts';

/** Standard error: standard output is for the ready line. */
const STDERR = 2;
/** A log contains names of programs and peers. */
const LOG_FILE_MODE = 0o600;

/** Logs to standard error: by default as text on a terminal, else as JSON. */
export function standardErrorLog(format: DaemonConfig['logFormat']): LogStream {
  const asText = format === undefined ? isatty(STDERR) : format === 'text';
  return asText ? new LogStream(STDERR, logText) : new LogStream(STDERR);
}

/**
 * Appends the log to a file of this user, by default as JSON. Throws the error of the failed system
 * call.
 */
export function fileLog(path: string, format: DaemonConfig['logFormat']): LogStream {
  const { O_APPEND, O_CREAT, O_WRONLY } = constants;
  const fd = openSync(path, O_APPEND | O_CREAT | O_WRONLY, LOG_FILE_MODE);
  return format === 'text' ? new LogStream(fd, logText) : new LogStream(fd);
}

/** A log at `level` that writes lines of JSON to `stream`. Default: standard error. */
export function createLog(level: DaemonConfig['logLevel'], stream?: DestinationStream): Logger {
  return pino({ level, base: null }, stream ?? standardErrorLog(undefined));
}

/** Writes a message of a kind, with additional fields. */
export type Note = (
  level: 'debug' | 'info' | 'warn' | 'error',
  kind: string,
  fields: Readonly<Record<string, unknown>>,
  text: string,
) => void;

/** Writes notes to `log`, throttled by `LogThrottle`. */
export class ThrottledLog {
  readonly #log: Logger;
  readonly #throttle: LogThrottle;

  constructor(log: Logger) {
    this.#log = log;
    this.#throttle = new LogThrottle((kind, similar) => {
      this.#log.warn({ kind, similar }, `${similar} similar messages dropped`);
    });
  }

  readonly note: Note = (level, kind, fields, text) => {
    if (!this.#log.isLevelEnabled(level)) return;
    // At debug level every message is logged.
    if (level !== 'debug' && !this.#throttle.admit(`${kind} (${level})`)) return;
    this.#log[level](fields, text);
  };

  /** Writes pending summaries. */
  flush(): void {
    this.#throttle.flush();
  }
}

/** Logs the host's events and passes wire bytes to `tap`. */
export function hostObserver(note: Note, tap: CaptureTap): HostObserver {
  const notice = ({ level, kind, device, qpn, remote, text }: HostNotice): void => {
    const peer = remote === undefined ? undefined : `${remote.address} port ${remote.port}`;
    note(level, kind, { kind, device, qpn, peer }, text);
  };
  return { notice, tap };
}
