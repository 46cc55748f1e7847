/**
 * Requests that found no listener yet: they are sent again for a while. Programs connect to each
 * other in step with what they exchange; perftest's server starts to listen for its queue pairs
 * while its client already connects them.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { HostId, ProgramParameters } from '../host-id.ts';

/**
 * The first pause between two requests. Each is twice as long as the previous one, up to the last.
 */
const PAUSE_FIRST_MICROS = 5_000;
const PAUSE_LAST_MICROS = 80_000;
/** Requests that are sent again in one turn: thousands may be due together. The rest is due still. */
const DUE_MAX = 64;

/** The request of one id. */
interface Request {
  readonly parameters: ProgramParameters;
  /** Refusals count from then on. */
  readonly endsAt: Micros;
  pause: Micros;
  /** When to send it again; NEVER while it is on its way. */
  due: Micros;
}

export class RefusedRequests {
  readonly #requests = new Map<HostId, Request>();
  /** When one of them is due, or earlier. */
  #due: Micros = NEVER;

  /** An id asks for the first time, or again. Those without patience are not noted. */
  begin(id: HostId, parameters: ProgramParameters, now: Micros): void {
    const known = this.#requests.get(id);
    if (known !== undefined) known.due = NEVER;
    else if (id.refusalPatienceMs > 0) {
      const endsAt = now + id.refusalPatienceMs * 1000;
      this.#requests.set(id, { parameters, endsAt, pause: PAUSE_FIRST_MICROS, due: NEVER });
    }
  }

  /** There is no listener: true if the id asks again later. */
  refused(id: HostId, now: Micros): boolean {
    const request = this.#requests.get(id);
    if (request === undefined || now + request.pause > request.endsAt) return false;
    request.due = now + request.pause;
    this.#due = Math.min(this.#due, request.due);
    request.pause = Math.min(2 * request.pause, PAUSE_LAST_MICROS);
    return true;
  }

  /** The id has its answer, or wants none. */
  end(id: HostId): void {
    this.#requests.delete(id);
  }

  /** Some of the ids that ask again at `now`, with what they asked. */
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

  /** Asked for after everything that happens, so it does not look at each request. */
  nextDeadline(): Micros {
    return this.#requests.size === 0 ? NEVER : this.#due;
  }

  /** For simulations and tests: `exists` tells whether an id does. Throws `InvariantError`. */
  assertInvariants(exists: (id: HostId) => boolean): void {
    for (const id of this.#requests.keys()) assert(exists(id), 'who asks exists');
  }
}
