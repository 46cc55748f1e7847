/**
 * Forged and late messages between two live ends: their effect on a connection whose numbers the sender
 * does not know, and how long a peer can delay its establishment.
 */
import { beforeEach, describe, expect, it } from 'vitest';
import { QPType } from '#contract/verbs/enums';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import {
  type CmFields,
  type CmMessageName,
  parseCmMessage,
  writeCmMessage,
} from '#daemon/roce/wire/cm-message';
import { NO_BYTES } from '#test/support/hex';
import { type CmEnd, CmPair, FACTS, SERVICE } from '#test/support/ib-cm-pair';

const SECOND = 1_000_000;
/** A number that no end has chosen. */
const INVENTED = 0xbad_cafe;

/** Delivers a message to `to`, from the address of `from`. */
function forge<N extends CmMessageName>(
  [from, to]: readonly [CmEnd, CmEnd],
  name: N,
  fields: Partial<CmFields<N>>,
  transaction = { hi: 0, lo: 7 },
): void {
  const mad = writeCmMessage(name, transaction, fields);
  to.manager.handleMad(mad, to.port, from.gid, to.gid, pair.now);
  pair.settle();
}

/** A REQ as `from` would send it, with an invented number. */
function requestFields(from: CmEnd, to: CmEnd): Partial<CmFields<'REQ'>> {
  const localGid = from.gid;
  const remoteGid = to.gid;
  return { localCommId: INVENTED, serviceIdLo: SERVICE, localGid, remoteGid, pathMtu: 3 };
}

const sentSince = (end: CmEnd, before: number) => end.sent.slice(before);

let pair: CmPair;
let active: CmEnd;
let passive: CmEnd;

function setUp(): void {
  pair = new CmPair();
  ({ active, passive } = pair);
}

beforeEach(setUp);

function established() {
  const listener = passive.listen();
  return { listener, ...pair.established() };
}

/** The dialler's host is rebooted: it has lost the connection. */
function forgetDialer(dialer: CmConnection): void {
  pair.fate = () => [];
  active.manager.destroy(dialer, pair.now);
  pair.advance(200 * SECOND);
  pair.fate = (mad) => [mad];
}

describe('a request that names the queue pair of a connection', () => {
  it.each([
    ['without a listener', true],
    ['that has a listener', false],
  ])('%s ends nothing while the peer has the connection', (_, closed) => {
    const { listener, dialer, acceptor } = established();
    if (closed) passive.manager.destroy(listener, 0);
    for (let time = 0; time < 100; time += 1) {
      const localCommId = INVENTED + time;
      const fields = { ...requestFields(active, passive), localCommId, localQpn: FACTS.qpn };
      forge([active, passive], 'REQ', fields);
      pair.advance(SECOND);
    }
    expect([dialer.state, acceptor.state]).toEqual(['established', 'established']);
    expect([active.events, passive.events]).toEqual([[], []]);
  });

  it('causes one query to the peer in 4 s, however many requests arrive', () => {
    established();
    const before = passive.sent.length;
    for (let count = 0; count < 50; count += 1) {
      const localCommId = INVENTED + count;
      const fields = { ...requestFields(active, passive), localCommId, localQpn: FACTS.qpn };
      forge([active, passive], 'REQ', fields);
    }
    const sent = sentSince(passive, before);
    expect(sent.filter((name) => name === 'REJ')).toHaveLength(50);
    expect(sent.filter((name) => name === 'DREQ')).toHaveLength(1);
    pair.advance(5 * SECOND);
    forge([active, passive], 'REQ', { ...requestFields(active, passive), localQpn: 0x11 });
    expect(passive.sent.filter((name) => name === 'DREQ')).toHaveLength(2);
  });

  it('ends it once the peer reports that it no longer has it', () => {
    const { dialer, acceptor } = established();
    forgetDialer(dialer);
    expect(acceptor.state).toBe('established');
    active.connect(passive, pair.now);
    expect(active.take('rejected').reason).toBe(10);
    expect(passive.take('disconnect-requested').connection).toBe(acceptor);
    passive.manager.disconnect(acceptor, pair.now);
    pair.settle();
    active.connect(passive, pair.now);
    expect(passive.eventTypes).toEqual(['request']);
  });

  it('is accepted while that connection is only half open', () => {
    passive.listen();
    const fields = { ...requestFields(active, passive), localQpn: FACTS.qpn };
    forge([active, passive], 'REQ', { ...fields, maxCmRetries: 15 });
    const forged = passive.take('request').connection;
    pair.fate = () => [];
    passive.manager.accept(forged, FACTS, pair.now);
    pair.settle();
    pair.fate = (mad) => [mad];
    const { acceptor } = pair.established();
    expect([forged.state, acceptor.state]).toEqual(['rep-sent', 'established']);
  });

  it('makes its reply stale, too, and causes a query to the peer', () => {
    const { dialer, acceptor } = established();
    forgetDialer(dialer);
    const scope = { port: undefined, gid: undefined, family: undefined };
    active.manager.listen(SERVICE, scope, 8, 'listener');
    passive.connect(active, pair.now, { qpn: 0x44 });
    pair.settle();
    active.manager.accept(active.take('request').connection, FACTS, pair.now);
    expect(passive.take('rejected').reason).toBe(10);
    expect(passive.take('disconnect-requested').connection).toBe(acceptor);
  });
});

