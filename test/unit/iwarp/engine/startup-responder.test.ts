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
  responder,
  TIMEOUT_MICROS,
} from '#test/support/startup-dialogue';

const WISHES = { ird: 16, ord: 16 };

/** A responder that has received `request` after the key, its request event taken. */
function asked(request: string, ...setup: Parameters<typeof responder>) {
  const startup = responder(...setup);
  feed(startup, REQ_KEY, request);
  only(startup, 'request');
  return startup;
}

/** The Reply's bytes after its key; fails if there is any other effect. */
function replyOf(startup: ReturnType<typeof responder>): string {
  const { frame } = only(startup, 'transmit');
  expect(hexOf(frame.subarray(0, 16))).toBe(REP_KEY);
  return hexOf(frame.subarray(16));
}

function accepted(request: string, privateData: string, ...setup: Parameters<typeof responder>) {
  const startup = asked(request, ...setup);
  startup.accept(bytesOf(privateData), WISHES, 2000);
  return startup;
}

describe('startup, responder: the Request', () => {
  it('nothing is sent before the consumer has answered [MPA-7.1.2-02, MPA-7.1-06]', () => {
    const startup = responder();
    expect(effects(startup)).toEqual([]);
    feed(startup, REQ_KEY, '40 01 0002 ab');
    expect(effects(startup)).toEqual([]);
    feed(startup, 'cd');
    expect(effects(startup)).toEqual([
      {
        type: 'request',
        revision: 1,
        enhanced: false,
        privateData: bytesOf('abcd'),
        peerIrd: undefined,
        peerOrd: undefined,
        peerToPeer: false,
      },
    ]);
    expect([startup.sendable, startup.nextDeadline()]).toEqual([false, NEVER]);
  });

  it('the consumer sees revision, raw depths and its own bytes [EMPA-9.1-03, EMPA-6-07, MPA-7.1.1-17]', () => {
    const startup = responder();
    feed(startup, REQ_KEY, '50 02 0006 c020c010 abcd');
    expect(only(startup, 'request')).toMatchObject({
      revision: 2,
      enhanced: true,
      peerIrd: 32,
      peerOrd: 16,
      peerToPeer: true,
      privateData: bytesOf('abcd'),
    });
  });

  it('512 bytes of Private Data arrive whole, a byte at a time [MPA-7.1.2-17]', () => {
    const startup = responder();
    const privateData = Uint8Array.from({ length: 512 }, (_, i) => i & 0xff);
    const bytes = bytesOf(`${REQ_KEY} 40 01 0200 ${hexOf(privateData)}`);
    for (let at = 0; at < bytes.length; at++) startup.handleBytes(bytes, at, at + 1);
    expect(only(startup, 'request').privateData).toEqual(privateData);
  });

  it('keeps no reference to the given bytes: they may be overwritten', () => {
    const startup = responder();
    const bytes = bytesOf(`${REQ_KEY} 40 01 0002 abcd`);
    startup.handleBytes(bytes, 0, bytes.length);
    bytes.fill(0xee);
    expect(hexOf(only(startup, 'request').privateData)).toBe('abcd');
  });

  it('R and reserved bits of a Request are ignored [MPA-7.1.1-11, MPA-7.1.1-14]', () => {
    for (const flags of ['60', '5f', '48']) {
      const startup = responder();
      feed(startup, REQ_KEY, `${flags} 01 0000`);
      expect(only(startup, 'request')).toMatchObject({ revision: 1, enhanced: false });
    }
  });
});

