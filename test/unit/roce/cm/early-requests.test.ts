/** Requests that arrive before their listener. */
import { describe, expect, it } from 'vitest';
import type { IbCmLimits } from '#daemon/roce/cm/cm-types';
import { parseCmMessage } from '#daemon/roce/wire/cm-message';
import { CmPair, FACTS, SERVICE } from '#test/support/ib-cm-pair';

const SECOND = 1_000_000;
const ALL = { port: undefined, gid: undefined, family: undefined } as const;

/** A pair with a connection and no listener any more: the step before an early request. */
function connected(limits?: Partial<IbCmLimits>): CmPair {
  const pair = new CmPair(limits);
  const listener = pair.passive.listen();
  pair.established();
  pair.passive.manager.destroy(listener, pair.now);
  return pair;
}

/** Another request for the service, which has no listener. */
function early(pair: CmPair, qpn = 0x12) {
  const dialer = pair.active.connect(pair.passive, pair.now, {
    qpn,
    privateData: Uint8Array.of(9),
  });
  pair.settle();
  return dialer;
}

const held = (pair: CmPair) => pair.passive.manager.heldCounts().ibEarly;

describe('a request without a listener yet', () => {
  it('is passed to a listener that starts within three seconds', () => {
    const pair = connected();
    const dialer = early(pair);
    pair.advance(2.9 * SECOND);
    expect([pair.active.eventTypes, dialer.state]).toEqual([[], 'req-sent']);
    pair.passive.listen();
    const { connection, request } = pair.passive.take('request');
    expect(request).toMatchObject({ qpn: 0x12 });
    expect([...request.privateData.subarray(0, 2)]).toEqual([9, 0]);
    pair.passive.manager.accept(connection, { ...FACTS, qpn: 0x23 }, pair.now);
    pair.active.take('reply');
    pair.active.manager.establish(dialer);
    expect(pair.passive.take('established').connection).toBe(connection);
    expect(held(pair)).toBe(0);
  });

  it('is rejected after three seconds, before its peer retries', () => {
    const pair = connected();
    early(pair);
    const sent = pair.active.sent.length;
    pair.advance(3 * SECOND);
    expect(pair.active.take('rejected').reason).toBe(8);
    expect(pair.active.sent).toHaveLength(sent);
    pair.passive.listen();
    pair.settle();
    expect([pair.passive.events, held(pair)]).toEqual([[], 0]);
  });

  it('is rejected at once if its sender has no connection, or no longer has one', () => {
    const pair = new CmPair();
    early(pair);
    expect(pair.active.take('rejected').reason).toBe(8);
    const listener = pair.passive.listen();
    const { acceptor } = pair.established();
    pair.passive.manager.destroy(listener, pair.now);
    pair.passive.manager.destroy(acceptor, pair.now);
    pair.settle();
    pair.active.manager.disconnect(pair.active.take('disconnect-requested').connection, pair.now);
    pair.advance(60 * SECOND);
    pair.active.events.length = 0;
    early(pair);
    expect(pair.active.take('rejected').reason).toBe(8);
  });

  it('is rejected at once when it could not be served', () => {
    const pair = connected();
    const reasons: number[] = [];
    pair.fate = (mad) => {
      const message = parseCmMessage(mad);
      if (typeof message !== 'string' && message.name === 'REJ') {
        reasons.push(message.fields.reason);
      }
      return [mad];
    };
    const path = { ...pair.active.pathTo(pair.passive), pathMtu: 6 };
    const request = { ...FACTS, qpn: 0x12, serviceId: SERVICE, type: 2, path, retryCount: 3 };
    pair.active.manager.connect({ ...request, ackTimeout: undefined }, undefined, pair.now);
    pair.settle();
    expect([reasons, held(pair)]).toEqual([[8], 0]);
  });

  it('waits for the listener of its own service and address', () => {
    const pair = connected();
    early(pair);
    const { manager, gid } = pair.passive;
    manager.listen(SERVICE + 1, ALL, 1, 'another service');
    manager.listen(SERVICE, { ...ALL, gid: pair.active.gid }, 1, 'another address');
    manager.listen(SERVICE, { ...ALL, family: 6 }, 1, 'another family');
    pair.settle();
    expect([pair.passive.events, held(pair)]).toEqual([[], 1]);
    manager.listen(SERVICE, { ...ALL, gid }, 1, 'its own');
    expect(pair.passive.take('request').listener.tag).toBe('its own');
  });

  it('that is duplicated is held once, and reported once', () => {
    const pair = connected();
    pair.fate = (mad, _, name) => (name === 'REQ' ? [mad, mad] : [mad]);
    early(pair);
    expect(held(pair)).toBe(1);
    expect(pair.passive.manager.counters.duplicates).toBe(1);
    pair.passive.listen();
    expect(pair.passive.eventTypes).toEqual(['request']);
  });

  it('is forgotten when its peer cancels it', () => {
    const pair = connected();
    pair.active.manager.destroy(early(pair), pair.now);
    pair.settle();
    expect(held(pair)).toBe(0);
    expect(pair.passive.manager.counters.strays).toBe(0);
    pair.passive.listen();
    pair.settle();
    expect(pair.passive.events).toEqual([]);
  });

  it('is not overwritten by later messages in the same buffer', () => {
    const pair = connected();
    const buffer = new Uint8Array(256);
    pair.fate = (mad) => {
      buffer.set(mad);
      return [buffer];
    };
    early(pair);
    buffer.fill(0);
    pair.passive.listen();
    expect(pair.passive.take('request').request.privateData[0]).toBe(9);
  });

  it.each([
    ['one address', { earlyPerAddressMax: 5 }, 5],
    ['all', { earlyMax: 7 }, 7],
  ])('is rejected beyond the limit for %s', (_, limits, most) => {
    const pair = connected(limits);
    for (let qpn = 100; qpn < 110; qpn += 1) early(pair, qpn);
    expect(held(pair)).toBe(most);
    expect(pair.passive.manager.counters.refused).toBe(10 - most);
    expect(pair.active.eventTypes).toEqual(new Array(10 - most).fill('rejected'));
    pair.passive.listen(100);
    expect(pair.passive.eventTypes).toEqual(new Array(most).fill('request'));
  });
});