describe('an established connection', () => {
  const FORGED: readonly [string, CmMessageName, (known: number) => object][] = [
    ['a REJ that names one number', 'REJ', (remoteCommId) => ({ remoteCommId, reason: 28 })],
    ['a REJ with a wrong one', 'REJ', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED })],
    ['a DREP', 'DREP', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED })],
    ['an RTU', 'RTU', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED })],
    ['an MRA', 'MRA', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED, message: 1 })],
    ['a REP', 'REP', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED, localQpn: 0x99 })],
    ['a DREQ', 'DREQ', (remoteCommId) => ({ remoteCommId, localCommId: INVENTED, remoteQpn: 17 })],
    ['a SIDR REP', 'SIDR_REP', (requestId) => ({ requestId, qpn: 0x99 })],
  ];

  it.each(FORGED)('is not changed by %s', (_, name, fields) => {
    const { dialer, acceptor } = established();
    forge([active, passive], name, fields(acceptor.localCommId));
    forge([passive, active], name, fields(dialer.localCommId));
    pair.advance(200 * SECOND);
    expect([dialer.state, acceptor.state]).toEqual(['established', 'established']);
    expect([active.events, passive.events]).toEqual([[], []]);
  });

  it('is not withdrawn by the REJ of a request that was not answered', () => {
    const { acceptor } = established();
    const withdrawal = { localCommId: acceptor.remoteCommId, reason: 4, message: 0 };
    forge([active, passive], 'REJ', withdrawal);
    expect(acceptor.state).toBe('established');
    passive.manager.disconnect(acceptor, pair.now);
    forge([active, passive], 'REJ', withdrawal);
    expect(acceptor.state).toBe('dreq-sent');
  });

  it('ends at once when the peer rejects its disconnect', () => {
    const { acceptor } = established();
    pair.fate = () => [];
    passive.manager.disconnect(acceptor, pair.now);
    const { localCommId: remoteCommId, remoteCommId: localCommId } = acceptor;
    forge([active, passive], 'REJ', { remoteCommId, localCommId, message: 2, reason: 6 });
    expect(passive.take('disconnected').timedOut).toBe(false);
    expect(acceptor.state).toBe('timewait');
    pair.advance(200 * SECOND);
    expect(passive.sent.filter((name) => name === 'DREQ')).toHaveLength(1);
    expect(passive.eventTypes).toEqual(['timewait-exit']);
  });
});

describe('a queue pair that a peer reuses while packets may be on their way', () => {
  /** A connection in timewait at both ends. */
  function inTimewait(): void {
    const { dialer, acceptor } = established();
    active.manager.disconnect(dialer, 0);
    passive.take('disconnect-requested');
    passive.manager.disconnect(acceptor, 0);
    active.take('disconnected');
    expect([dialer.state, acceptor.state]).toEqual(['timewait', 'timewait']);
  }

  it('is connected again by a new request', () => {
    inTimewait();
    expect(pair.established().acceptor.state).toBe('established');
  });

  it('is connected again by the answer to one', () => {
    inTimewait();
    const dialer = active.connect(passive, pair.now, { qpn: 0x77 });
    pair.settle();
    // The queue pair of the first connection's acceptor.
    passive.manager.accept(passive.take('request').connection, { ...FACTS, qpn: 0x22 }, pair.now);
    active.take('reply');
    expect(dialer.state).toBe('rep-rcvd');
  });
});

