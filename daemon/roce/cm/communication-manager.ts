/**
 * The communication manager of a host for all its RoCE ports (IBTA chapter 12): connections of RC
 * and UC queue pairs, and questions for the queue pair of a datagram service.
 *
 * Commands and `handle*` inputs go in, effects come out of `pollEffect`, and `nextDeadline` returns
 * when `handleDeadline` is due. It moves no queue pair: its user does, from `qpAttributes`. A
 * command in a wrong state throws `VerbsError` EINVAL and changes nothing.
 */
import type { QPState } from '../../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { QPModification } from '../../rnic/qp-attributes.ts';
import { type Micros, NEVER } from '../../rnic/wire-port.ts';
import type { CmConnection } from './cm-connection.ts';
import type { CmEffect } from './cm-events.ts';
import type { CmListener, ListenScope } from './cm-listener.ts';
import type { CmPath, CmPort } from './cm-path.ts';
import {
  type CmEndpointFacts,
  type CmLimits,
  type CmRequest,
  type CmService,
  DEFAULT_CM_LIMITS,
} from './cm-types.ts';

/** Options of a communication manager. */
interface CommunicationManagerOptions {
  /** Numbers that a peer must not guess. */
  readonly random32: () => number;
  readonly limits?: Partial<CmLimits>;
}

/** See the module's comment. */
export class CommunicationManager {
  readonly #limits: CmLimits;

  constructor(options: CommunicationManagerOptions) {
    this.#limits = { ...DEFAULT_CM_LIMITS, ...options.limits };
  }

  // Commands

  /**
   * Listens for `serviceId`. `backlog` of 0 or less, or above the limit, becomes the limit.
   * EADDRINUSE when a listener hears the same.
   */
  listen(_serviceId: number, _scope: ListenScope, _backlog: number, _tag: unknown): CmListener {
    throw this.#missing();
  }

  /** Sends a REQ; 'reply', 'rejected' or 'unreachable' follows. ENOMEM. */
  connect(_request: CmRequest, _tag: unknown, _now: Micros): CmConnection {
    throw this.#missing();
  }

  /** Sends a SIDR REQ; 'service-reply' or 'unreachable' follows. ENOMEM. */
  askService(
    _serviceId: number,
    _path: CmPath,
    _privateData: Uint8Array,
    _tag: unknown,
    _now: Micros,
  ): CmConnection {
    throw this.#missing();
  }

  /** Answers a request by a REP; 'established', 'rejected' or 'unreachable' follows. */
  accept(_connection: CmConnection, _reply: CmEndpointFacts, _now: Micros): void {
    throw this.#missing();
  }

  /** Answers a SIDR REQ. */
  answerService(_connection: CmConnection, _service: CmService, _now: Micros): void {
    throw this.#missing();
  }

  /** Answers a REP by the RTU: the own queue pair is in RTS. */
  establish(_connection: CmConnection, _now: Micros): void {
    throw this.#missing();
  }

  /** Data of the peer came before its RTU: 'established' follows, unless it was already. */
  noteCommunication(_connection: CmConnection, _now: Micros): void {
    throw this.#missing();
  }

  /** Answers a request or a REP by a REJ. At most 148 bytes. */
  reject(_connection: CmConnection, _reason: number, _privateData: Uint8Array, _now: Micros): void {
    throw this.#missing();
  }

  /** Sends a DREQ, or answers that of the peer by a DREP. Does nothing once that was done. */
  disconnect(_connection: CmConnection, _now: Micros): void {
    throw this.#missing();
  }

  /** The owner forgets it, in any state: it gets no more events. The peer is told. */
  destroy(_which: CmConnection | CmListener, _now: Micros): void {
    throw this.#missing();
  }

  // Inputs

  /** A MAD came to QP 1 of `port`; GIDs are those of its datagram. False when it was dropped. */
  handleMad(
    _mad: Uint8Array,
    _port: CmPort,
    _sourceGid: Uint8Array,
    _destGid: Uint8Array,
    _now: Micros,
  ): boolean {
    return false;
  }

  /** Fires what is due. */
  handleDeadline(_now: Micros): void {}

  // Outputs

  /** The next thing to do, or undefined. */
  pollEffect(): CmEffect | undefined {
    return undefined;
  }

  /** When `handleDeadline` is due next; NEVER if there is no deadline. */
  nextDeadline(): Micros {
    return NEVER;
  }

  // Getters

  /** How the connection's queue pair enters INIT, RTR or RTS. EINVAL for other states. */
  qpAttributes(_connection: CmConnection, _state: QPState): QPModification {
    throw this.#missing();
  }

  #missing(): VerbsError {
    return new VerbsError('EOPNOTSUPP', `not yet, with at most ${this.#limits.connectionsMax}`);
  }
}
