import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { bytesOf, hexOf, NO_BYTES } from '#test/support/hex';
import {
  effects,
  feed,
  initiator,
  only,
  REP_KEY,
  REQ_KEY,
  revision1,
  TIMEOUT_MICROS,
} from '#test/support/startup-dialogue';

/** The Request's bytes after the key. */
function requestOf(...setup: Parameters<typeof initiator>): string {
  const { frame } = only(initiator(...setup), 'transmit');
  expect(hexOf(frame.subarray(0, 16))).toBe(REQ_KEY);
  return hexOf(frame.subarray(16));
}

describe('startup, initiator: the Request', () => {
  it('is the first thing sent, and requests CRCs [MPA-7.1.2-01, MPA-1.2-01, MPA-4.4-02]', () => {
    expect(requestOf()).toBe('5002000400100010');
    expect(requestOf({}, bytesOf('abcd'))).toBe('5002000600100010abcd');
  });

  it('revision 1 has no enhanced data [EMPA-6-06, EMPA-10-03, MPA-7.1.1-15]', () => {
    expect(requestOf(revision1, bytesOf('abcd'))).toBe('40010002abcd');
    expect(requestOf({ enhancedSupported: false })).toBe('40010000');
  });

  it('requests markers only if configured [MPA-4.3-02]', () => {
    expect(requestOf({ ...revision1, markersRequested: true })).toBe('c0010000');
  });

  it('leaves CRCs out only on the explicit setting [MPA-4.4-02]', () => {
    expect(requestOf({ ...revision1, crcRequested: false })).toBe('00010000');
  });

  it('offers RTR kinds in the peer-to-peer model [EMPA-9.2-02]', () => {
    expect(requestOf({ peerToPeer: true, ird: 32 })).toBe('500200048020c010');
  });

  it('too long Private Data is refused before anything is sent [MPA-7.1.1-19, EMPA-9-02]', () => {
    expect(() => initiator({}, new Uint8Array(509))).toThrow(RangeError);
    expect(() => initiator(revision1, new Uint8Array(513))).toThrow(RangeError);
    expect(requestOf(revision1, new Uint8Array(512)).slice(0, 8)).toBe('40010200');
  });
});

describe('startup, initiator: an accepting Reply', () => {
  it('Full Operation begins with the last byte of the Reply [MPA-7.1.2-07, MPA-7.1.2-10]', () => {
    const startup = initiator();
    effects(startup);
    feed(startup, REP_KEY, '50 02 0006 00080004 ab');
    expect([startup.sendable, effects(startup)]).toEqual([false, []]);
    feed(startup, 'cd');
    expect(startup.sendable).toBe(true);
    expect(effects(startup)).toEqual([
      {
        type: 'full-operation',
        agreement: {
          ird: 16,
          ord: 8,
          crcEnabled: true,
          sendMarkers: false,
          receiveMarkers: false,
          revision: 2,
          peerIrd: 8,
          peerOrd: 4,
          privateData: bytesOf('abcd'),
        },
        rtr: undefined,
        error: undefined,
      },
    ]);
    expect(startup.nextDeadline()).toBe(NEVER);
  });

  it.each([
    [false, '40', false, false],
    [false, 'c0', true, false],
    [true, '40', false, true],
    [true, 'c0', true, true],
  ])(
    'own M %s, Reply flags %s [MPA-7.1.1-06, MPA-7.1.1-07, MPA-7.1.1-08]',
    (own, flags, send, receive) => {
      const startup = initiator({ ...revision1, markersRequested: own });
      feed(startup, REP_KEY, `${flags} 01 0000`);
      const { agreement } = only(startup, 'full-operation');
      expect([agreement.sendMarkers, agreement.receiveMarkers]).toEqual([send, receive]);
    },
  );

  it.each([
    [false, '00', false],
    [false, '40', true],
    [true, '00', true],
  ])('own C %s, Reply flags %s [MPA-7.1.1-10, MPA-4.4-05, MPA-4.4-06]', (own, flags, crc) => {
    const startup = initiator({ ...revision1, crcRequested: own });
    feed(startup, REP_KEY, `${flags} 01 0000`);
    expect(only(startup, 'full-operation').agreement.crcEnabled).toBe(crc);
  });

  it('reserved bits of the Reply are ignored [MPA-7.1.1-14, EMPA-6-04]', () => {
    const startup = initiator();
    feed(startup, REP_KEY, '5f 02 0004 00100010');
    expect(only(startup, 'full-operation').error).toBeUndefined();
  });

  it('bytes after the Reply are left over as FPDUs [MPA-7.1.1-23]', () => {
    const startup = initiator();
    expect(feed(startup, REP_KEY, '50 02 0004 00100010', '002a4143')).toBe(4);
    expect(hexOf(only(startup, 'full-operation').agreement.privateData)).toBe('');
    expect(feed(startup, '0000')).toBe(2);
  });

  it('the RTR to send first comes with Full Operation [EMPA-9.2-10, EMPA-5-02]', () => {
    const startup = initiator({ peerToPeer: true });
    feed(startup, REP_KEY, '50 02 0004 80108010');
    expect(only(startup, 'full-operation')).toMatchObject({ rtr: 'write', error: undefined });
  });

  it.each([
    ['too large an ORD [EMPA-9.1-10]', '00100081', 6],
    ['no matching RTR [EMPA-9.2-13]', 'c0100010', 7],
    ['another A than asked [EMPA-12-01]', '00100010', 7],
  ])('%s makes the first FPDU a Terminate', (name, word, code) => {
    const startup = initiator({ peerToPeer: !name.startsWith('EMPA-9.1') });
    feed(startup, REP_KEY, '50 02 0004', word);
    const { error, rtr } = only(startup, 'full-operation');
    expect([error?.layer, error?.etype, error?.code, rtr]).toEqual([2, 0, code, undefined]);
    expect(error?.sendable).toBe(true);
  });

  it('a local error while the Reply is due makes it code 5 [EMPA-9.3-02]', () => {
    const startup = initiator({ peerToPeer: true });
    effects(startup);
    startup.failLocally('no memory for the queue pair');
    expect(effects(startup)).toEqual([]);
    feed(startup, REP_KEY, '50 02 0004 80108010');
    expect(only(startup, 'full-operation').error?.code).toBe(5);
  });

  it('a local error in a revision 1 startup, which has no code for it, closes at once', () => {
    const startup = initiator(revision1);
    startup.failLocally('no memory for the queue pair');
    expect(only(startup, 'failed')).toMatchObject({ close: 'abort', failure: { kind: 'local' } });
  });

  it.each([
    ['revision 1', '40 01 0004 c020c010'],
    ['revision 1 with bit S', '50 01 0004 c020c010'],
    ['revision 2 without S', '40 02 0004 c020c010'],
  ])('an unenhanced Reply (%s) is accepted as it is [EMPA-10-07]', (_name, rest) => {
    const startup = initiator({ peerToPeer: true });
    feed(startup, REP_KEY, rest);
    const { agreement, rtr, error } = only(startup, 'full-operation');
    expect(hexOf(agreement.privateData)).toBe('c020c010');
    expect([agreement.ird, agreement.ord]).toEqual([16, 16]);
    expect([agreement.peerIrd, agreement.peerOrd, rtr, error]).toEqual(Array(4).fill(undefined));
  });
});

