/**
 * State that commands and message handlers share: connections, listeners, resends, and the queue of effects.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import {
  CmAnswered,
  type CmFields,
  type CmMessageName,
  RejectReason,
  type Transaction,
  writeCmMessage,
} from '../wire/cm-message.ts';
import { CmConnection, type CmConnectionInit } from './cm-connection.ts';
import type { IbCmEffect, IbCmEvent } from './cm-events.ts';
import type { CmListener } from './cm-listener.ts';
import type { CmPath } from './cm-path.ts';
import { ACK_DELAY, ackTimeout, exponentMicros, timewaitMicros } from './cm-times.ts';
import type { CmAccount, IbCmLimits } from './cm-types.ts';
import { ConnectionTable } from './connection-table.ts';
import { EarlyRequests } from './early-requests.ts';
import { HalfOpen } from './half-open.ts';
import { KeptAnswers } from './kept-answers.ts';

/**
 * How long answers are kept: 275 s after the request arrived for the last time. A peer that an MRA has told to
 * wait repeats it every 34 s, and repeats may be lost.
 */
const ANSWER_KEPT_MICROS = exponentMicros(26);

const PSN_MASK = 0xff_ffff;

/** Messages of peers that had no effect, and our resends. */
export class CmCounters {
  /** MADs of other classes, and malformed ones. */
  malformed = 0;
  /** Requests beyond a limit. */
  refused = 0;
  /** Repeats of a message that was already handled. */
  duplicates = 0;
  /** Messages for no connection, or illegal in its state. */
  strays = 0;
  /** Messages that we sent again. */
  repeats = 0;
}

/** Expired connections handled in one call, since each may send. The others stay due. */
const EXPIRED_MAX = 128;

export class CmCore {
  readonly limits: IbCmLimits;
  readonly table: ConnectionTable = new ConnectionTable();
  readonly answers: KeptAnswers = new KeptAnswers(ANSWER_KEPT_MICROS);
  readonly halfOpen: HalfOpen;
  readonly early: EarlyRequests;
  readonly listeners = new Map<number, Set<CmListener>>();
  readonly counters = new CmCounters();
  readonly #random32: () => number;
  readonly #accountOf: (tag: unknown) => CmAccount | undefined;
  readonly #transactionHi: number;
  #transactionLo = 0;
  #effects: IbCmEffect[] = [];
  #polled = 0;
  /** Connections with a deadline. `#due` is a lower bound of all deadlines. */
  readonly #timed = new Set<CmConnection>();
  #due: Micros = NEVER;

  constructor(
    random32: () => number,
    limits: IbCmLimits,
    accountOf: (tag: unknown) => CmAccount | undefined,
  ) {
    this.#random32 = random32;
    this.#accountOf = accountOf;
    this.#transactionHi = random32() >>> 0;
    this.limits = limits;
    this.halfOpen = new HalfOpen(limits.halfOpenMax, limits.halfOpenPerAddressMax);
    this.early = new EarlyRequests(limits.earlyMax, limits.earlyPerAddressMax);
  }

  // Connections

  /** Makes a connection that is not in the table yet. Throws ENOMEM, or what its account throws. */
  make(
    init: Omit<CmConnectionInit, 'localCommId' | 'startingPsn' | 'account'>,
    remoteCommId: number,
  ): CmConnection {
    const { connectionsMax } = this.limits;
    if (this.table.size >= connectionsMax) {
      throw new VerbsError('ENOMEM', `limit of ${connectionsMax} RoCE connections reached`);
    }
    const account = this.#accountOf(init.tag);
    account?.take('roceConnections');
    const localCommId = this.#newCommId();
    const startingPsn = this.#random32() & PSN_MASK;
    const connection = new CmConnection(
      { ...init, account, localCommId, startingPsn },
      ackTimeout(ACK_DELAY, init.path.packetLifeTime),
    );
    connection.remoteCommId = remoteCommId;
    return connection;
  }

  /** True if this owner may have another connection. */
  hasRoomFor(tag: unknown): boolean {
    if (this.table.size >= this.limits.connectionsMax) return false;
    const account = this.#accountOf(tag);
    try {
      account?.take('roceConnections');
      account?.give('roceConnections');
      return true;
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return false;
    }
  }

