/**
 * Moves queue pairs for programs that leave it to the connection manager, as on iWARP: to RTS when they
 * connect, and to ERR when the connection ends, after posted work has been sent.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { QPState } from '#contract/verbs/enums';
import { type ErrnoCode, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import { qpStateName } from '#contract/verbs/qp-state';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { CmEndFacts } from '#daemon/roce/cm/cm-types';
import type { CommunicationManager } from '#daemon/roce/cm/communication-manager';
import type { HostId } from '../host-id.ts';
import type { RoceId } from './roce-id.ts';

/** Time limit for sending posted work, and for the peer's confirmation. */
const LEAVE_MICROS = 5_000_000;
/** Connections given up in one turn: thousands may be due together. The others stay due. */
const DUE_MAX = 64;

const DEPTH_MAX = 128;
const NO_LIMITS = { initiatorDepth: DEPTH_MAX, responderResources: DEPTH_MAX };
/** Code of the RNR timer: 0.64 milliseconds. */
const MIN_RNR_TIMER = 12;

/** Notifies the owner of an id that its connection has ended. */
type OnEnd = (id: HostId, roce: RoceId, error: ErrnoCode | undefined, text: string) => void;

interface Leaving {
  readonly id: HostId;
  readonly deadline: Micros;
  /** The DREQ was sent. */
  asked: boolean;
}

export class QueuePairDriver {
  readonly #manager: CommunicationManager;
  readonly #onEnd: OnEnd;
  readonly #byQP = new Map<QP, HostId>();
  /** Connections that their programs have ended, in order of expiry. */
  readonly #leaving = new Map<RoceId, Leaving>();

  constructor(manager: CommunicationManager, onEnd: OnEnd) {
    this.#manager = manager;
    this.#onEnd = onEnd;
  }

  get size(): number {
    return this.#byQP.size;
  }

  /** Throws EISCONN for a queue pair with a connection, EINVAL for one past INIT. */
  expectFree(qp: QP): void {
    if (this.#byQP.has(qp))
      throw new VerbsError('EISCONN', 'the queue pair has a connection already: create another');
    if (qp.state !== QPState.INIT && qp.state !== QPState.RESET) {
      throw invalid(
        `a queue pair must be in RESET or INIT to connect; it is in ${qpStateName(qp.state)}`,
      );
    }
  }

  /** Assigns the queue pair to this id. */
  take(id: HostId, roce: RoceId, qp: QP): void {
    roce.qp = qp;
    this.#byQP.set(qp, id);
  }

  /** True once data can be sent. */
  isUp(qp: QP): boolean {
    return qp.state === QPState.RTS || qp.state === QPState.SQD;
  }

  /** Moves the passive side's queue pair to RTS. Throws `VerbsError` and then changes nothing. */
  ready(connection: CmConnection, qp: QP, own: CmEndFacts, now: Micros): void {
    // The peer chose the path: look up its route now.
    this.#move(connection, qp, own, {}, now);
  }

  /** Moves the active side's queue pair to RTS and notifies the peer, or returns why it cannot. */
  complete(connection: CmConnection, qp: QP, now: Micros): VerbsError | undefined {
    try {
      const { local, path } = connection;
      const known = { resolvedMtu: path.pathMtu };
      if (local !== undefined) this.#move(connection, qp, local, known, now);
      this.#manager.establish(connection);
      return undefined;
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return error;
    }
  }

  #move(
    connection: CmConnection,
    qp: QP,
    own: CmEndFacts,
    known: Pick<QPModification, 'resolvedMtu'>,
    now: Micros,
  ): void {
    const depths = this.depths(connection, own);
    const init = this.#manager.qpAttributes(connection, QPState.INIT);
    qp.modifyPath(init, now);
    const rtr = this.#manager.qpAttributes(connection, QPState.RTR);
    const maxDestRdAtomic = depths.responderResources;
    qp.modifyPath({ ...rtr, ...known, maxDestRdAtomic, minRnrTimer: MIN_RNR_TIMER }, now);
    const rts = this.#manager.qpAttributes(connection, QPState.RTS);
    qp.modifyPath({ ...rts, maxRdAtomic: depths.initiatorDepth }, now);
  }

