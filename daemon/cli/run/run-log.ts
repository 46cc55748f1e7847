/** The log of a private daemon: its last lines, for the report on a program that failed. */
import type { DestinationStream } from 'pino';
import { logText } from '#daemon/main/log-text';

/** A screenful: the cause of a failure is at the end. */
const KEPT_LINES = 20;
/** Longer lines are truncated. */
const KEPT_LINE_CHARACTERS = 500;
/** pino's number for 'error'. */
const ERROR = 50;
/** The daemon's own ready line is not about the program. */
const READY = 'ready';

/** Receives the log as JSON lines and passes some of them on. */
export class RunLog implements DestinationStream {
  readonly #live: DestinationStream;
  readonly #liveLevel: number;
  readonly #kept: string[] = [];

  /** Passes lines on to `live`: all, or only errors, since the program shares standard error. */
  constructor(live: DestinationStream, shown: 'all' | 'errors') {
    this.#live = live;
    this.#liveLevel = shown === 'all' ? 0 : ERROR;
  }

  write(line: string): void {
    const { level, msg } = JSON.parse(line) as { level: number; msg?: string };
    if (level >= this.#liveLevel) this.#live.write(line);
    if (msg === READY) return;
    this.#kept.push(line);
    if (this.#kept.length > KEPT_LINES) this.#kept.shift();
  }

  get lastLines(): readonly string[] {
    return this.#kept.map((line) => {
      const text = logText(line).trimEnd();
      return text.length > KEPT_LINE_CHARACTERS ? `${text.slice(0, KEPT_LINE_CHARACTERS)}…` : text;
    });
  }
}
