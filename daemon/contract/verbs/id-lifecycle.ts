/** The states of a connection id (`rdma_create_id`), the same on each wire and on real devices. */
import { assert } from '#base/assert';
import { invalid, VerbsError } from './errors.ts';

/** State of an id. */
export type IdState =
  | 'idle'
  | 'bound'
  /** The address is being resolved. */
  | 'resolving'
  | 'resolved'
  /** The route is being resolved. */
  | 'routing'
  | 'routed'
  | 'listening'
  /** From connect, or from the connect request, until the connection ends. */
  | 'connection'
  /** The connection failed or ended; only destroy is left. */
  | 'closed'
  | 'destroyed';

/** How far a connection is. A connect request that was not answered comes first. */
export type ConnectionProgress = 'requested' | 'connecting' | 'connected';

/** The steps besides those to `closed`, when its device is gone, and `destroyed`. */
const STEPS: Readonly<Record<IdState, readonly IdState[]>> = {
  // A connect request makes an id with a connection.
  idle: ['bound', 'resolving', 'resolved', 'listening', 'connection'],
  bound: ['resolving', 'resolved', 'listening'],
  resolving: ['idle', 'bound', 'resolved'],
  resolved: ['routing', 'routed', 'connection'],
  routing: ['resolved', 'routed'],
  routed: ['connection'],
  // A port that another program has on one of two wires.
  listening: ['bound'],
  // The attempt could not start.
  connection: ['resolved', 'routed'],
  closed: [],
  destroyed: [],
};

/** A state as a sentence names it: the id is …. */
function stateText(state: IdState): string {
  if (state === 'connection') return 'connecting or connected';
  return state === 'closed' ? 'closed, since its connection failed or ended' : state;
}

export class IdLifecycle {
  #state: IdState = 'idle';
  #progress: ConnectionProgress | undefined;

  get state(): IdState {
    return this.#state;
  }

  /** The state in words. */
  get stateText(): string {
    return stateText(this.#state);
  }

  /** How far its connection is, for a manager that has no other state of connections. */
  get progress(): ConnectionProgress | undefined {
    return this.#progress;
  }

  /** Throws `VerbsError`: ENOENT if the id is destroyed, EINVAL unless it is in one of `states`. */
  expect(...states: readonly IdState[]): void {
    this.expectExists();
    if (states.includes(this.#state)) return;
    const wanted = states.map(stateText).join(' or ');
    throw invalid(`the id must be ${wanted}, but is ${this.stateText}`);
  }

  /** Throws `VerbsError` ENOENT if the id is destroyed. */
  expectExists(): void {
    if (this.#state === 'destroyed') throw new VerbsError('ENOENT', 'the id is destroyed');
  }

  /** Takes a step. An illegal one is a bug of the connection manager: throws `InvariantError`. */
  enter(next: IdState): void {
    const last = this.#state;
    const ends = next === 'closed' || next === 'destroyed';
    const legal = ends ? last !== 'destroyed' : STEPS[last].includes(next);
    assert(legal, `a step of a connection id from ${last} to ${next}`);
    this.#state = next;
    this.#progress = undefined;
  }

  /** Takes a step of the connection, which starts with the first one. */
  advance(progress: ConnectionProgress): void {
    if (this.#state !== 'connection') this.enter('connection');
    this.#progress = progress;
  }
}