describe('the time of a peer', () => {
  /** A half-open connection whose peer requested the longest timeout. */
  function halfOpen() {
    passive.listen();
    const patient = { localResponseTimeout: 31, maxCmRetries: 15, localAckTimeout: 31 };
    forge([active, passive], 'REQ', { ...requestFields(active, passive), ...patient });
    const { connection } = passive.take('request');
    pair.fate = () => [];
    passive.manager.accept(connection, FACTS, pair.now);
    pair.settle();
    return connection;
  }

  it('to confirm is limited, whatever its request says', () => {
    const connection = halfOpen();
    pair.advance(70 * SECOND);
    passive.take('unreachable');
    expect(passive.manager.heldCounts().ibHalfOpen).toBe(0);
    expect(connection.state).toBe('timewait');
    pair.advance(20 * SECOND);
    expect(connection.state).toBe('idle');
  });

  it('to confirm is limited, however often it extends it', () => {
    const connection = halfOpen();
    const { localCommId: remoteCommId } = connection;
    const more = { localCommId: INVENTED, remoteCommId, message: 1, serviceTimeout: 31 };
    for (let count = 0; count < 100; count += 1) {
      forge([active, passive], 'MRA', more);
      pair.advance(SECOND);
    }
    expect(passive.eventTypes).toContain('unreachable');
    expect(passive.manager.counters.duplicates).toBeGreaterThan(10);
  });

  it('to answer a request is limited, however often it extends it', () => {
    pair.fate = () => [];
    const { localCommId: remoteCommId } = active.connect(passive, 0);
    const more = { localCommId: INVENTED, remoteCommId, message: 0, serviceTimeout: 31 };
    for (let count = 0; count < 1000; count += 1) {
      forge([passive, active], 'MRA', more);
      pair.advance(10 * SECOND);
      if (active.events.length > 0) break;
    }
    active.take('unreachable');
    expect(pair.now).toBeLessThan(10 * 60 * SECOND);
    expect(active.manager.heldCounts().ibConnections).toBe(0);
  });

  it('to acknowledge a packet is limited, at both ends', () => {
    expect(halfOpen().timeout).toBe(22);
    setUp();
    pair.fate = () => [];
    const dial = (ackTimeout: number | undefined) => {
      const request = { ...FACTS, serviceId: SERVICE, type: QPType.rc, ackTimeout };
      const path = active.pathTo(passive);
      const dialer = active.manager.connect({ ...request, path, retryCount: 3 }, undefined, 0);
      const { localCommId: remoteCommId } = dialer;
      const slow = { remoteCommId, localCommId: remoteCommId, localQpn: 9 + (ackTimeout ?? 0) };
      forge([passive, active], 'REP', { ...slow, targetAckDelay: 31 });
      return dialer.timeout;
    };
    // The local program may use any value.
    expect([dial(undefined), dial(30)]).toEqual([22, 30]);
  });
});

describe('a cached reply', () => {
  it('is used for its own request, not for a later one with the same id', () => {
    passive.listen();
    const fields = { ...requestFields(active, passive), localQpn: 5 };
    forge([active, passive], 'REQ', fields, { hi: 1, lo: 1 });
    passive.manager.reject(passive.take('request').connection, 28, NO_BYTES, pair.now);
    const reasons: number[] = [];
    pair.fate = (mad) => {
      const message = parseCmMessage(mad);
      if (typeof message !== 'string' && message.name === 'REJ') {
        reasons.push(message.fields.reason);
      }
      return [];
    };
    pair.settle();
    forge([active, passive], 'REQ', fields, { hi: 1, lo: 1 });
    expect([reasons, passive.events]).toEqual([[28, 28], []]);
    forge([active, passive], 'REQ', fields, { hi: 1, lo: 2 });
    expect(passive.eventTypes).toEqual(['request']);
  });

  it('to a service lookup is used for that lookup', () => {
    passive.listen();
    const fields = { requestId: INVENTED, serviceIdLo: SERVICE };
    const served = { status: 0, qpn: 0x33, qkey: 1, privateData: NO_BYTES };
    forge([active, passive], 'SIDR_REQ', fields, { hi: 1, lo: 1 });
    passive.manager.answerService(passive.take('service-request').connection, served, 0);
    forge([active, passive], 'SIDR_REQ', fields, { hi: 1, lo: 1 });
    expect(passive.events).toEqual([]);
    forge([active, passive], 'SIDR_REQ', fields, { hi: 1, lo: 2 });
    expect(passive.eventTypes).toEqual(['service-request']);
  });
});