describe('startup, responder: accepting', () => {
  it('the Reply is sent, then Full Operation begins [MPA-7.1.2-06]', () => {
    const startup = accepted('40 01 0002 abcd', '1234');
    expect(effects(startup).map((e) => e.type)).toEqual(['transmit', 'full-operation']);
  });

  it('an unenhanced Request gets an unenhanced Reply of revision 1 [EMPA-10-02]', () => {
    expect(replyOf(accepted('40 01 0000', '1234'))).toBe('400100021234');
  });

  it('so does revision 2 without S, and revision 1 with it [EMPA-10-04, EMPA-6-09]', () => {
    expect(replyOf(accepted('40 02 0004 c020c010', ''))).toBe('40020000');
    expect(replyOf(accepted('50 01 0004 c020c010', ''))).toBe('40010000');
  });

  it('an enhanced Request gets an enhanced Reply [EMPA-10-01]', () => {
    expect(replyOf(accepted('50 02 0004 00040008', '1234'))).toBe('5002000600100004' + '1234');
  });

  it('with A and the kinds supported [EMPA-9.2-05, EMPA-9.2-06]', () => {
    expect(replyOf(accepted('50 02 0004 c020c010', ''))).toBe('500200048010c010');
  });

  it('the depths in force are those of the Reply [EMPA-9.1-01]', () => {
    const startup = accepted('50 02 0004 00040008', '');
    expect(only(startup, 'full-operation').agreement).toMatchObject({
      ird: 16,
      ord: 4,
      peerIrd: 4,
      peerOrd: 8,
    });
  });

  it('the Reply carries our wishes for markers and CRC, and the peer requests its own', () => {
    const startup = accepted('80 01 0000', '', { markersRequested: true, crcRequested: false });
    const due = effects(startup);
    expect(due[0]?.type === 'transmit' && hexOf(due[0].frame.subarray(16))).toBe('80010000');
    expect(due[1]).toMatchObject({
      agreement: { crcEnabled: false, sendMarkers: true, receiveMarkers: true },
    });
  });

  it.each([
    [false, '40', false, false],
    [true, '40', false, true],
    [false, 'c0', true, false],
    [true, 'c0', true, true],
  ])(
    'own M %s, Request flags %s [MPA-7.1.1-06, MPA-7.1.1-07, MPA-4.3-01]',
    (own, flags, send, receive) => {
      const startup = accepted(`${flags} 01 0000`, '', { markersRequested: own });
      const { agreement } = only(startup, 'full-operation');
      expect([agreement.sendMarkers, agreement.receiveMarkers]).toEqual([send, receive]);
    },
  );

  it('may send once the first FPDU was found valid, not before [MPA-7.1.2-11, EMPA-9.2-16]', () => {
    for (const request of ['40 01 0000', '50 02 0004 c020c010']) {
      const startup = accepted(request, '');
      effects(startup);
      expect(startup.sendable).toBe(false);
      expect(feed(startup, '002a')).toBe(2);
      expect(startup.sendable).toBe(false);
      startup.handleFirstFpdu();
      expect([startup.sendable, startup.nextDeadline()]).toEqual([true, NEVER]);
      startup.handleFirstFpdu();
      expect(startup.sendable).toBe(true);
    }
  });

  it('an RTR is awaited for the startup timeout, a first message for ever [MPA-7.1.2-18]', () => {
    expect(accepted('40 01 0000', '').nextDeadline()).toBe(NEVER);
    expect(accepted('50 02 0004 00040008', '').nextDeadline()).toBe(NEVER);
    const startup = accepted('50 02 0004 c020c010', '');
    effects(startup);
    expect(startup.nextDeadline()).toBe(2000 + TIMEOUT_MICROS);
    startup.handleDeadline(2000 + TIMEOUT_MICROS);
    const { failure, close } = only(startup, 'failed');
    expect([failure.kind, close]).toEqual(['timeout', 'abort']);
  });

  it('too long Private Data is refused, the Request stays answerable [MPA-7.1.1-19, EMPA-9-02]', () => {
    const startup = asked('50 02 0004 00040008');
    expect(() => startup.accept(new Uint8Array(509), WISHES, 2000)).toThrow(RangeError);
    expect(() => startup.reject(new Uint8Array(509))).toThrow(RangeError);
    expect(effects(startup)).toEqual([]);
    startup.accept(new Uint8Array(508), WISHES, 2000);
    expect(only(startup, 'transmit').frame).toHaveLength(532);
  });

  it('a failure after the Reply closes without a Terminate [EMPA-9.3-03]', () => {
    const startup = accepted('50 02 0004 c020c010', '');
    effects(startup);
    startup.failLocally('no memory for the read queue');
    expect(effects(startup)).toMatchObject([
      { type: 'failed', close: 'abort', failure: { kind: 'local' } },
    ]);
    startup.failLocally('again');
    expect(effects(startup)).toEqual([]);
  });

  it('names the peer that drops a connection with markers', () => {
    expect(accepted('40 01 0000', '', { markersRequested: true }).lossQuirk).toBe(
      'siw-refuses-markers',
    );
    expect(accepted('40 01 0000', '').lossQuirk).toBeUndefined();
  });

  it('two of our own endpoints agree, byte for byte', () => {
    const client = initiator({ peerToPeer: true, ird: 4, ord: 100 }, bytesOf('0102'));
    const server = responder();
    feed(server, hexOf(only(client, 'transmit').frame));
    expect(only(server, 'request')).toMatchObject({ peerIrd: 4, peerOrd: 100 });
    server.accept(bytesOf('03'), { ird: 8, ord: 8 }, 2000);
    const [reply, serverSide] = effects(server);
    if (reply?.type !== 'transmit') expect.fail('no Reply');
    feed(client, hexOf(reply.frame));
    expect(only(client, 'full-operation')).toMatchObject({
      rtr: 'write',
      agreement: { ird: 4, ord: 8, peerIrd: 8, peerOrd: 4 },
    });
    expect(serverSide).toMatchObject({ agreement: { ird: 8, ord: 4 } });
  });
});

describe('startup, responder: rejecting', () => {
  it('R and Private Data are sent, and nothing is closed [MPA-7.1.2-04, MPA-7.1.2-05, MPA-7.1.1-12]', () => {
    const startup = asked('40 01 0000');
    startup.reject(bytesOf('00010203040506070809'));
    const due = effects(startup);
    expect(due).toHaveLength(1);
    expect(due[0]?.type === 'transmit' && hexOf(due[0].frame.subarray(16))).toBe(
      '6001000a00010203040506070809',
    );
    expect(feed(startup, '123456')).toBe(0);
    startup.handlePeerClosed();
    expect(effects(startup)).toEqual([]);
  });

  it('an enhanced rejection carries the required depths [EMPA-9.1-06]', () => {
    const startup = asked('50 02 0004 00010008', { ord: 8, ird: 2 });
    startup.reject(NO_BYTES);
    expect(replyOf(startup)).toBe('7002000400020008');
  });
});

