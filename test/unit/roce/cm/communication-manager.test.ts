/** InfiniBand's communication manager: connections between two of them (IBTA 12.9, 12.10). */
import { beforeEach, describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import { type CmMessageName, parseCmMessage, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { NO_BYTES } from '#test/support/hex';
import { CmPair, FACTS, SERVICE } from '#test/support/ib-cm-pair';

const SECOND = 1_000_000;
const NOTHING = {
  ibConnections: 0,
  ibHalfOpen: 0,
  ibEarly: 0,
  ibAnswers: 0,
  ibEffects: 0,
  ibListeners: 0,
};

function listening(): CmPair {
  const pair = new CmPair();
  pair.passive.listen();
  return pair;
}

function fieldsOf(mad: Uint8Array) {
  const message = parseCmMessage(mad);
  if (typeof message === 'string') throw new Error(message);
  return message;
}

let pair: ReturnType<typeof listening>;

beforeEach(() => {
  pair = listening();
});

describe('a communication manager', () => {
  it('is idle at first', () => {
    const { manager } = new CmPair().active;
    expect(manager.pollEffect()).toBeUndefined();
    expect(manager.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  it('connects by REQ, REP and RTU, and passes parameters to both ends', () => {
    const { active, passive } = pair;
    const dialer = active.connect(passive, 0);
    const { connection, listener, request } = passive.take('request');
    expect(listener.tag).toBe('listener');
    expect(connection.tag).toBe('listener');
    expect(request).toMatchObject({ ...FACTS, privateData: expect.anything() });
    expect(request.privateData).toHaveLength(92);
    expect([...request.privateData.subarray(0, 5)]).toEqual([1, 2, 3, 0, 0]);
    passive.manager.accept(connection, { ...FACTS, qpn: 0x22, srq: true, rnrRetry: 2 }, 0);
    const { reply } = active.take('reply');
    expect(reply).toMatchObject({ qpn: 0x22, srq: true, rnrRetry: 2, flowControl: true });
    expect(reply.privateData).toHaveLength(196);
    expect(passive.events).toEqual([]);
    active.manager.establish(dialer);
    expect(passive.take('established').connection).toBe(connection);
    expect([dialer.state, connection.state]).toEqual(['established', 'established']);
    expect([active.sent, passive.sent]).toEqual([['REQ', 'RTU'], ['REP']]);
    expect(active.manager.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
    expect(passive.manager.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  it('moves both queue pairs as the kernel does', () => {
    const { dialer, acceptor } = pair.established();
    const { active, passive } = pair;
    const moves = (manager: typeof active.manager, connection: CmConnection) =>
      [QPState.INIT, QPState.RTR, QPState.RTS].map((state) =>
        manager.qpAttributes(connection, state),
      );
    const [init, rtr, rts] = moves(active.manager, dialer);
    const [, peerRtr, peerRts] = moves(passive.manager, acceptor);
    expect(init).toEqual({ mask: 0x39, state: 1, accessFlags: 0xe, pkeyIndex: 0, portNum: 1 });
    expect(rtr).toMatchObject({
      mask: 0x129181,
      pathMtu: 3,
      destQpNum: 0x22,
      rqPsn: peerRts?.sqPsn,
      maxDestRdAtomic: 5,
      minRnrTimer: 0,
      ahAttr: {
        dgid: passive.gid,
        sgidIndex: 1,
        flowLabel: 0xabcde,
        hopLimit: 64,
        trafficClass: 0x20,
        isGlobal: true,
        portNum: 1,
      },
    });
    expect(rts).toMatchObject({
      mask: 0x12e01,
      timeout: 19,
      retryCnt: 3,
      rnrRetry: 6,
      maxRdAtomic: 5,
    });
    expect(peerRtr).toMatchObject({ destQpNum: 0x11, rqPsn: rts?.sqPsn });
    expect(peerRtr?.ahAttr).toMatchObject({ dgid: active.gid, flowLabel: 0xabcde });
    expect(peerRts).toMatchObject({ timeout: 19, retryCnt: 3, rnrRetry: 6 });
    expect(() => active.manager.qpAttributes(dialer, QPState.SQD)).toThrow('INIT, RTR and RTS');
  });

  it.each([
    [undefined, 19, 19],
    [14, 14, 16],
  ])('with a timeout of %s gives the queue pairs %s and %s', (ackTimeout, own, peer) => {
    const pair = listening();
    const path = { ...pair.active.pathTo(pair.passive), packetLifeTime: (ackTimeout ?? 19) - 1 };
    const request = { ...FACTS, serviceId: SERVICE, type: QPType.rc, path, retryCount: 3 };
    const dialer = pair.active.manager.connect({ ...request, ackTimeout }, undefined, 0);
    const { connection } = pair.passive.take('request');
    pair.passive.manager.accept(connection, FACTS, 0);
    pair.settle();
    expect([dialer.timeout, connection.timeout]).toEqual([own, peer]);
  });

  it('asks for no depths, retries or access on UC', () => {
    const path = pair.active.pathTo(pair.passive);
    const request = { ...FACTS, serviceId: SERVICE, type: QPType.uc, path, retryCount: 3 };
    pair.active.manager.connect({ ...request, ackTimeout: undefined }, undefined, 0);
    const { connection } = pair.passive.take('request');
    expect(connection.type).toBe(QPType.uc);
    const { manager } = pair.passive;
    expect(manager.qpAttributes(connection, QPState.RTR).mask).toBe(0x101181);
    expect(manager.qpAttributes(connection, QPState.RTS).mask).toBe(0x10001);
  });

  it('rejects requests without a listener with reason 8', () => {
    const pair = new CmPair();
    pair.active.connect(pair.passive, 0);
    const { reason, privateData } = pair.active.take('rejected');
    expect([reason, privateData.length]).toEqual([8, 148]);
    expect(pair.active.manager.heldCounts()).toEqual(NOTHING);
    expect(pair.passive.manager.heldCounts()).toEqual(NOTHING);
  });

  it('rejects once, with data of the program', () => {
    const { request } = pair.requested();
    pair.passive.manager.reject(request, 28, Uint8Array.of(9, 8), 0);
    const { reason, privateData } = pair.active.take('rejected');
    expect([reason, privateData.length, privateData[0]]).toEqual([28, 148, 9]);
    expect(() => pair.passive.manager.reject(request, 28, NO_BYTES, 0)).toThrow('idle');
  });

  it('can reject a reply, which ends in timewait', () => {
    const { dialer, request } = pair.requested();
    pair.passive.manager.accept(request, FACTS, 0);
    pair.settle();
    pair.active.manager.reject(dialer, 28, NO_BYTES, 0);
    expect(pair.passive.take('rejected').reason).toBe(28);
    expect([dialer.state, request.state]).toEqual(['timewait', 'idle']);
  });

  it.each<[CmMessageName, number]>([
    ['REQ', 92],
    ['REP', 196],
    ['REJ', 148],
  ])('accepts as much private data as a %s holds', (name, max) => {
    const pair = listening();
    const much = new Uint8Array(max + 1);
    if (name === 'REQ') {
      expect(() => pair.active.connect(pair.passive, 0, { privateData: much })).toThrow('limit');
      expect(pair.active.manager.heldCounts()).toEqual(NOTHING);
      return;
    }
    const { request } = pair.requested();
    const { manager } = pair.passive;
    const act = () =>
      name === 'REP'
        ? manager.accept(request, { ...FACTS, privateData: much }, 0)
        : manager.reject(request, 28, much, 0);
    expect(act).toThrow(`the limit for this message is ${max}`);
    expect(request.state).toBe('req-rcvd');
  });
});

describe('a listener', () => {
  const ALL = { port: undefined, gid: undefined, family: undefined } as const;

  it('has its service exclusively', () => {
    const { active } = new CmPair();
    active.listen();
    expect(() => active.listen()).toThrow('the service id already has a listener');
    active.manager.listen(SERVICE, { ...ALL, family: 4 }, 1, undefined);
    active.manager.listen(SERVICE + 1, ALL, 1, undefined);
  });

  it('that names the address gets a request before one that does not', () => {
    const pair = new CmPair();
    const { manager, gid } = pair.passive;
    manager.listen(SERVICE, ALL, 1, 'all');
    manager.listen(SERVICE, { ...ALL, family: 4 }, 1, 'IPv4');
    manager.listen(SERVICE, { ...ALL, family: 6 }, 1, 'IPv6');
    const own = manager.listen(SERVICE, { ...ALL, gid }, 1, 'own');
    manager.listen(SERVICE, { ...ALL, gid: pair.active.gid }, 1, 'other');
    const chosenListener = () => {
      pair.active.connect(pair.passive, 0, { qpn: pair.active.sent.length });
      pair.settle();
      return pair.passive.take('request').listener.tag;
    };
    expect(chosenListener()).toBe('own');
    manager.destroy(own, 0);
    expect(chosenListener()).toBe('IPv4');
  });

  it('queues up to its backlog, and rejects the next request', () => {
    const pair = new CmPair();
    pair.passive.listen(2);
    for (let qpn = 1; qpn <= 3; qpn += 1) pair.active.connect(pair.passive, 0, { qpn });
    expect(pair.passive.eventTypes).toEqual(['request', 'request']);
    expect(pair.active.take('rejected').reason).toBe(3);
    expect(pair.passive.manager.counters.refused).toBe(1);
  });

  it('leaves reported requests to their owners when it closes', () => {
    const pair = new CmPair();
    const listener = pair.passive.listen();
    const { request } = pair.requested();
    pair.passive.manager.destroy(listener, 0);
    pair.passive.manager.accept(request, FACTS, 0);
    expect(pair.active.eventTypes).toEqual(['reply']);
  });
});

describe('a lost message', () => {
  const MESSAGES: readonly CmMessageName[] = ['REQ', 'REP', 'RTU', 'DREQ', 'DREP'];

  it.each(MESSAGES)('is retransmitted: a %s', (lost) => {
    let drops = 2;
    pair.fate = (mad, _from, name) => {
      if (name !== lost || drops === 0) return [mad];
      drops -= 1;
      return [];
    };
    const { active, passive } = pair;
    const dialer = active.connect(passive, 0);
    pair.advance(30 * SECOND);
    const { connection } = passive.take('request');
    passive.manager.accept(connection, FACTS, pair.now);
    pair.advance(30 * SECOND);
    active.take('reply');
    active.manager.establish(dialer);
    // Its peer has sent an MRA.
    pair.advance(200 * SECOND);
    passive.take('established');
    active.manager.disconnect(dialer, pair.now);
    pair.advance(30 * SECOND);
    passive.take('disconnect-requested');
    passive.manager.disconnect(connection, pair.now);
    pair.advance(30 * SECOND);
    expect(drops).toBe(0);
    expect(active.eventTypes).toEqual(['disconnected', 'timewait-exit']);
    expect(passive.eventTypes).toEqual(['timewait-exit']);
  });

  it('REJ is sent again for a repeated request, which is not reported again', () => {
    let drops = 1;
    pair.fate = (mad, _from, name) => (name === 'REJ' && drops-- > 0 ? [] : [mad]);
    const { request } = pair.requested();
    pair.passive.manager.reject(request, 28, NO_BYTES, 0);
    pair.advance(10 * SECOND);
    expect(pair.active.take('rejected').reason).toBe(28);
    expect(pair.passive.events).toEqual([]);
    pair.advance(280 * SECOND);
    expect(pair.passive.manager.heldCounts()).toEqual({ ...NOTHING, ibListeners: 1 });
  });

  it('REJ is kept as long as its peer, which an MRA has told to wait, repeats the request', () => {
    const { request } = pair.requested();
    pair.advance(10 * SECOND);
    expect(pair.passive.sent).toContain('MRA');
    pair.passive.manager.reject(request, 28, NO_BYTES, pair.now);
    pair.fate = (mad, _from, name) => (name === 'REJ' ? [] : [mad]);
    pair.advance(300 * SECOND);
    pair.fate = (mad) => [mad];
    pair.advance(40 * SECOND);
    expect(pair.active.take('rejected').reason).toBe(28);
    expect(pair.passive.events).toEqual([]);
  });

  it('REP of a connection that its program has left is followed by a REJ of the request', () => {
    const { request } = pair.requested();
    pair.fate = (mad, _from, name) => (name === 'REP' || name === 'DREQ' ? [] : [mad]);
    pair.passive.manager.accept(request, FACTS, 0);
    pair.passive.manager.disconnect(request, 0);
    pair.advance(10 * SECOND);
    expect(pair.active.take('rejected').reason).toBe(28);
    pair.advance(300 * SECOND);
    expect(pair.passive.eventTypes).toEqual(['disconnected', 'timewait-exit']);
    expect(pair.passive.manager.heldCounts()).toEqual({ ...NOTHING, ibListeners: 1 });
  });

  it('makes a peer unreachable after 16 requests in 103 s, if all are lost', () => {
    pair.fate = () => [];
    pair.active.connect(pair.passive, 0);
    pair.advance(102 * SECOND);
    expect(pair.active.events).toEqual([]);
    pair.advance(2 * SECOND);
    pair.active.take('unreachable');
    expect(pair.active.sent.filter((name) => name === 'REQ')).toHaveLength(16);
    expect(pair.active.manager.heldCounts()).toEqual(NOTHING);
  });

  it('ends an accepted connection after its peer went away', () => {
    const { request } = pair.requested();
    pair.fate = () => [];
    pair.passive.manager.accept(request, FACTS, 0);
    pair.advance(80 * SECOND);
    expect(pair.passive.eventTypes).toEqual(['unreachable', 'timewait-exit']);
  });

  it('ends a disconnect that is never answered', () => {
    const { dialer } = pair.established();
    pair.fate = () => [];
    pair.active.manager.disconnect(dialer, 0);
    pair.advance(110 * SECOND);
    expect(pair.active.take('disconnected').timedOut).toBe(true);
    expect(pair.active.eventTypes).toEqual(['timewait-exit']);
  });
});

describe('a duplicate', () => {
  it('is handled once', () => {
    pair.fate = (mad) => [mad, mad];
    const { dialer, acceptor } = pair.established();
    pair.active.manager.disconnect(dialer, 0);
    pair.passive.take('disconnect-requested');
    pair.passive.manager.disconnect(acceptor, 0);
    pair.active.take('disconnected');
    expect([pair.active.events, pair.passive.events]).toEqual([[], []]);
  });

  it('gets an MRA while the program decides, so its peer waits', () => {
    const { request } = pair.requested();
    pair.advance(300 * SECOND);
    expect(pair.active.events).toEqual([]);
    expect(pair.passive.sent).toContain('MRA');
    pair.passive.manager.accept(request, FACTS, pair.now);
    pair.advance(60 * SECOND);
    expect(pair.active.eventTypes).toEqual(['reply']);
    expect(pair.active.sent).toContain('MRA');
    expect(pair.passive.events).toEqual([]);
  });

  it('with another transaction is rejected as a duplicate number', () => {
    let again: Uint8Array | undefined;
    pair.fate = (mad, _from, name) => {
      if (name === 'REQ') again = mad.slice();
      return [mad];
    };
    pair.requested();
    const reasons: number[] = [];
    pair.fate = (mad) => {
      const { name, fields } = fieldsOf(mad);
      if (name === 'REJ') reasons.push(fields.reason);
      return [];
    };
    if (again === undefined) throw new Error('no request');
    again[12] = (again[12] ?? 0) ^ 1;
    const { passive, active } = pair;
    passive.manager.handleMad(again, passive.port, active.gid, passive.gid, 0);
    pair.settle();
    expect(reasons).toEqual([30]);
    expect(passive.events).toEqual([]);
  });
});

describe('the end of a connection', () => {
  it('is reported to its dialer when the acceptor answers, and to both once packets are gone [IBCM-TW-02]', () => {
    const { active, passive } = pair;
    const { dialer, acceptor } = pair.established();
    active.manager.disconnect(dialer, 0);
    pair.advance(SECOND);
    passive.take('disconnect-requested');
    expect(active.events).toEqual([]);
    passive.manager.disconnect(acceptor, pair.now);
    expect(active.take('disconnected').timedOut).toBe(false);
    const start = pair.now;
    pair.advance(2_147_000);
    expect([active.events, passive.events]).toEqual([[], []]);
    pair.advance(1000);
    active.take('timewait-exit');
    passive.take('timewait-exit');
    expect(pair.now - start).toBe(2_148_000);
    expect(active.manager.heldCounts()).toEqual(NOTHING);
    expect(passive.manager.heldCounts()).toEqual({ ...NOTHING, ibListeners: 1 });
  });

  it('may come from both ends at once', () => {
    const { dialer, acceptor } = pair.established();
    pair.active.manager.disconnect(dialer, 0);
    pair.passive.manager.disconnect(acceptor, 0);
    expect(pair.active.take('disconnected').timedOut).toBe(false);
    expect(pair.passive.take('disconnected').timedOut).toBe(false);
    expect([dialer.state, acceptor.state]).toEqual(['timewait', 'timewait']);
    pair.active.manager.disconnect(dialer, 0);
    pair.settle();
    expect(pair.active.events).toEqual([]);
  });

  it('is not decided by a DREQ that names another queue pair, or comes from another address', () => {
    const { dialer, acceptor } = pair.established();
    const { localCommId: remoteCommId, remoteCommId: localCommId } = acceptor;
    const { passive, active } = pair;
    const dreq = (remoteQpn: number) =>
      writeCmMessage('DREQ', { hi: 0, lo: 0 }, { localCommId, remoteCommId, remoteQpn });
    passive.manager.handleMad(dreq(0x23), passive.port, active.gid, passive.gid, 0);
    passive.manager.handleMad(dreq(0x22), passive.port, passive.gid, passive.gid, 0);
    expect([dialer.state, acceptor.state]).toEqual(['established', 'established']);
    passive.manager.handleMad(dreq(0x22), passive.port, active.gid, passive.gid, 0);
    expect(acceptor.state).toBe('dreq-rcvd');
  });

  it('that is over is confirmed to a peer that asks again', () => {
    const { dialer, acceptor } = pair.established();
    pair.fate = (mad, _from, name) => (name === 'DREP' ? [] : [mad]);
    pair.active.manager.disconnect(dialer, 0);
    pair.settle();
    pair.passive.manager.disconnect(acceptor, 0);
    pair.advance(3 * SECOND);
    expect(acceptor.state).toBe('idle');
    pair.fate = (mad) => [mad];
    pair.advance(4 * SECOND);
    pair.active.take('disconnected');
  });

  const DESTROYED: readonly [string, (pair: CmPair) => readonly [CmConnection, 0 | 1], string[]][] =
    [
      ['that is dialled', (pair) => [pair.requested().dialer, 0], ['rejected']],
      ['that was requested', (pair) => [pair.requested().request, 1], ['rejected']],
      [
        'that was accepted',
        (pair) => {
          const { request } = pair.requested();
          pair.passive.manager.accept(request, FACTS, 0);
          pair.active.take('reply');
          return [request, 1];
        },
        ['rejected'],
      ],
      [
        'that was answered',
        (pair) => {
          const { dialer, request } = pair.requested();
          pair.passive.manager.accept(request, FACTS, 0);
          pair.active.take('reply');
          return [dialer, 0];
        },
        ['rejected'],
      ],
      ['that is up', (pair) => [pair.established().dialer, 0], ['disconnect-requested']],
    ];

  it.each(DESTROYED)(
    'is reported to the peer when its owner forgets a connection %s',
    (_, make, received) => {
      const pair = listening();
      const [connection, which] = make(pair);
      const [end, peer] = which === 0 ? [pair.active, pair.passive] : [pair.passive, pair.active];
      end.manager.destroy(connection, pair.now);
      end.manager.destroy(connection, pair.now);
      pair.settle();
      expect(peer.eventTypes.slice(0, 1)).toEqual(received);
      expect(end.events).toEqual([]);
      const event = peer.events.shift();
      if (event?.type === 'disconnect-requested') {
        peer.manager.disconnect(event.connection, pair.now);
      }
      pair.advance(300 * SECOND);
      expect(end.events).toEqual([]);
      expect(pair.active.manager.heldCounts()).toEqual(NOTHING);
      expect(pair.passive.manager.heldCounts()).toEqual({ ...NOTHING, ibListeners: 1 });
    },
  );
});

describe('data before the RTU', () => {
  it('establishes the connection', () => {
    const { dialer, request } = pair.requested();
    pair.passive.manager.accept(request, FACTS, 0);
    pair.settle();
    pair.passive.manager.noteCommunication(request);
    pair.passive.take('established');
    pair.active.manager.establish(dialer);
    pair.passive.manager.noteCommunication(request);
    pair.settle();
    expect(pair.passive.events).toEqual([]);
  });
});

describe('a service lookup', () => {
  const ask = (pair: CmPair) => {
    const path = pair.active.pathTo(pair.passive);
    const asked = pair.active.manager.askService(
      SERVICE,
      path,
      Uint8Array.of(5),
      'asker',
      pair.now,
    );
    pair.settle();
    return asked;
  };
  const SERVED = { status: 0, qpn: 0x33, qkey: 0x1234567, privateData: Uint8Array.of(6) };

  it('is answered with queue pair and key', () => {
    const asked = ask(pair);
    const { connection, privateData } = pair.passive.take('service-request');
    expect([privateData.length, privateData[0]]).toEqual([216, 5]);
    pair.passive.manager.answerService(connection, SERVED, 0);
    const { service } = pair.active.take('service-reply');
    expect(service).toMatchObject({ status: 0, qpn: 0x33, qkey: 0x1234567 });
    expect([service.privateData.length, service.privateData[0]]).toEqual([136, 6]);
    expect(asked.state).toBe('idle');
  });

  it('without a listener has status 1, and a refused one status 2', () => {
    const empty = new CmPair();
    ask(empty);
    expect(empty.active.take('service-reply').service.status).toBe(1);
    const pair = listening();
    ask(pair);
    pair.passive.manager.destroy(pair.passive.take('service-request').connection, 0);
    expect(pair.active.take('service-reply').service.status).toBe(2);
  });

  it('is retried, and reported once, whatever is lost', () => {
    let drops = 1;
    pair.fate = (mad, _from, name) => (name === 'SIDR_REP' && drops-- > 0 ? [] : [mad, mad]);
    ask(pair);
    const { connection } = pair.passive.take('service-request');
    pair.passive.manager.answerService(connection, SERVED, 0);
    pair.advance(10 * SECOND);
    expect(pair.active.take('service-reply').service.qpn).toBe(0x33);
    expect([pair.active.events, pair.passive.events]).toEqual([[], []]);
  });

  it('without an answer ends unreachable', () => {
    ask(pair);
    pair.passive.take('service-request');
    pair.advance(70 * SECOND);
    pair.active.take('unreachable');
  });

  it('needs no more room than a message has', () => {
    const path = pair.active.pathTo(pair.passive);
    const { manager } = pair.active;
    expect(() => manager.askService(SERVICE, path, new Uint8Array(217), 0, 0)).toThrow('216');
    ask(pair);
    const { connection } = pair.passive.take('service-request');
    const much = { ...SERVED, privateData: new Uint8Array(137) };
    expect(() => pair.passive.manager.answerService(connection, much, 0)).toThrow('136');
  });
});

describe('the account of an owner', () => {
  /** An account for at most `most` connections. */
  class Account {
    held = 0;
    readonly #most: number;

    constructor(most: number) {
      this.#most = most;
    }

    take(): void {
      if (this.held === this.#most) throw new VerbsError('ENOMEM', 'no more for this user');
      this.held += 1;
    }

    give(): void {
      this.held -= 1;
    }
  }

  it('is charged for a connection until that is forgotten, timewait included', () => {
    const [dialers, listeners] = [new Account(1), new Account(1)];
    pair.active.accounts.set('dialer', dialers);
    pair.passive.accounts.set('listener', listeners);
    const { dialer, acceptor } = pair.established();
    pair.active.manager.disconnect(dialer, 0);
    pair.passive.manager.disconnect(acceptor, 0);
    pair.active.manager.destroy(dialer, 0);
    pair.passive.manager.destroy(acceptor, 0);
    pair.settle();
    expect([dialer.state, acceptor.state]).toEqual(['timewait', 'timewait']);
    expect([dialers.held, listeners.held]).toEqual([1, 1]);
    expect(() => pair.active.connect(pair.passive, 0)).toThrow('no more for this user');
    pair.advance(3 * SECOND);
    expect([dialers.held, listeners.held]).toEqual([0, 0]);
    pair.active.connect(pair.passive, pair.now);
  });

  it('without room for its listeners leaves requests unanswered', () => {
    const listeners = new Account(1);
    pair.passive.accounts.set('listener', listeners);
    pair.established();
    pair.active.connect(pair.passive, 0, { qpn: 0x99 });
    pair.settle();
    expect(pair.passive.events).toEqual([]);
    expect(pair.passive.manager.counters.refused).toBe(1);
    expect(listeners.held).toBe(1);
  });
});
