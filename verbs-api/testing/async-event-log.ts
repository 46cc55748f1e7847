/** Records the asynchronous events of a context for waits and error messages. */
import type { AsyncEvent } from '#contract/verbs/completion';
import { AsyncEventType } from '#contract/verbs/enums';
import type { Context } from '#contract/verbs/provider';
import { daemonGone } from './daemon-registry.ts';
import { checkTesting } from './signatures.ts';
import { type WaitOptions, WaitTimeoutError, within } from './waiting.ts';

const NAMES = new Map<number, string>(
  Object.entries(AsyncEventType).map(([name, type]) => [type, name]),
);

/** It consumes the context's events: another loop over them gets none. */
export class AsyncEventLog {
  readonly #context: Context;
  readonly #events: AsyncEvent[] = [];
  /** Events that no wait has returned yet. */
  readonly #waiting: AsyncEvent[] = [];
  readonly #wakers = new Set<() => void>();
  #end: { readonly error: unknown } | undefined;

  constructor(context: Context) {
    this.#context = context;
    void this.#collect();
  }

  /** All events so far, in order. */
  get events(): readonly AsyncEvent[] {
    return this.#events;
  }

  /**
   * The next event of a type that no wait has returned yet. Rejects with `WaitTimeoutError`, which
   * lists the events that arrived instead, `DaemonEndedError`, or the error that ended the
   * context's events.
   */
  async next(type: AsyncEventType, options: WaitOptions = {}): Promise<AsyncEvent> {
    checkTesting.next(type, options);
    const timedOut = (timeoutMs: number): Error =>
      new WaitTimeoutError(
        `waited ${timeoutMs} ms for the asynchronous event ${eventName(type)}; ${this.describe()}`,
      );
    const gone = daemonGone(this.#context.provider);
    return await within({ ...options, daemonGone: gone, timedOut }, async (signal) => {
      for (;;) {
        const at = this.#waiting.findIndex((event) => event.type === type);
        const [found] = at < 0 ? [] : this.#waiting.splice(at, 1);
        if (found !== undefined) return found;
        if (this.#end !== undefined) throw this.#end.error;
        await this.#change(signal);
        signal.throwIfAborted();
      }
    });
  }

  /** The events as text. */
  describe(): string {
    if (this.#events.length === 0) return 'no asynchronous events came';
    return `asynchronous events: ${this.#events.map(eventText).join('; ')}`;
  }

  async #collect(): Promise<void> {
    let error: unknown = new Error('the context is closed: no more asynchronous events come');
    try {
      for await (const event of this.#context.asyncEvents()) {
        this.#events.push(event);
        this.#waiting.push(event);
        this.#wake();
      }
    } catch (lost) {
      error = lost;
    }
    this.#end = { error };
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#wakers) wake();
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const over = (): void => {
        this.#wakers.delete(over);
        resolve();
      };
      this.#wakers.add(over);
      signal.addEventListener('abort', over, { once: true });
    });
  }
}

const logs = new WeakMap<Context, AsyncEventLog>();

/**
 * The log of a context's asynchronous events, from the first one on. The first call creates it, one
 * per context; `expectCompletion` reports its content.
 */
export function asyncEventLog(context: Context): AsyncEventLog {
  checkTesting.asyncEventLog(context);
  const known = logs.get(context);
  if (known !== undefined) return known;
  const log = new AsyncEventLog(context);
  logs.set(context, log);
  return log;
}

function eventName(type: number): string {
  return NAMES.get(type) ?? `type ${type}`;
}

function eventText({ type, qpNum, text }: AsyncEvent): string {
  return `${eventName(type)}${qpNum === undefined ? '' : ` of QP ${qpNum}`} (${text})`;
}
