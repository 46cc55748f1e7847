/**
 * Replies to commands that take memory back while agents of other programs still copy into it, or out of it: a
 * program gets them once that is over. Meanwhile it learns now and then that the daemon has not forgotten it.
 */
import type { Micros } from '#base/time';
import type { IncomingCopies } from '#daemon/clients/objects/incoming-copies';

/** A third of the time after which programs give up their connection (DAEMON_TIMEOUT_S). */
const REMINDER_INTERVAL_MICROS: Micros = 20_000_000;

interface HeldReply {
  readonly remind: () => void;
  /** It is not sent any more. */
  readonly cancel: () => void;
}

/** `C` is the type of connections. */
export class HeldReplies<C> {
  readonly #after: (delay: Micros, run: () => void) => void;
  /** At most one for each connection, on which no other command is accepted meanwhile. */
  readonly #held = new Map<C, HeldReply>();
  #timing = false;

  /** `after` calls back once the time has passed. */
  constructor(after: (delay: Micros, run: () => void) => void) {
    this.#after = after;
  }

  has(connection: C): boolean {
    return this.#held.has(connection);
  }

  /** The connection holds none. Calls `send` once no copies of `incoming` are ending, and `remind` at intervals until then. */
  hold(connection: C, incoming: IncomingCopies, send: () => void, remind: () => void): void {
    const cancel = incoming.whenOver(() => {
      this.#held.delete(connection);
      send();
    });
    this.#held.set(connection, { remind, cancel });
    if (this.#timing) return;
    this.#timing = true;
    this.#after(REMINDER_INTERVAL_MICROS, this.#remindAll);
  }

  /** The connection has closed. */
  drop(connection: C): void {
    this.#held.get(connection)?.cancel();
    this.#held.delete(connection);
  }

  readonly #remindAll = (): void => {
    this.#timing = false;
    if (this.#held.size === 0) return;
    for (const { remind } of [...this.#held.values()]) remind();
    this.#timing = true;
    this.#after(REMINDER_INTERVAL_MICROS, this.#remindAll);
  };
}