describe('startup, initiator: refusals', () => {
  it('a rejection carries its Private Data and closes nothing [MPA-7.1.2-09, MPA-7.1.4.2-01]', () => {
    const startup = initiator(revision1);
    effects(startup);
    feed(startup, REP_KEY, '60 01 0005 0102030405');
    expect(effects(startup)).toEqual([
      {
        type: 'rejected',
        privateData: bytesOf('0102030405'),
        peerIrd: undefined,
        peerOrd: undefined,
        quirk: undefined,
      },
    ]);
    expect([startup.sendable, startup.nextDeadline()]).toEqual([false, NEVER]);
    expect(feed(startup, '1234')).toBe(0);
    expect(effects(startup)).toEqual([]);
  });

  it('an enhanced rejection carries the responder depths [EMPA-9.1-11]', () => {
    const startup = initiator();
    feed(startup, REP_KEY, '70 02 0004 00030005');
    expect(only(startup, 'rejected')).toMatchObject({ peerIrd: 3, peerOrd: 5 });
  });

  it('names the peer that refuses markers', () => {
    const startup = initiator({ markersRequested: true });
    feed(startup, REP_KEY, 'f0 02 0004 00100010');
    expect(only(startup, 'rejected').quirk).toBe('siw-refuses-markers');
  });

  it.each([
    ['a key wrong in one bit [MPA-7.1.1-05]', '4d504120494420526570204672616d67', 'abort'],
    ['a Request, so that both are initiators [MPA-7.1.2-15]', REQ_KEY, 'abort'],
    ['PD_Length 513 [MPA-7.1.2-08]', `${REP_KEY} 40 01 0201`, 'abort'],
    ['revision 9 [MPA-7.1.1-16]', `${REP_KEY} 40 09 0000`, 'finish'],
    ['revision 0 [MPA-C.2.2-01]', `${REP_KEY} c0 00 0000`, 'finish'],
    ['S without room for its word [EMPA-6-08]', `${REP_KEY} 50 02 0000`, 'abort'],
  ])('MPA-8-06, %s is closed at once with code 4', (_name, bytes, close) => {
    const startup = initiator();
    effects(startup);
    feed(startup, bytes);
    const { failure, close: how } = only(startup, 'failed');
    expect(failure).toMatchObject({ kind: 'invalid-frame', layer: 2, etype: 0, code: 4 });
    expect(how).toBe(close);
    expect([startup.stateName, startup.nextDeadline()]).toEqual(['failed', NEVER]);
  });

  it('an enhanced Reply to an unenhanced Request is invalid [EMPA-10-02]', () => {
    const startup = initiator(revision1);
    feed(startup, REP_KEY, '50 02 0004 00100010');
    expect(only(startup, 'failed').failure.code).toBe(4);
  });

  it('times out when the Reply is not complete, whatever trickles in [MPA-7.1.2-18]', () => {
    const startup = initiator();
    effects(startup);
    const deadline = 1000 + TIMEOUT_MICROS;
    for (const pair of `${REP_KEY}50020004`.match(/../g) ?? []) {
      feed(startup, pair);
      expect(startup.nextDeadline()).toBe(deadline);
    }
    startup.handleDeadline(deadline - 1);
    expect(effects(startup)).toEqual([]);
    startup.handleDeadline(deadline);
    const { failure, close } = only(startup, 'failed');
    expect(failure).toMatchObject({ kind: 'timeout', layer: 2, etype: 0, code: 1 });
    expect(close).toBe('abort');
  });

  it('a peer that leaves before its Reply is code 1, within it code 4 [MPA-8-02]', () => {
    const silent = initiator();
    silent.handlePeerClosed();
    expect(only(silent, 'failed').failure).toMatchObject({ kind: 'lost', code: 1 });
    const cut = initiator();
    feed(cut, REP_KEY);
    cut.handlePeerClosed();
    expect(only(cut, 'failed').failure).toMatchObject({ kind: 'invalid-frame', code: 4 });
  });

  it('sends no second Request', () => {
    expect(() => initiator().connect(NO_BYTES, 2000)).toThrow('awaiting-reply');
  });
});