describe('startup, responder: refusals', () => {
  it.each([
    ['a key wrong in one bit [MPA-7.1.1-03]', '4d504120494420526571204672616d67 40 01 0000'],
    [
      'another protocol, shorter than a header [MPA-7.1.3-01]',
      '474554202f20485454502f312e310d0a0d0a',
    ],
    ['an FPDU [MPA-7.1.2-02]', '002a 4143'],
    ['a Reply, so that both are responders [MPA-7.1.2-15]', REP_KEY],
    ['PD_Length 513 [MPA-7.1.1-20]', `${REQ_KEY} 40 01 0201`],
    ['PD_Length 65535 [MPA-7.1.1-20]', `${REQ_KEY} 40 01 ffff`],
    ['revision 3 [MPA-7.1.1-16]', `${REQ_KEY} 40 03 0000`],
    ['revision 0 [MPA-C.2-01, MPA-C.2.1-01]', `${REQ_KEY} c0 00 0000`],
    ['S without room for its word [EMPA-6-08]', `${REQ_KEY} 50 02 0003 c020c0`],
    ['a byte after the Request [MPA-7.1.1-22]', `${REQ_KEY} 40 01 0000 00`],
  ])('MPA-7.1.2-03, MPA-8-06, %s: closed at once with code 4, no Reply', (_name, bytes) => {
    const startup = responder();
    feed(startup, bytes);
    const due = effects(startup);
    expect(due).toHaveLength(1);
    expect(due[0]).toMatchObject({
      type: 'failed',
      failure: { kind: 'invalid-frame', layer: 2, etype: 0, code: 4 },
    });
    expect([startup.stateName, startup.nextDeadline()]).toEqual(['failed', NEVER]);
  });

  it('bytes while the consumer decides end it too, and its answer is ignored [MPA-7.1.1-22]', () => {
    const startup = asked('40 01 0000');
    feed(startup, '00');
    expect(only(startup, 'failed').failure.code).toBe(4);
    startup.accept(NO_BYTES, WISHES, 2000);
    startup.reject(NO_BYTES);
    expect(effects(startup)).toEqual([]);
  });

  it('without enhancement, an enhanced Request is closed, an unenhanced one served [EMPA-10-05]', () => {
    const startup = responder({ enhancedSupported: false });
    feed(startup, REQ_KEY, '50 02 0004 c020c010');
    expect(only(startup, 'failed').failure).toMatchObject({ kind: 'invalid-frame', code: 4 });
    expect(replyOf(accepted('40 02 0000', '', { enhancedSupported: false }))).toBe('40010000');
  });

  it('names the peer whose length field overflows', () => {
    const startup = responder();
    feed(startup, REQ_KEY, '50 02 0000');
    expect(only(startup, 'failed').failure.quirk).toBe('siw-private-data-length-overflow');
  });

  it('a FIN within the Private Data is code 4, before any byte code 1 [MPA-7.1.1-21]', () => {
    const cut = responder();
    feed(cut, REQ_KEY, '40 01 0008 01020304');
    cut.handlePeerClosed();
    expect(only(cut, 'failed').failure).toMatchObject({ kind: 'invalid-frame', code: 4 });
    const silent = responder();
    silent.handlePeerClosed();
    expect(only(silent, 'failed').failure).toMatchObject({ kind: 'lost', code: 1 });
    const undecided = asked('40 01 0000');
    undecided.handlePeerClosed();
    expect(only(undecided, 'failed').failure).toMatchObject({ kind: 'lost', code: 1 });
  });

  it('times out without a whole Request, whatever trickles in [MPA-7.1.2-16, MPA-7.1.2-18]', () => {
    for (const bytes of ['', REQ_KEY, `${REQ_KEY} 40 01 00`]) {
      const startup = responder();
      feed(startup, bytes);
      const deadline = 1000 + TIMEOUT_MICROS;
      expect(startup.nextDeadline()).toBe(deadline);
      startup.handleDeadline(deadline - 1);
      expect(effects(startup)).toEqual([]);
      startup.handleDeadline(deadline);
      expect(only(startup, 'failed').failure).toMatchObject({ kind: 'timeout', code: 1 });
      startup.handleDeadline(deadline + 1);
      expect(effects(startup)).toEqual([]);
    }
  });

  it('is answered once, and only after a Request', () => {
    expect(() => responder().accept(NO_BYTES, WISHES, 0)).toThrow('no Request to accept');
    expect(() => responder().reject(NO_BYTES)).toThrow('no Request to reject');
    expect(() => accepted('40 01 0000', '').accept(NO_BYTES, WISHES, 0)).toThrow(
      'no Request to accept',
    );
    expect(() => responder().listen(0)).toThrow('awaiting-request');
  });
});
