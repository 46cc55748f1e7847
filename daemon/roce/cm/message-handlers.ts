/** Handles the messages of peers (IBTA 12.9.8, 12.11). */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { QPType } from '#contract/verbs/enums';
import {
  CmAnswered,
  type CmMessage,
  type CmMessageName,
  parseCmMessage,
  RejectReason,
  SidrStatus,
  writeCmMessage,
} from '../wire/cm-message.ts';
import type { CmConnection, CmState } from './cm-connection.ts';
import type { CmCore } from './cm-core.ts';
import type { CmListener } from './cm-listener.ts';
import { type CmPath, sameGid } from './cm-path.ts';
import {
  ackTimeout,
  boundedMicros,
  exponentMicros,
  lifeTimeOf,
  MRA_MAX_MICROS,
  PEER_ACK_TIMEOUT_MAX,
  PROBE_PAUSE_MICROS,
  SERVICE_TIMEOUT,
} from './cm-times.ts';
import type { CmPeerFacts } from './cm-types.ts';
import type { MadArrival } from './early-requests.ts';

type Message<N extends CmMessageName> = Extract<CmMessage, { readonly name: N }>;

const HOP_LIMIT = 64;
const DEFAULT_PKEY = 0xffff;
/** Packet life time on RoCE; the kernel's value. */
const LIFE_TIME = 18;
/** Private data of a REJ. */
const REJECT_DATA_BYTES = 148;
const PATH_MTU_MAX = 5;
/** States of a request that its peer may withdraw without our id, which it does not know. */
const WITHDRAWABLE: readonly CmState[] = ['req-rcvd', 'rep-sent', 'mra-rep-rcvd'];
/** Transport service of a REQ. */
const SERVICE_TYPES: Readonly<Record<number, QPType | undefined>> = { 0: QPType.rc, 1: QPType.uc };

export class MessageHandlers {
  readonly #core: CmCore;

  constructor(core: CmCore) {
    this.#core = core;
  }

  handleMad(mad: Uint8Array, arrival: MadArrival, now: Micros): void {
    const message = parseCmMessage(mad);
    if (typeof message === 'string') {
      this.#core.counters.malformed += 1;
      return;
    }
    switch (message.name) {
      case 'REQ':
        if (!this.#handleReq(message, arrival, now))
          this.#handleUnclaimed(mad, message, arrival, now);
        return;
      case 'REP':
        this.#handleRep(message, arrival, now);
        return;
      case 'RTU':
        this.#handleRtu(this.#connectionOf(message, arrival));
        return;
      case 'REJ':
        this.#handleRej(message, arrival, now);
        return;
      case 'MRA':
        this.#handleMra(message, arrival, now);
        return;
      case 'DREQ':
        this.#handleDreq(message, arrival, now);
        return;
      case 'DREP':
        this.#handleDrep(this.#connectionOf(message, arrival), now);
        return;
      case 'SIDR_REQ':
        this.#handleSidrReq(message, arrival, now);
        return;
      case 'SIDR_REP':
        this.#handleSidrRep(message, arrival);
        return;
      default:
        message satisfies never;
    }
  }

  establishPassive(connection: CmConnection): void {
    const core = this.#core;
    core.settle(connection);
    core.halfOpen.delete(connection);
    core.table.noteRemoteQp(connection);
    connection.transition('established');
    core.report({ type: 'established', connection });
  }

  /** Reports held requests that a new listener accepts. */
  admitEarly(listener: CmListener): void {
    const { early } = this.#core;
    const matches = ({ port, destGid }: MadArrival) => listener.matches(port, destGid);
    for (const { mad, arrival, since } of early.takeMatching(listener.serviceId, matches)) {
      this.#handleReq(requestIn(mad), arrival, since);
    }
  }

  /** Rejects requests that found no listener in time. */
  handleDeadline(now: Micros): void {
    for (const { mad, arrival } of this.#core.early.takeExpired(now)) {
      this.#refuse(requestIn(mad), arrival, RejectReason.invalidServiceId);
    }
  }

  // Requests

  /** False for a request without a listener, which is not answered yet. */
  #handleReq(message: Message<'REQ'>, arrival: MadArrival, now: Micros): boolean {
    const { fields, transaction } = message;
    const core = this.#core;
    const { sourceGid } = arrival;
    const question = { name: 'REQ', number: fields.localCommId, transaction } as const;
    const kept = core.answers.recall(sourceGid, question, now);
    if (kept !== undefined) {
      core.counters.duplicates += 1;
      core.send(this.#pathBack(arrival), kept);
      return true;
    }
    const known = core.table.findRemoteId(sourceGid, fields.localCommId);
    if (known !== undefined) {
      this.#handleKnownReq(known, message, arrival);
      return true;
    }
    const listener = this.#listenerFor(fields.serviceIdHi, fields.serviceIdLo, arrival);
    if (listener === undefined) return false;
    const reason = this.#objectionTo(message, arrival);
    const stale = core.table.findRemoteQp(sourceGid, fields.localQpn);
    if (reason !== undefined) this.#refuse(message, arrival, reason);
    else if (stale !== undefined) {
      this.#refuse(message, arrival, RejectReason.staleConnection);
      this.#probe(stale, now);
    } else this.#admit(message, arrival, listener);
    return true;
  }

  /** Holds or rejects a request without a listener; see early-requests.ts. */
  #handleUnclaimed(
    mad: Uint8Array,
    message: Message<'REQ'>,
    arrival: MadArrival,
    now: Micros,
  ): void {
    const { early, table, counters } = this.#core;
    const { serviceIdHi, serviceIdLo: serviceId, localCommId: commId } = message.fields;
    if (early.has(arrival.sourceGid, commId)) {
      counters.duplicates += 1;
      return;
    }
    const mayComeUp = serviceIdHi === 0 && this.#objectionTo(message, arrival) === undefined;
    if (mayComeUp && table.hasComeFrom(arrival.sourceGid)) {
      if (early.hold(mad, arrival, { serviceId, commId }, now)) return;
      counters.refused += 1;
    }
    this.#refuse(message, arrival, RejectReason.invalidServiceId);
  }

