/**
 * The communication manager of a host for all its RoCE ports (IBTA chapter 12): connections of RC and UC
 * queue pairs, and service queries for UD.
 *
 * Commands and `handle*` inputs go in, effects come out of `pollEffect`, and `nextDeadline` returns when
 * `handleDeadline` is due. The caller moves the queue pairs, with `qpAttributes`. A command in a wrong state
 * throws `VerbsError` EINVAL and changes nothing.
 *
 * message-handlers.ts handles the messages of peers.
 */
import { type Micros, NEVER } from '#base/time';
import { type QPState, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import { CmAnswered, RejectReason, SidrStatus, writeCmMessage } from '../wire/cm-message.ts';
import type { CmConnection, CmState } from './cm-connection.ts';
import { CmCore, type CmCounters } from './cm-core.ts';
import type { IbCmEffect } from './cm-events.ts';
import { CmListener, type ListenScope } from './cm-listener.ts';
import { type CmPath, type CmPort, sameGid } from './cm-path.ts';
import {
  ACK_DELAY,
  ackTimeout,
  CM_RETRIES,
  CONFIRM_MAX_MICROS,
  exponentMicros,
  RESPONSE_TIMEOUT,
  resendMicros,
} from './cm-times.ts';
import {
  type CmAccount,
  type CmEndFacts,
  type CmService,
  DEFAULT_IB_CM_LIMITS,
  type IbCmLimits,
  type IbCmRequest,
} from './cm-types.ts';
import { MessageHandlers } from './message-handlers.ts';
import { queuePairMove } from './queue-pair-moves.ts';

interface CommunicationManagerOptions {
  /** A random source: peers must not be able to guess these numbers. */
  readonly random32: () => number;
  readonly limits?: Partial<IbCmLimits> | undefined;
  /** The account for the connections of an owner or a listener. Default: none. */
  readonly accountOf?: ((tag: unknown) => CmAccount | undefined) | undefined;
}

/** Permissive LID: a path through a router has none (IBTA 12.6.5). */
const NO_LID = 0xffff;
const RETRY_MAX = 7;
/** Limits of private data, in bytes. */
const PrivateDataMax = { req: 92, rep: 196, rej: 148, sidrReq: 216, sidrRep: 136 } as const;
const NO_BYTES = new Uint8Array(0);

export class CommunicationManager {
  readonly #core: CmCore;
  readonly #handlers: MessageHandlers;

  constructor(options: CommunicationManagerOptions) {
    const { random32, limits, accountOf = () => undefined } = options;
    this.#core = new CmCore(random32, { ...DEFAULT_IB_CM_LIMITS, ...limits }, accountOf);
    this.#handlers = new MessageHandlers(this.#core);
  }

  // Commands

  /**
   * Listens for `serviceId`. Requests held for it are reported at once. `backlog` of 0 or less, or above the
   * limit, becomes the limit. Throws EADDRINUSE if a listener with this scope exists.
   */
  listen(serviceId: number, scope: ListenScope, backlog: number, tag: unknown): CmListener {
    const { listeners, limits } = this.#core;
    const others = listeners.get(serviceId) ?? new Set();
    const max = limits.backlogMax;
    const wanted = backlog > 0 && backlog <= max ? Math.trunc(backlog) : max;
    for (const other of others) {
      if (sameScope(other.scope, scope)) {
        throw new VerbsError('EADDRINUSE', 'the service id already has a listener');
      }
    }
    const listener = new CmListener(serviceId, scope, wanted, tag);
    listeners.set(serviceId, others.add(listener));
    this.#handlers.admitEarly(listener);
    return listener;
  }

  /** Sends a REQ; 'reply', 'rejected' or 'unreachable' follows. Throws EINVAL, ENOMEM. */
  connect(request: IbCmRequest, tag: unknown, now: Micros): CmConnection {
    checkLength(request.privateData, PrivateDataMax.req);
    const { path, type } = request;
    const core = this.#core;
    const transaction = core.transaction();
    const connection = core.make(
      { role: 'active', state: 'req-sent', type, path, transaction, tag },
      0,
    );
    connection.local = copied(request);
    connection.retryCount = Math.min(request.retryCount, RETRY_MAX);
    if (request.ackTimeout !== undefined) {
      connection.timeout = request.ackTimeout;
      connection.timeoutChosen = true;
    }
    core.table.add(connection);
    const mad = writeCmMessage('REQ', transaction, {
      localCommId: connection.localCommId,
      serviceIdLo: request.serviceId,
      localCaGuid: path.port.guid,
      localQpn: request.qpn,
      responderResources: request.responderResources,
      initiatorDepth: request.initiatorDepth,
      remoteResponseTimeout: RESPONSE_TIMEOUT,
      transportService: type === QPType.uc ? 1 : 0,
      flowControl: Number(request.flowControl),
      startingPsn: connection.startingPsn,
      localResponseTimeout: RESPONSE_TIMEOUT,
      retryCount: connection.retryCount,
      pkey: path.pkey,
      pathMtu: path.pathMtu,
      rnrRetry: Math.min(request.rnrRetry, RETRY_MAX),
      maxCmRetries: CM_RETRIES,
      srq: Number(request.srq),
      localLid: NO_LID,
      remoteLid: NO_LID,
      localGid: path.sgid,
      remoteGid: path.dgid,
      flowLabel: path.flowLabel,
      trafficClass: path.trafficClass,
      hopLimit: path.hopLimit,
      localAckTimeout: ackTimeout(ACK_DELAY, path.packetLifeTime),
      privateData: request.privateData,
    });
    const micros = resendMicros(RESPONSE_TIMEOUT, path.packetLifeTime);
    core.ask(connection, mad, { micros, retries: CM_RETRIES, most: NEVER }, now);
    return connection;
  }

  /** Sends a SIDR REQ; 'service-reply' or 'unreachable' follows. Throws EINVAL, ENOMEM. */
  askService(
    serviceId: number,
    path: CmPath,
    privateData: Uint8Array,
    tag: unknown,
    now: Micros,
  ): CmConnection {
    checkLength(privateData, PrivateDataMax.sidrReq);
    const core = this.#core;
    const transaction = core.transaction();
    const connection = core.make(
      { role: 'active', state: 'sidr-req-sent', type: QPType.ud, path, transaction, tag },
      0,
    );
    core.table.add(connection);
    const mad = writeCmMessage('SIDR_REQ', transaction, {
      requestId: connection.localCommId,
      pkey: path.pkey,
      serviceIdLo: serviceId,
      privateData,
    });
    const micros = exponentMicros(RESPONSE_TIMEOUT);
    core.ask(connection, mad, { micros, retries: CM_RETRIES, most: NEVER }, now);
    return connection;
  }

  /**
   * Answers a request with a REP; 'established', 'rejected' or 'unreachable' follows. Throws EINVAL also for
   * too much private data.
   */
  accept(connection: CmConnection, reply: CmEndFacts, now: Micros): void {
    expect(connection, 'req-rcvd');
    checkLength(reply.privateData, PrivateDataMax.rep);
    const core = this.#core;
    connection.local = copied(reply);
    connection.transition('rep-sent');
    core.answered(connection);
    const mad = writeCmMessage('REP', connection.transaction, {
      localCommId: connection.localCommId,
      remoteCommId: connection.remoteCommId,
      localQpn: reply.qpn,
      startingPsn: connection.startingPsn,
      responderResources: reply.responderResources,
      initiatorDepth: reply.initiatorDepth,
      targetAckDelay: ACK_DELAY,
      flowControl: Number(reply.flowControl),
      rnrRetry: Math.min(reply.rnrRetry, RETRY_MAX),
      srq: Number(reply.srq),
      localCaGuid: connection.path.port.guid,
      privateData: reply.privateData,
    });
    const { resendMicros: micros, resendsLeft: retries } = connection;
    core.ask(connection, mad, { micros, retries, most: CONFIRM_MAX_MICROS }, now);
  }

  /** Answers a SIDR REQ. Throws EINVAL also for too much private data. */
  answerService(connection: CmConnection, service: CmService, now: Micros): void {
    expect(connection, 'sidr-req-rcvd');
    checkLength(service.privateData, PrivateDataMax.sidrRep);
    const { path, remoteCommId: requestId, transaction } = connection;
    const mad = writeCmMessage('SIDR_REP', transaction, {
      requestId,
      status: service.status,
      qpn: service.qpn,
      serviceIdLo: connection.listener?.serviceId ?? 0,
      qkey: service.qkey,
      privateData: service.privateData,
    });
    this.#core.send(path, mad);
    const question = { name: 'SIDR_REQ', number: requestId, transaction } as const;
    this.#core.answers.keep(path.dgid, question, mad, now);
    this.#core.forget(connection);
  }

  /** Answers a REP with the RTU. Our queue pair must be in RTS. */
  establish(connection: CmConnection): void {
    expect(connection, 'rep-rcvd');
    connection.transition('established');
    connection.message = this.#core.say(connection, 'RTU', {});
  }

  /** Reports data that arrived before the peer's RTU: 'established' follows. Does nothing in other states. */
  noteCommunication(connection: CmConnection): void {
    if (connection.state !== 'rep-sent' && connection.state !== 'mra-rep-rcvd') return;
    this.#handlers.establishPassive(connection);
  }

  /** Answers a request or a REP with a REJ. Throws EINVAL also for too much private data. */
  reject(connection: CmConnection, reason: number, privateData: Uint8Array, now: Micros): void {
    expect(connection, 'req-rcvd', 'rep-rcvd');
    checkLength(privateData, PrivateDataMax.rej);
    const { path, remoteCommId: number, transaction } = connection;
    if (connection.state === 'rep-rcvd') {
      const rejected = { message: CmAnswered.rep, reason, privateData };
      connection.message = this.#core.say(connection, 'REJ', rejected);
      this.#core.enterTimewait(connection, now);
      return;
    }
    const rejected = { message: CmAnswered.req, reason, privateData };
    const mad = this.#core.say(connection, 'REJ', rejected);
    this.#core.answers.keep(path.dgid, { name: 'REQ', number, transaction }, mad, now);
    this.#core.forget(connection);
  }

  /**
   * Sends a DREQ, after which 'disconnected' follows, or answers the peer's DREQ with a DREP. A second call
   * does nothing. Throws EINVAL without a connection.
   */
  disconnect(connection: CmConnection, now: Micros): void {
    const core = this.#core;
    switch (connection.state) {
      case 'rep-sent':
      case 'mra-rep-rcvd':
      case 'established': {
        // The peer may have no reply, and ignore the DREQ.
        if (connection.state !== 'established') core.refuseRepeats(connection, now);
        connection.transition('dreq-sent');
        core.halfOpen.delete(connection);
        connection.transaction = core.transaction();
        const { localCommId, remoteCommId, transaction, remote, path } = connection;
        const mad = writeCmMessage('DREQ', transaction, {
          localCommId,
          remoteCommId,
          remoteQpn: remote?.qpn ?? 0,
        });
        const micros = resendMicros(RESPONSE_TIMEOUT, path.packetLifeTime);
        core.ask(connection, mad, { micros, retries: CM_RETRIES, most: NEVER }, now);
        return;
      }
      case 'dreq-rcvd':
        connection.message = core.say(connection, 'DREP', {});
        core.enterTimewait(connection, now);
        return;
      case 'dreq-sent':
      case 'timewait':
      case 'idle':
        return;
      default:
        throw invalid(`cannot disconnect a connection in state ${connection.state}`);
    }
  }

  /** Releases a connection or listener in any state: no more events. Notifies the peer. */
  destroy(which: CmConnection | CmListener, now: Micros): void {
    if (which instanceof CmListener) this.#destroyListener(which);
    else if (which.owned) this.#destroyConnection(which, now);
  }

  #destroyListener(listener: CmListener): void {
    const { listeners } = this.#core;
    const others = listeners.get(listener.serviceId);
    if (others?.delete(listener) === true && others.size === 0) {
      listeners.delete(listener.serviceId);
    }
    // Requests that were reported have an owner, which answers them.
    for (const connection of listener.pending) connection.listener = undefined;
    listener.pending.clear();
  }

  #destroyConnection(connection: CmConnection, now: Micros): void {
    const core = this.#core;
    connection.owned = false;
    const { state } = connection;
    switch (state) {
      case 'req-sent':
      case 'mra-req-rcvd':
        core.sayTimeout(connection);
        core.forget(connection);
        return;
      case 'req-rcvd':
      case 'rep-rcvd':
        this.reject(connection, RejectReason.consumerDefined, NO_BYTES, now);
        return;
      case 'sidr-req-rcvd': {
        const refusal = { status: SidrStatus.rejected, qpn: 0, qkey: 0, privateData: NO_BYTES };
        this.answerService(connection, refusal, now);
        return;
      }
      case 'sidr-req-sent':
        core.forget(connection);
        return;
      case 'rep-sent':
      case 'mra-rep-rcvd':
        core.say(connection, 'REJ', {
          message: CmAnswered.rep,
          reason: RejectReason.consumerDefined,
        });
        // Also sends a DREQ, which is repeated, in case the REJ is lost.
        this.disconnect(connection, now);
        return;
      case 'established':
      case 'dreq-rcvd':
        // The disconnect completes without an owner.
        this.disconnect(connection, now);
        return;
      case 'dreq-sent':
      case 'timewait':
      case 'idle':
        return;
      default:
        state satisfies never;
    }
  }

  // Inputs

  /** A MAD arrived at QP 1 of `port`. The GIDs are those of its datagram. */
  handleMad(
    mad: Uint8Array,
    port: CmPort,
    sourceGid: Uint8Array,
    destGid: Uint8Array,
    now: Micros,
  ): void {
    this.#handlers.handleMad(mad, { port, sourceGid, destGid }, now);
  }

  handleDeadline(now: Micros): void {
    this.#core.handleDeadline(now);
    this.#handlers.handleDeadline(now);
  }

  // Outputs

  pollEffect(): IbCmEffect | undefined {
    return this.#core.pollEffect();
  }

  /** When `handleDeadline` is due next; NEVER if there is no deadline. */
  nextDeadline(): Micros {
    return this.#core.nextDeadline();
  }

  // Getters

  /** The attributes to enter INIT, RTR or RTS. Throws EINVAL for other states. */
  qpAttributes(connection: CmConnection, state: QPState): QPModification {
    return queuePairMove(connection, state);
  }

  get counters(): Readonly<CmCounters> {
    return this.#core.counters;
  }

  /** How much the manager holds, for simulations and tests. */
  heldCounts(): ReturnType<CmCore['heldCounts']> {
    return this.#core.heldCounts();
  }

  /** Checks all invariants, between commands; for simulations and tests. Throws `InvariantError`. */
  assertInvariants(): void {
    this.#core.assertInvariants();
  }
}

function expect({ state }: CmConnection, ...states: CmState[]): void {
  if (!states.includes(state)) {
    throw invalid(`the connection is in state ${state}; this call needs ${states.join(' or ')}`);
  }
}

function checkLength({ length }: Uint8Array, max: number): void {
  if (length > max) {
    throw invalid(`private data has ${length} bytes; the limit for this message is ${max}`);
  }
}

function copied(facts: CmEndFacts): CmEndFacts {
  return { ...facts, privateData: NO_BYTES };
}

function sameScope(a: ListenScope, b: ListenScope): boolean {
  if (a.port !== b.port || a.family !== b.family) return false;
  if (a.gid === undefined || b.gid === undefined) return a.gid === b.gid;
  return sameGid(a.gid, b.gid);
}