  /** Reads and atomics of each direction, as negotiated. */
  depths(
    { local, remote }: CmConnection,
    given?: CmEndFacts,
  ): { readonly initiatorDepth: number; readonly responderResources: number } {
    const wanted = given ?? local ?? NO_LIMITS;
    return {
      initiatorDepth: Math.min(wanted.initiatorDepth, remote?.responderResources ?? 0),
      responderResources: Math.min(wanted.responderResources, remote?.initiatorDepth ?? 0),
    };
  }

  /** Disconnects for the program: posted work is sent first. */
  disconnect(id: HostId, roce: RoceId, now: Micros): void {
    const { qp, connection } = roce;
    if (qp === undefined || connection === undefined || this.#leaving.has(roce)) return;
    if (!this.isUp(qp)) {
      throw invalid(`the queue pair is not connected: it is in ${qpStateName(qp.state)}`);
    }
    if (qp.state === QPState.RTS)
      qp.modifyPath({ mask: QPAttribute.state, state: QPState.SQD }, now);
    const leaving = { id, deadline: now + LEAVE_MICROS, asked: false };
    this.#leaving.set(roce, leaving);
    if (!qp.queryPath().draining) this.#ask(roce, leaving, now);
  }

  /** The queue pair has sent its posted work. */
  handleDrained(qp: QP, now: Micros): void {
    const roce = this.#byQP.get(qp)?.roce;
    const leaving = roce && this.#leaving.get(roce);
    if (roce !== undefined && leaving !== undefined) this.#ask(roce, leaving, now);
  }

  #ask(roce: RoceId, leaving: Leaving, now: Micros): void {
    const { qp, connection } = roce;
    if (leaving.asked || qp === undefined || connection === undefined) return;
    leaving.asked = true;
    stop(qp, now);
    this.#manager.disconnect(connection, now);
  }

  /** The peer has disconnected. */
  handlePeerLeft(roce: RoceId, now: Micros): void {
    const { connection } = roce;
    this.release(roce, now);
    if (connection !== undefined) this.#manager.disconnect(connection, now);
  }

  /** A queue pair is in error: ends its connection and notifies the peer. */
  handleFailed(qp: QP, text: string, now: Micros): void {
    const id = this.#byQP.get(qp);
    const roce = id?.roce;
    if (id === undefined || roce?.connection === undefined || qp.state !== QPState.ERR) return;
    // We have stopped it ourselves.
    if (this.#leaving.get(roce)?.asked === true) return;
    this.release(roce, now);
    this.#manager.destroy(roce.connection, now);
    this.#onEnd(id, roce, 'ECONNRESET', text);
  }

  /** Stops the queue pair of an id without a connection. */
  release(roce: RoceId, now: Micros): void {
    const { qp } = roce;
    this.#leaving.delete(roce);
    // Another id may have connected it since.
    if (qp === undefined || this.#byQP.get(qp)?.roce !== roce) return;
    this.#byQP.delete(qp);
    stop(qp, now);
  }

  /** Called after every input, so it does not look at each connection. */
  nextDeadline(): Micros {
    if (this.#leaving.size === 0) return NEVER;
    for (const { deadline } of this.#leaving.values()) return deadline;
    return NEVER;
  }

  /** Gives up some of the connections whose peer does not confirm. */
  handleDeadline(now: Micros): void {
    let left = DUE_MAX;
    for (const [roce, leaving] of this.#leaving) {
      if (left === 0 || now < leaving.deadline) return;
      left -= 1;
      this.#ask(roce, leaving, now);
      this.release(roce, now);
      // The manager repeats the DREQ on its own.
      if (roce.connection !== undefined) this.#manager.destroy(roce.connection, now);
      this.#onEnd(leaving.id, roce, undefined, 'disconnected; the peer has not confirmed it');
    }
  }

  /** For tests. Throws `InvariantError`. */
  assertInvariants(): void {
    for (const [qp, { roce }] of this.#byQP) assert(roce?.qp === qp, 'queue pair under a wrong id');
    for (const { qp } of this.#leaving.keys()) {
      assert(qp !== undefined && this.#byQP.has(qp), 'leaving connection without a queue pair');
    }
  }
}

function stop(qp: QP, now: Micros): void {
  if (qp.state === QPState.ERR || qp.state === QPState.RESET || qp.state === QPState.INIT) return;
  qp.modifyPath({ mask: QPAttribute.state, state: QPState.ERR }, now);
}