  #handleKnownReq(known: CmConnection, message: Message<'REQ'>, arrival: MadArrival): void {
    const core = this.#core;
    const { transaction } = message;
    const repeated =
      known.transaction.hi === transaction.hi && known.transaction.lo === transaction.lo;
    if (!repeated && known.state !== 'timewait') {
      this.#refuse(message, arrival, RejectReason.duplicateCommId);
      return;
    }
    core.counters.duplicates += 1;
    if (known.state === 'req-rcvd') {
      const serviceTimeout = SERVICE_TIMEOUT;
      core.say(known, 'MRA', { message: CmAnswered.req, serviceTimeout });
    } else if (known.state === 'rep-sent' || known.state === 'mra-rep-rcvd') {
      if (known.message !== undefined) core.send(known.path, known.message);
    } else if (known.state === 'timewait') {
      this.#refuse(message, arrival, RejectReason.staleConnection);
    }
  }

  /**
   * A new request names the queue pair of this connection. Either the peer has forgotten the connection, or
   * the message is forged. So probe with a DREQ for a queue pair that no connection has: a peer that knows
   * the connection ignores it, one that does not sends a DREP.
   */
  #probe(connection: CmConnection, now: Micros): void {
    const { state, localCommId, remoteCommId, path } = connection;
    if (state !== 'established' || now < connection.probeAgainAt) return;
    connection.probeAgainAt = now + PROBE_PAUSE_MICROS;
    const core = this.#core;
    const numbers = { localCommId, remoteCommId, remoteQpn: 0 };
    core.send(path, writeCmMessage('DREQ', core.transaction(), numbers));
  }

  /** Why a request is invalid; undefined if it is not. */
  #objectionTo({ fields }: Message<'REQ'>, arrival: MadArrival): number | undefined {
    const { transportService, extendedTransport, pathMtu, localGid, remoteGid } = fields;
    if (SERVICE_TYPES[transportService] === undefined || extendedTransport !== 0) {
      return RejectReason.invalidServiceType;
    }
    // A connection leads back to its sender only, not to a third address that it names.
    if (!sameGid(localGid, arrival.sourceGid)) return RejectReason.primaryGid;
    if (!sameGid(remoteGid, arrival.destGid)) return RejectReason.primaryGid;
    if (arrival.port.indexOf(arrival.destGid) === undefined) return RejectReason.primaryGid;
    return pathMtu < 1 || pathMtu > PATH_MTU_MAX ? RejectReason.invalidMtu : undefined;
  }

  #admit(message: Message<'REQ'>, arrival: MadArrival, listener: CmListener): void {
    const core = this.#core;
    const { fields, transaction } = message;
    const { sourceGid } = arrival;
    if (listener.pending.size >= listener.backlog) {
      core.counters.refused += 1;
      this.#refuse(message, arrival, RejectReason.noResources);
      return;
    }
    if (!this.#hasRoom(sourceGid, listener)) return;
    const path: CmPath = {
      ...this.#pathBack(arrival),
      flowLabel: fields.flowLabel,
      hopLimit: fields.hopLimit === 0 ? HOP_LIMIT : fields.hopLimit,
      trafficClass: fields.trafficClass,
      pkey: fields.pkey,
      pathMtu: fields.pathMtu,
      packetLifeTime: lifeTimeOf(fields.localAckTimeout),
    };
    const type = SERVICE_TYPES[fields.transportService] ?? QPType.rc;
    const { tag } = listener;
    const connection = core.make(
      { role: 'passive', state: 'req-rcvd', type, path, transaction, tag },
      fields.localCommId,
    );
    const remote = factsOf(fields);
    connection.remote = remote;
    connection.retryCount = fields.retryCount;
    // 0 would mean no timeout.
    if (fields.localAckTimeout > 0) {
      connection.timeout = Math.min(fields.localAckTimeout, PEER_ACK_TIMEOUT_MAX);
    }
    connection.resendMicros = boundedMicros(fields.localResponseTimeout);
    connection.resendsLeft = fields.maxCmRetries;
    connection.listener = listener;
    listener.pending.add(connection);
    core.table.add(connection);
    core.halfOpen.add(connection);
    core.report({ type: 'request', connection, listener, request: remote });
  }

  #hasRoom(gid: Uint8Array, { tag }: CmListener): boolean {
    const core = this.#core;
    const place = core.halfOpen.placeFor(gid);
    if (place === undefined || !core.hasRoomFor(tag)) {
      // The peer repeats a request that is not answered.
      core.counters.refused += 1;
      return false;
    }
    if (place !== 'none') {
      core.forget(place);
      core.report({ type: 'unreachable', connection: place });
    }
    return true;
  }

  /** Sends a REJ for a request without a connection. */
  #refuse({ fields, transaction }: Message<'REQ'>, arrival: MadArrival, reason: number): void {
    const mad = writeCmMessage('REJ', transaction, {
      remoteCommId: fields.localCommId,
      message: CmAnswered.req,
      reason,
    });
    this.#core.send(this.#pathBack(arrival), mad);
  }

  /** The most specific listener. */
  #listenerFor(
    serviceIdHi: number,
    serviceIdLo: number,
    { port, destGid }: MadArrival,
  ): CmListener | undefined {
    if (serviceIdHi !== 0) return undefined;
    let best: CmListener | undefined;
    for (const listener of this.#core.listeners.get(serviceIdLo) ?? []) {
      if (!listener.matches(port, destGid)) continue;
      if (best === undefined || listener.rank > best.rank) best = listener;
    }
    return best;
  }

  // Answers

  #handleRep(message: Message<'REP'>, arrival: MadArrival, now: Micros): void {
    const { fields } = message;
    const core = this.#core;
    const connection = core.table.find(fields.remoteCommId, arrival.sourceGid);
    if (connection === undefined || connection.role !== 'active') {
      core.counters.strays += 1;
      this.#refuseRep(message, arrival, RejectReason.invalidCommId);
      return;
    }
    const { state } = connection;
    if (state === 'req-sent' || state === 'mra-req-rcvd') {
      const stale = core.table.findRemoteQp(arrival.sourceGid, fields.localQpn);
      if (stale !== undefined) {
        this.#probe(stale, now);
        this.#refuseRep(message, arrival, RejectReason.staleConnection);
        core.forget(connection);
        core.report({
          type: 'rejected',
          connection,
          reason: RejectReason.staleConnection,
          privateData: new Uint8Array(REJECT_DATA_BYTES),
        });
        return;
      }
      core.settle(connection);
      connection.remoteCommId = fields.localCommId;
      const remote = factsOf(fields);
      connection.remote = remote;
      if (!connection.timeoutChosen) {
        const { packetLifeTime } = connection.path;
        const wanted = ackTimeout(fields.targetAckDelay, packetLifeTime);
        connection.timeout = Math.min(wanted, Math.max(PEER_ACK_TIMEOUT_MAX, connection.timeout));
      }
      core.table.noteRemoteQp(connection);
      connection.transition('rep-rcvd');
      connection.message = undefined;
      core.report({ type: 'reply', connection, reply: remote });
      return;
    }
    if (connection.remoteCommId !== fields.localCommId) {
      core.counters.strays += 1;
      return;
    }
    core.counters.duplicates += 1;
    if (state === 'rep-rcvd') {
      core.say(connection, 'MRA', { message: CmAnswered.rep, serviceTimeout: SERVICE_TIMEOUT });
    } else if (connection.message !== undefined) {
      // Resends the RTU, or the REJ if the program refused the REP.
      core.send(connection.path, connection.message);
    }
  }

  /** Sends a REJ for a REP whose connection is gone. */
  #refuseRep({ fields, transaction }: Message<'REP'>, arrival: MadArrival, reason: number): void {
    const mad = writeCmMessage('REJ', transaction, {
      localCommId: fields.remoteCommId,
      remoteCommId: fields.localCommId,
      message: CmAnswered.rep,
      reason,
    });
    this.#core.send(this.#pathBack(arrival), mad);
  }

  #handleRtu(connection: CmConnection | undefined): void {
    if (connection === undefined) return;
    if (connection.state === 'rep-sent' || connection.state === 'mra-rep-rcvd') {
      this.establishPassive(connection);
    } else this.#core.counters.duplicates += 1;
  }

  #handleRej(message: Message<'REJ'>, arrival: MadArrival, now: Micros): void {
    const { fields } = message;
    const core = this.#core;
    const connection = this.#rejectedBy(message, arrival);
    if (connection === undefined) {
      const { remoteCommId, localCommId } = fields;
      const early = remoteCommId === 0 && core.early.withdraw(arrival.sourceGid, localCommId);
      if (!early) core.counters.strays += 1;
      return;
    }
    const { state } = connection;
    switch (state) {
      case 'req-sent':
      case 'mra-req-rcvd':
        core.forget(connection);
        break;
      case 'req-rcvd':
      case 'rep-sent':
      case 'mra-rep-rcvd':
        this.#withdraw(connection, now);
        break;
      case 'rep-rcvd':
      case 'established':
        connection.message = undefined;
        core.enterTimewait(connection, now);
        break;
      case 'dreq-sent':
        // The peer has forgotten the connection: no DREP will come.
        core.enterTimewait(connection, now);
        core.report({ type: 'disconnected', connection, timedOut: false });
        return;
      default:
        core.counters.strays += 1;
        return;
    }
    core.report({
      type: 'rejected',
      connection,
      reason: fields.reason,
      privateData: fields.privateData,
    });
  }

  /** The peer withdrew its request. A late copy from the network is ignored. */
  #withdraw(connection: CmConnection, now: Micros): void {
    this.#core.refuseRepeats(connection, now);
    this.#core.forget(connection);
  }

  #rejectedBy({ fields }: Message<'REJ'>, { sourceGid }: MadArrival): CmConnection | undefined {
    const { table } = this.#core;
    const { remoteCommId, localCommId, reason, message } = fields;
    if (remoteCommId === 0) {
      // The peer withdraws its request before it knows our id.
      const withdrawn = reason === RejectReason.timeout && message === CmAnswered.req;
      const found = withdrawn ? table.findRemoteId(sourceGid, localCommId) : undefined;
      return found !== undefined && WITHDRAWABLE.includes(found.state) ? found : undefined;
    }
    const found = table.find(remoteCommId, sourceGid);
    if (found === undefined) return undefined;
    const known = found.remoteCommId;
    return known === 0 || known === localCommId ? found : undefined;
  }

  #handleMra(message: Message<'MRA'>, arrival: MadArrival, now: Micros): void {
    const { fields } = message;
    const core = this.#core;
    const connection = core.table.find(fields.remoteCommId, arrival.sourceGid);
    if (connection === undefined) {
      core.counters.strays += 1;
      return;
    }
    const { state, path } = connection;
    const toReq = fields.message === CmAnswered.req;
    const known = toReq || connection.remoteCommId === fields.localCommId;
    if (known && state === (toReq ? 'mra-req-rcvd' : 'mra-rep-rcvd')) {
      // As in the kernel, a peer gets more time once only, or it could stay half open indefinitely.
      core.counters.duplicates += 1;
      return;
    }
    if (!known || state !== (toReq ? 'req-sent' : 'rep-sent')) {
      core.counters.strays += 1;
      return;
    }
    const asked = boundedMicros(fields.serviceTimeout) + exponentMicros(path.packetLifeTime);
    const micros = Math.min(asked, MRA_MAX_MICROS);
    connection.transition(toReq ? 'mra-req-rcvd' : 'mra-rep-rcvd');
    // As in the kernel, a REQ then waits this long after each repeat. A REP is repeated sooner: if the RTU is
    // lost, only a repeated REP causes another one.
    if (toReq) connection.resendMicros = micros;
    core.extend(connection, micros, now);
  }

  // Disconnecting

  #handleDreq(message: Message<'DREQ'>, arrival: MadArrival, now: Micros): void {
    const { fields, transaction } = message;
    const core = this.#core;
    const connection = core.table.find(fields.remoteCommId, arrival.sourceGid);
    if (connection === undefined) {
      // Closed here already: answer, so that the peer need not wait.
      core.counters.strays += 1;
      const { localCommId: remoteCommId, remoteCommId: localCommId } = fields;
      const mad = writeCmMessage('DREP', transaction, { localCommId, remoteCommId });
      core.send(this.#pathBack(arrival), mad);
      return;
    }
    const { state, local } = connection;
    if (connection.remoteCommId !== fields.localCommId || local?.qpn !== fields.remoteQpn) {
      core.counters.strays += 1;
      return;
    }
    switch (state) {
      case 'rep-sent':
      case 'mra-rep-rcvd':
      case 'established':
        core.settle(connection);
        core.halfOpen.delete(connection);
        connection.transaction = transaction;
        connection.transition('dreq-rcvd');
        core.report({ type: 'disconnect-requested', connection });
        return;
      case 'rep-rcvd':
        // The peer accepted and disconnected before we could answer.
        connection.transaction = transaction;
        connection.message = core.say(connection, 'DREP', {});
        core.enterTimewait(connection, now);
        core.report({
          type: 'rejected',
          connection,
          reason: RejectReason.consumerDefined,
          privateData: new Uint8Array(REJECT_DATA_BYTES),
        });
        return;
      case 'dreq-sent':
        // Both ends disconnect at the same time.
        connection.transaction = transaction;
        connection.message = core.say(connection, 'DREP', {});
        core.enterTimewait(connection, now);
        core.report({ type: 'disconnected', connection, timedOut: false });
        return;
      case 'timewait':
        core.counters.duplicates += 1;
        connection.transaction = transaction;
        core.say(connection, 'DREP', {});
        return;
      default:
        core.counters.duplicates += 1;
    }
  }

  #handleDrep(connection: CmConnection | undefined, now: Micros): void {
    if (connection === undefined) return;
    if (connection.state === 'established' && connection.probeAgainAt > 0) {
      connection.transition('dreq-rcvd');
      this.#core.report({ type: 'disconnect-requested', connection });
      return;
    }
    if (connection.state !== 'dreq-sent') {
      this.#core.counters.duplicates += 1;
      return;
    }
    this.#core.enterTimewait(connection, now);
    this.#core.report({ type: 'disconnected', connection, timedOut: false });
  }

  /** The connection that a message names by both ids. */
  #connectionOf(
    { fields }: Message<'RTU'> | Message<'DREP'>,
    { sourceGid }: MadArrival,
  ): CmConnection | undefined {
    const found = this.#core.table.find(fields.remoteCommId, sourceGid);
    if (found?.remoteCommId === fields.localCommId) return found;
    this.#core.counters.strays += 1;
    return undefined;
  }

  // Services

  #handleSidrReq(
    { fields, transaction }: Message<'SIDR_REQ'>,
    arrival: MadArrival,
    now: Micros,
  ): void {
    const core = this.#core;
    const { sourceGid } = arrival;
    const { requestId, serviceIdHi, serviceIdLo } = fields;
    const question = { name: 'SIDR_REQ', number: requestId, transaction } as const;
    const kept = core.answers.recall(sourceGid, question, now);
    if (kept !== undefined) {
      core.counters.duplicates += 1;
      core.send(this.#pathBack(arrival), kept);
      return;
    }
    if (core.table.findRemoteId(sourceGid, requestId) !== undefined) {
      // The program has not answered yet. SIDR has no MRA to report that.
      core.counters.duplicates += 1;
      return;
    }
    const listener = this.#listenerFor(serviceIdHi, serviceIdLo, arrival);
    if (listener === undefined) {
      const mad = writeCmMessage('SIDR_REP', transaction, {
        requestId,
        status: SidrStatus.noService,
        serviceIdHi,
        serviceIdLo,
      });
      core.send(this.#pathBack(arrival), mad);
      return;
    }
    if (listener.pending.size >= listener.backlog) {
      core.counters.refused += 1;
      return;
    }
    if (!this.#hasRoom(sourceGid, listener)) return;
    const path = { ...this.#pathBack(arrival), pkey: fields.pkey };
    const connection = core.make(
      {
        role: 'passive',
        state: 'sidr-req-rcvd',
        type: QPType.ud,
        path,
        transaction,
        tag: listener.tag,
      },
      requestId,
    );
    connection.listener = listener;
    listener.pending.add(connection);
    core.table.add(connection);
    core.halfOpen.add(connection);
    const { privateData } = fields;
    core.report({ type: 'service-request', connection, listener, privateData });
  }

  #handleSidrRep({ fields }: Message<'SIDR_REP'>, arrival: MadArrival): void {
    const core = this.#core;
    const connection = core.table.find(fields.requestId, arrival.sourceGid);
    if (connection?.state !== 'sidr-req-sent') {
      core.counters.strays += 1;
      return;
    }
    core.forget(connection);
    const { status, qpn, qkey, privateData } = fields;
    core.report({
      type: 'service-reply',
      connection,
      service: { status, qpn, qkey, privateData },
    });
  }

  /** The path back to the sender of a MAD. */
  #pathBack({ port, sourceGid, destGid }: MadArrival): CmPath {
    return {
      port,
      sgid: destGid,
      sgidIndex: port.indexOf(destGid) ?? 0,
      dgid: sourceGid,
      flowLabel: 0,
      hopLimit: HOP_LIMIT,
      trafficClass: 0,
      pkey: DEFAULT_PKEY,
      pathMtu: PATH_MTU_MAX,
      packetLifeTime: LIFE_TIME,
    };
  }
}

/** Parses the MAD of a held request. */
function requestIn(mad: Uint8Array): Message<'REQ'> {
  const message = parseCmMessage(mad);
  assert(typeof message !== 'string' && message.name === 'REQ', 'held MAD is not a REQ');
  return message;
}

/** Facts that the peer announces about its queue pair. */
function factsOf(fields: Message<'REQ'>['fields'] | Message<'REP'>['fields']): CmPeerFacts {
  return {
    qpn: fields.localQpn,
    startingPsn: fields.startingPsn,
    responderResources: fields.responderResources,
    initiatorDepth: fields.initiatorDepth,
    flowControl: fields.flowControl !== 0,
    rnrRetry: fields.rnrRetry,
    srq: fields.srq !== 0,
    privateData: fields.privateData,
  };
}