  /** A free number, never 0, which means none. */
  #newCommId(): number {
    for (;;) {
      const number = this.#random32() >>> 0;
      if (number !== 0 && !this.table.has(number)) return number;
    }
  }

  transaction(): Transaction {
    this.#transactionLo = (this.#transactionLo + 1) >>> 0;
    return { hi: this.#transactionHi, lo: this.#transactionLo };
  }

  /** Closes the connection and removes it. */
  forget(connection: CmConnection): void {
    this.settle(connection);
    this.answered(connection);
    this.halfOpen.delete(connection);
    this.table.delete(connection);
    connection.account?.give('roceConnections');
    connection.message = undefined;
    connection.transition('idle');
  }

  /** Starts timewait: no new packets, and old ones may still be in flight. */
  enterTimewait(connection: CmConnection, now: Micros): void {
    this.answered(connection);
    this.halfOpen.delete(connection);
    this.table.forgetRemoteQp(connection);
    connection.transition('timewait');
    connection.givenUpAt = NEVER;
    this.#wakeAt(connection, now + timewaitMicros(connection.timeout));
  }

  /** Frees the request's place in its listener's backlog. */
  answered(connection: CmConnection): void {
    connection.listener?.pending.delete(connection);
    connection.listener = undefined;
  }

  // Output

  pollEffect(): IbCmEffect | undefined {
    const effect = this.#effects[this.#polled];
    if (effect !== undefined) {
      this.#polled += 1;
      return effect;
    }
    this.#effects = [];
    this.#polled = 0;
    return undefined;
  }

  report(event: IbCmEvent): void {
    if (event.connection.owned) this.#effects.push({ type: 'event', event });
  }

  send(path: CmPath, mad: Uint8Array): void {
    this.#effects.push({ type: 'send', path, mad });
  }

  /** Sends a message of a connection once. Fills in both communication ids. */
  say<N extends 'MRA' | 'REJ' | 'REP' | 'RTU' | 'DREQ' | 'DREP'>(
    connection: CmConnection,
    name: N,
    fields: Omit<Partial<CmFields<N>>, 'localCommId' | 'remoteCommId'>,
  ): Uint8Array {
    const mad = this.#messageOf(connection, name, fields);
    this.send(connection.path, mad);
    return mad;
  }

  /** Rejects the request of this connection when it arrives again, rather than report it twice. */
  refuseRepeats({ path, remoteCommId, transaction }: CmConnection, now: Micros): void {
    const mad = writeCmMessage('REJ', transaction, {
      remoteCommId,
      message: CmAnswered.req,
      reason: RejectReason.consumerDefined,
    });
    this.answers.keep(path.dgid, { name: 'REQ', number: remoteCommId, transaction }, mad, now);
  }

  /** Sends a message, then again every `micros` until it is answered: `retries` times, for at most `most`. */
  ask(
    connection: CmConnection,
    mad: Uint8Array,
    times: { readonly micros: Micros; readonly retries: number; readonly most: Micros },
    now: Micros,
  ): void {
    connection.message = mad;
    connection.resendMicros = times.micros;
    connection.resendsLeft = times.retries;
    connection.givenUpAt = now + times.most;
    this.send(connection.path, mad);
    this.#wakeAt(connection, now + times.micros);
  }

  /** Gives the peer more time to answer. */
  extend(connection: CmConnection, micros: Micros, now: Micros): void {
    this.#wakeAt(connection, now + micros);
  }

  /** Stops repeating a message. */
  settle(connection: CmConnection): void {
    connection.deadline = NEVER;
    connection.givenUpAt = NEVER;
    this.#timed.delete(connection);
    if (this.#timed.size === 0) this.#due = NEVER;
  }

  #messageOf<N extends CmMessageName>(
    { localCommId, remoteCommId, transaction }: CmConnection,
    name: N,
    fields: object,
  ): Uint8Array {
    // All messages of a connection begin with both ids.
    const all = { localCommId, remoteCommId, ...fields } as unknown as Partial<CmFields<N>>;
    return writeCmMessage(name, transaction, all);
  }

  // Time

  nextDeadline(): Micros {
    return Math.min(this.#due, this.answers.nextDeadline(), this.early.nextDeadline());
  }

  handleDeadline(now: Micros): void {
    this.answers.handleDeadline(now);
    if (now < this.#due) return;
    this.#due = NEVER;
    let left = EXPIRED_MAX;
    for (const connection of this.#timed) {
      if (connection.deadline <= now && left > 0) {
        left -= 1;
        this.#expire(connection, now);
      }
      this.#due = Math.min(this.#due, connection.deadline);
    }
  }

  #wakeAt(connection: CmConnection, wanted: Micros): void {
    const deadline = Math.min(wanted, connection.givenUpAt);
    connection.deadline = deadline;
    this.#timed.add(connection);
    this.#due = Math.min(this.#due, deadline);
  }

  #expire(connection: CmConnection, now: Micros): void {
    if (connection.state === 'timewait') {
      this.forget(connection);
      this.report({ type: 'timewait-exit', connection });
      return;
    }
    const { message } = connection;
    if (message !== undefined && connection.resendsLeft > 0 && now < connection.givenUpAt) {
      connection.resendsLeft -= 1;
      this.counters.repeats += 1;
      this.send(connection.path, message);
      this.#wakeAt(connection, now + connection.resendMicros);
      return;
    }
    this.settle(connection);
    this.#giveUp(connection, now);
  }

  /** Ends a connection whose peer did not answer any resend. */
  #giveUp(connection: CmConnection, now: Micros): void {
    switch (connection.state) {
      case 'req-sent':
      case 'mra-req-rcvd':
        // The peer must not answer this request later.
        this.sayTimeout(connection);
        this.forget(connection);
        this.report({ type: 'unreachable', connection });
        return;
      case 'rep-sent':
      case 'mra-rep-rcvd':
        this.say(connection, 'REJ', { message: CmAnswered.rep, reason: RejectReason.timeout });
        this.refuseRepeats(connection, now);
        this.enterTimewait(connection, now);
        this.report({ type: 'unreachable', connection });
        return;
      case 'sidr-req-sent':
        this.forget(connection);
        this.report({ type: 'unreachable', connection });
        return;
      case 'dreq-sent':
        this.enterTimewait(connection, now);
        this.report({ type: 'disconnected', connection, timedOut: true });
        return;
      default:
    }
  }

  /** Withdraws an unanswered REQ. The peer finds it by our GUID and id. */
  sayTimeout(connection: CmConnection): void {
    const { guid } = connection.path.port;
    this.say(connection, 'REJ', {
      message: 0,
      reason: RejectReason.timeout,
      infoLength: guid.length,
      info: guid,
    });
  }

  // For tests

  heldCounts(): Readonly<
    Record<
      'ibConnections' | 'ibHalfOpen' | 'ibEarly' | 'ibAnswers' | 'ibEffects' | 'ibListeners',
      number
    >
  > {
    let listeners = 0;
    for (const set of this.listeners.values()) listeners += set.size;
    return {
      ibConnections: this.table.size,
      ibHalfOpen: this.halfOpen.size,
      ibEarly: this.early.size,
      ibAnswers: this.answers.size,
      ibEffects: this.#effects.length - this.#polled,
      ibListeners: listeners,
    };
  }

  /** Throws `InvariantError`. */
  assertInvariants(): void {
    this.table.assertInvariants();
    this.halfOpen.assertInvariants();
    this.early.assertInvariants();
    this.answers.assertInvariants();
    for (const connection of this.#timed) {
      assert(
        this.table.has(connection.localCommId),
        'connection with a deadline is not in the table',
      );
      assert(connection.deadline >= this.#due, 'earliest deadline is too late');
    }
    for (const connection of this.table.all()) {
      const { state, listener } = connection;
      const pending = listener?.pending.has(connection) ?? true;
      assert(pending, 'pending request is not in the backlog of its listener');
      if (state === 'established' || state === 'rep-rcvd') {
        assert(connection.remote !== undefined, `${state} without the attributes of the peer`);
      }
      if (state.endsWith('-sent') || state.startsWith('mra') || state === 'timewait') {
        assert(this.#timed.has(connection), `${state} without a deadline`);
      }
    }
    for (const set of this.listeners.values()) {
      for (const { pending, backlog } of set) {
        assert(pending.size <= backlog, 'backlog exceeded');
      }
    }
  }
}
