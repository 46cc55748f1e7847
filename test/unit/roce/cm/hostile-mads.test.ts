/** Peers that send invalid messages, or too many. */
import { describe, expect, it } from 'vitest';
import { type CmFields, parseCmMessage, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { CM_MESSAGES } from '#test/support/cm-messages';
import { bytesOf } from '#test/support/hex';
import { CmPair, FACTS, SERVICE } from '#test/support/ib-cm-pair';
import { Prng } from '#test/support/prng';

const gidOf = (number: number): Uint8Array =>
  Uint8Array.of(...bytesOf('00*10 ffff 0b'), number >> 16, number >> 8, number);

function requestOf(
  pair: CmPair,
  source: Uint8Array,
  number: number,
  given: Partial<CmFields<'REQ'>> = {},
): Uint8Array {
  return writeCmMessage(
    'REQ',
    { hi: 1, lo: number },
    {
      localCommId: number + 1,
      serviceIdLo: SERVICE,
      localQpn: number & 0xff_ffff,
      localGid: source,
      remoteGid: pair.passive.gid,
      pathMtu: 5,
      maxCmRetries: 15,
      ...given,
    },
  );
}

function flood(pair: CmPair, requests: number, sourceOf: (number: number) => Uint8Array): void {
  const { manager, port, gid } = pair.passive;
  for (let number = 0; number < requests; number += 1) {
    const source = sourceOf(number);
    manager.handleMad(requestOf(pair, source, number), port, source, gid, pair.now);
    pair.settle();
  }
}

describe('a flood of requests', () => {
  it('from one address uses its share only, which does not grow', () => {
    const pair = new CmPair({ halfOpenPerAddressMax: 10, halfOpenMax: 20, backlogMax: 1000 });
    pair.passive.listen(1000);
    flood(pair, 500, () => gidOf(1));
    expect(pair.passive.manager.heldCounts()).toMatchObject({ ibConnections: 10, ibHalfOpen: 10 });
    pair.active.connect(pair.passive, 0);
    pair.settle();
    expect(pair.passive.events).toHaveLength(11);
  });

  it('of IPv6 addresses of one network counts as one', () => {
    const pair = new CmPair({ halfOpenPerAddressMax: 10, backlogMax: 1000 });
    pair.passive.listen(1000);
    flood(pair, 100, (number) => Uint8Array.of(...bytesOf('fd00 00*6 00*7'), number));
    expect(pair.passive.manager.heldCounts().ibHalfOpen).toBe(10);
  });

  it('from many addresses fills all room, and is forgotten once answered', () => {
    const pair = new CmPair({ halfOpenMax: 20, backlogMax: 1000 });
    pair.passive.listen(1000);
    flood(pair, 500, gidOf);
    expect(pair.passive.manager.heldCounts().ibHalfOpen).toBe(20);
    expect(pair.passive.manager.counters.refused).toBe(480);
    for (const event of pair.passive.events) {
      if (event.type === 'request') pair.passive.manager.accept(event.connection, FACTS, pair.now);
    }
    pair.advance(3_600_000_000);
    expect(pair.passive.manager.heldCounts()).toMatchObject({ ibConnections: 0, ibHalfOpen: 0 });
  });

  /** Each request of the flood is accepted, and none confirmed. */
  function acceptedFlood(pair: CmPair, requests: number, from: (number: number) => Uint8Array) {
    const { manager, events } = pair.passive;
    for (let number = 0; number < requests; number += 1) {
      const source = from(number);
      const request = requestOf(pair, source, number);
      manager.handleMad(request, pair.passive.port, source, pair.passive.gid, pair.now);
      pair.settle();
      const event = events.at(-1);
      if (event?.type === 'request' && event.connection.state === 'req-rcvd') {
        manager.accept(event.connection, FACTS, pair.now);
        pair.settle();
      }
    }
  }

  /** An honest peer connects, in the place of another. */
  function expectHonestPeer(pair: CmPair): void {
    const { active, passive } = pair;
    passive.events.length = 0;
    const dialer = active.connect(passive, pair.now);
    passive.take('unreachable');
    const { connection } = passive.take('request');
    passive.manager.accept(connection, { ...FACTS, qpn: 0x22 }, pair.now);
    pair.settle();
    active.manager.establish(dialer);
    pair.settle();
    expect(connection.state).toBe('established');
  }

  it('that is accepted and never confirmed makes room for a new one', () => {
    const pair = new CmPair({ halfOpenMax: 20, halfOpenPerAddressMax: 10, backlogMax: 1000 });
    pair.passive.listen();
    acceptedFlood(pair, 500, gidOf);
    expect(pair.passive.manager.heldCounts()).toMatchObject({ ibHalfOpen: 20, ibConnections: 20 });
    expect(pair.passive.eventTypes.filter((type) => type === 'unreachable')).toHaveLength(480);
    expect(pair.passive.manager.counters.refused).toBe(0);
    expectHonestPeer(pair);
  });

  it('with the address of a peer leaves room for that peer', () => {
    const pair = new CmPair({ halfOpenMax: 20, halfOpenPerAddressMax: 10, backlogMax: 1000 });
    pair.passive.listen();
    const other = gidOf(7);
    acceptedFlood(pair, 5, () => other);
    // The peer learns of it because its own manager does not know them.
    pair.fate = () => [];
    acceptedFlood(pair, 500, () => pair.active.gid);
    pair.fate = (mad) => [mad];
    expect(pair.passive.manager.heldCounts().ibHalfOpen).toBe(15);
    expectHonestPeer(pair);
  });

  it('that is rejected leaves a bounded number of replies, for a while', () => {
    const pair = new CmPair();
    pair.passive.listen();
    const { manager } = pair.passive;
    for (let number = 0; number < 5000; number += 1) {
      const source = gidOf(number);
      const request = requestOf(pair, source, number);
      manager.handleMad(request, pair.passive.port, source, pair.passive.gid, pair.now);
      pair.settle();
      manager.reject(pair.passive.take('request').connection, 28, new Uint8Array(0), pair.now);
    }
    pair.settle();
    expect(manager.heldCounts()).toMatchObject({ ibConnections: 0, ibAnswers: 4096 });
    pair.advance(280_000_000);
    expect(manager.heldCounts().ibAnswers).toBe(0);
  });
});

describe('a request', () => {
  it.each<[string, Partial<CmFields<'REQ'>>, number]>([
    ['for a service beyond rdma_cm', { serviceIdHi: 1 }, 8],
    ['of reliable datagrams', { transportService: 2 }, 9],
    ['of an extended transport', { extendedTransport: 1 }, 9],
    ['that names another address than it comes from', { localGid: gidOf(7) }, 12],
    ['that names another address than it comes to', { remoteGid: gidOf(7) }, 12],
    ['with a path MTU that does not exist', { pathMtu: 6 }, 26],
  ])('%s is rejected', (_, given, reason) => {
    const pair = new CmPair();
    pair.passive.listen();
    const reasons: number[] = [];
    pair.fate = (mad) => {
      const message = parseCmMessage(mad);
      if (typeof message !== 'string' && message.name === 'REJ') {
        reasons.push(message.fields.reason);
      }
      return [];
    };
    const { manager, port, gid } = pair.passive;
    const { gid: source } = pair.active;
    manager.handleMad(requestOf(pair, source, 5, given), port, source, gid, 0);
    pair.settle();
    expect(reasons).toEqual([reason]);
    expect(manager.heldCounts().ibConnections).toBe(0);
  });

  it.each([0, 31])(
    'with a timeout of %s gets its reply repeated in reasonable time',
    (exponent) => {
      const pair = new CmPair();
      pair.passive.listen();
      const { manager, port, gid } = pair.passive;
      const source = gidOf(3);
      const given = { localResponseTimeout: exponent, localAckTimeout: exponent };
      manager.handleMad(requestOf(pair, source, 5, given), port, source, gid, 0);
      pair.settle();
      manager.accept(pair.passive.take('request').connection, FACTS, 0);
      pair.settle();
      const wait = manager.nextDeadline();
      expect(wait).toBeGreaterThan(100_000);
      expect(wait).toBeLessThan(100_000_000);
      pair.advance(3_600_000_000);
      expect(manager.heldCounts().ibConnections).toBe(0);
    },
  );
});

describe('noise', () => {
  it('of unknown messages is counted and creates nothing', () => {
    const pair = new CmPair();
    const { manager, port, gid } = pair.passive;
    for (const name of ['MRA', 'REJ', 'RTU', 'DREP', 'SIDR_REP'] as const) {
      const mad = writeCmMessage(name, { hi: 0, lo: 0 }, CM_MESSAGES[name]);
      manager.handleMad(mad, port, gidOf(1), gid, 0);
    }
    manager.handleMad(new Uint8Array(256), port, gidOf(1), gid, 0);
    expect(manager.counters).toMatchObject({ strays: 5, malformed: 1 });
    expect(manager.pollEffect()).toBeUndefined();
    expect(manager.heldCounts().ibConnections).toBe(0);
  });

  it('in every message of a connection never breaks it, nor the manager', () => {
    const prng = new Prng(20_261_123);
    for (let run = 0; run < 200; run += 1) {
      const pair = new CmPair();
      pair.passive.listen();
      pair.fate = (mad) => {
        const copies = [mad];
        for (let copy = 0; copy < 3; copy += 1) {
          const noisy = mad.slice();
          for (let flips = prng.between(1, 4); flips > 0; flips -= 1) {
            const at = prng.below(noisy.length);
            noisy[at] = (noisy[at] ?? 0) ^ (1 << prng.below(8));
          }
          copies.push(noisy);
        }
        return copies;
      };
      const dialer = pair.active.connect(pair.passive, 0);
      for (let step = 0; step < 40; step += 1) {
        for (const { manager, events } of pair.ends) {
          for (const event of events.splice(0)) {
            if (event.type === 'request') manager.accept(event.connection, FACTS, pair.now);
            else if (event.type === 'reply' && event.connection.state === 'rep-rcvd') {
              manager.establish(event.connection);
            } else if (event.type === 'disconnect-requested') {
              manager.disconnect(event.connection, pair.now);
            }
          }
        }
        if (step === 20) pair.active.manager.destroy(dialer, pair.now);
        pair.advance(10_000_000);
      }
      pair.fate = (mad) => [mad];
      for (let step = 0; step < 20; step += 1) {
        for (const { manager, events } of pair.ends) {
          for (const { connection } of events.splice(0)) manager.destroy(connection, pair.now);
        }
        pair.advance(30_000_000);
      }
      for (const { manager } of pair.ends) manager.assertInvariants();
    }
  });
});
