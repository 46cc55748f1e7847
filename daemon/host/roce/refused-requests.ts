/**
 * Retries requests that found no listener, for a while. Programs coordinate their connections by
 * messages: perftest's server starts to listen for its queue pairs while its client already
 * connects them.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { HostId, ProgramParameters } from '../host-id.ts';

/**
 * The first pause between two requests. Each is twice as long as the previous one, up to the last.
 */
const PAUSE_FIRST_MICROS = 5_000;
const PAUSE_LAST_MICROS = 80_000;
/** Requests repeated in one turn: thousands may be due together. The others stay due. */
const DUE_MAX = 64;

/** The request of one id. */
interface Request {
  readonly parameters: ProgramParameters;
  /** No retry starts later. */
  readonly endsAt: Micros;
  pause: Micros;
  /** When to retry; NEVER while a request is pending. */
  due: Micros;
}

export class RefusedRequests {
  readonly #requests = new Map<HostId, Request>();
  /** Lower bound of their deadlines. */
  #due: Micros = NEVER;

  /** Records the first or a repeated request of an id, if the id is to retry. */
  begin(id: HostId, parameters: ProgramParameters, now: Micros): void {
    const known = this.#requests.get(id);
    if (known !== undefined) known.due = NEVER;
    else if (id.refusalPatienceMs > 0) {
      const endsAt = now + id.refusalPatienceMs * 1000;
      this.#requests.set(id, { parameters, endsAt, pause: PAUSE_FIRST_MICROS, due: NEVER });
    }
  }

  /** A request found no listener: true if the id retries later. */
  refused(id: HostId, now: Micros): boolean {
    const request = this.#requests.get(id);
    if (request === undefined || now + request.pause > request.endsAt) return false;
    request.due = now + request.pause;
    this.#due = Math.min(this.#due, request.due);
    request.pause = Math.min(2 * request.pause, PAUSE_LAST_MICROS);
    return true;
  }

  /** The id has its answer, or gave up. */
  end(id: HostId): void {
    this.#requests.delete(id);
  }

  /** Takes some of the requests that are due at `now`. */
  takeDue(now: Micros): readonly (readonly [HostId, ProgramParameters])[] {
    const taken: (readonly [HostId, ProgramParameters])[] = [];
    if (now < this.#due) return taken;
    this.#due = NEVER;
    for (const [id, request] of this.#requests) {
      if (request.due <= now && taken.length < DUE_MAX) {
        request.due = NEVER;
        taken.push([id, request.parameters]);
      }
      this.#due = Math.min(this.#due, request.due);
    }
    return taken;
  }

  /** Called after every input, so it does not look at each request. */
  nextDeadline(): Micros {
    return this.#requests.size === 0 ? NEVER : this.#due;
  }

  /** `exists`: whether an id exists. For simulations and tests. Throws `InvariantError`. */
  assertInvariants(exists: (id: HostId) => boolean): void {
    for (const id of this.#requests.keys()) assert(exists(id), 'request of an unknown id');
  }
}
