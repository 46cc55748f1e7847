import { describe, expect, it } from 'vitest';
import {
  answerRequest,
  concludeReply,
  crcInUse,
  type DepthOptions,
  depthField,
  rejectParameters,
  requestParameters,
} from '#daemon/iwarp/engine/negotiation';
import type { EnhancedParameters, RtrFlags } from '#daemon/iwarp/wire/enhanced-word';

const none: RtrFlags = { send: false, write: false, read: false };
const all: RtrFlags = { send: true, write: true, read: true };
const only = (kind: keyof RtrFlags): RtrFlags => ({ ...none, [kind]: true });

const options: DepthOptions = {
  ird: 16,
  ord: 16,
  irdMax: 128,
  ordMax: 128,
  peerToPeer: false,
  rtrKinds: { send: false, write: true, read: true },
};
const peerToPeer: DepthOptions = { ...options, peerToPeer: true };

function word(ird: number, ord: number, rtr?: RtrFlags): EnhancedParameters {
  return { peerToPeer: rtr !== undefined, rtr: rtr ?? none, ird, ord };
}

describe('CRC', () => {
  it('used in both directions if either end requests it [MPA-7.1.1-09, MPA-7.1.1-10]', () => {
    expect([
      crcInUse(false, false),
      crcInUse(true, false),
      crcInUse(false, true),
      crcInUse(true, true),
    ]).toEqual([false, true, true, true]);
  });
});

describe('depths, responder', () => {
  it('ORD is at most the initiator IRD [EMPA-9.1-04]', () => {
    const { reply, depths } = answerRequest(word(4, 8), { ird: 16, ord: 8 }, options);
    expect([reply.ord, depths.ord]).toEqual([4, 4]);
  });

  it('the Reply carries the settings in force [EMPA-9.1-01]', () => {
    const { reply, depths } = answerRequest(word(32, 16), { ird: 7, ord: 5 }, options);
    expect([reply.ird, reply.ord]).toEqual([7, 5]);
    expect(depths).toEqual({ ird: 7, ord: 5 });
  });

  it('IRD rises from 0 to 1 for a Read RTR [EMPA-9.1-05]', () => {
    const { reply, depths } = answerRequest(word(0, 0, only('read')), { ird: 0, ord: 0 }, options);
    expect(reply).toEqual(word(1, 0, only('read')));
    expect(depths).toEqual({ ird: 1, ord: 0 });
  });

  it('does not accept a Read RTR if its IRD is 0 and not negotiated [EMPA-9.1-13]', () => {
    const wishes = { ird: 0, ord: 4 };
    for (const offer of [all, only('read')]) {
      const { reply, depths } = answerRequest(word(8, 0x3fff, offer), wishes, options);
      expect(depths.ird).toBe(0);
      expect(reply.ird).toBe(0x3fff);
      expect(reply.rtr).toEqual(only('write'));
    }
    // With room for a Read it is accepted as usual.
    const { reply } = answerRequest(word(8, 0x3fff, all), { ird: 1, ord: 4 }, options);
    expect(reply.rtr).toEqual({ send: false, write: true, read: true });
  });

  it('and stays 0 if the accepted kinds include no Read [EMPA-9.1-05]', () => {
    const { reply } = answerRequest(word(0, 0, only('write')), { ird: 0, ord: 0 }, options);
    expect(reply).toEqual(word(0, 0, only('write')));
  });

  it('Request ORD 0x3fff leaves IRD unchanged and gets 0x3fff back [EMPA-9.1-13]', () => {
    const { reply, depths } = answerRequest(word(4, 0x3fff), { ird: 9, ord: 2 }, options);
    expect([reply.ird, depths.ird]).toEqual([0x3fff, 9]);
    expect([reply.ord, depths.ord]).toEqual([2, 2]);
  });

  it('an unnegotiated IRD of 0 is not raised for a Read RTR either [EMPA-9.1-13]', () => {
    const { reply, depths } = answerRequest(
      word(4, 0x3fff, only('read')),
      { ird: 0, ord: 0 },
      options,
    );
    expect([reply.ird, depths.ird]).toEqual([0x3fff, 0]);
  });

  it('Request IRD 0x3fff leaves ORD unchanged and gets 0x3fff back [EMPA-9.1-15]', () => {
    const { reply, depths } = answerRequest(word(0x3fff, 8), { ird: 9, ord: 20 }, options);
    expect([reply.ord, depths.ord]).toEqual([0x3fff, 20]);
    expect([reply.ird, depths.ird]).toEqual([9, 9]);
  });

  it('limits wishes to the ceilings of the device', () => {
    const { depths } = answerRequest(word(1000, 1000), { ird: 500, ord: 500 }, options);
    expect(depths).toEqual({ ird: 128, ord: 128 });
  });

  it('a rejection carries the required depths [EMPA-9.1-06]', () => {
    expect(rejectParameters(word(1, 1), { ...options, ird: 3, ord: 8 })).toEqual(word(3, 8));
  });
});

describe('depths, initiator', () => {
  const request = word(4, 16);

  it('IRD rises to the responder ORD [EMPA-9.1-08]', () => {
    expect(concludeReply(request, word(128, 8), options)).toEqual({
      ird: 8,
      ord: 16,
      rtr: undefined,
      error: undefined,
    });
  });

  it('ORD falls to the responder IRD [EMPA-9.1-09]', () => {
    expect(concludeReply(request, word(4, 0), options).ord).toBe(4);
    expect(concludeReply(request, word(0, 0), options).ord).toBe(0);
  });

  it('an ORD above the ceiling is insufficient IRD [EMPA-9.1-10, EMPA-9.1-07]', () => {
    expect(concludeReply(request, word(16, 128), options).error).toBeUndefined();
    expect(concludeReply(request, word(16, 129), options).error?.code).toBe(6);
    expect(concludeReply(request, word(16, 0x3ffe), options).error?.code).toBe(6);
  });

  it('Reply IRD 0x3fff leaves ORD unchanged [EMPA-9.1-14]', () => {
    expect(concludeReply(request, word(0x3fff, 0), options).ord).toBe(16);
  });

  it('Reply ORD 0x3fff leaves IRD unchanged, without an error [EMPA-9.1-16]', () => {
    const outcome = concludeReply(request, word(16, 0x3fff), options);
    expect([outcome.ird, outcome.error]).toEqual([4, undefined]);
  });

  it('whatever both ends wish, ORD fits the peer IRD [EMPA-9.1-02]', () => {
    const values = [0, 1, 4, 8, 127, 128, 500, 0x3ffe, 0x3fff, 70_000];
    for (const a of values) {
      for (const b of values) {
        for (const c of values) {
          for (const d of values) {
            const ceilings = { irdMax: 0x3ffe, ordMax: 0x3ffe };
            const initiator = { ...options, ...ceilings, ird: a, ord: b };
            const sent = requestParameters(initiator);
            const answer = answerRequest(sent, { ird: c, ord: d }, { ...options, ...ceilings });
            const ours = concludeReply(sent, answer.reply, initiator);
            expect(ours.error).toBeUndefined();
            if (ours.ord > answer.depths.ird || answer.depths.ord > ours.ird) {
              expect.fail(`initiator ${a}/${b}, responder ${c}/${d}`);
            }
          }
        }
      }
    }
  });

  it('a depth of 16383 and more never becomes "not negotiated" [EMPA-9.1-12]', () => {
    expect([depthField(16382), depthField(16383), depthField(70_000)]).toEqual([
      0x3ffe, 0x3ffe, 0x3ffe,
    ]);
    const huge = { ...options, ird: 16383, ord: 99_999, irdMax: 99_999, ordMax: 99_999 };
    expect(requestParameters(huge)).toEqual(word(0x3ffe, 0x3ffe));
  });
});

describe('RTR, initiator', () => {
  it('the peer-to-peer model offers every kind supported [EMPA-9.2-02]', () => {
    expect(requestParameters(peerToPeer)).toEqual(
      word(16, 16, { send: false, write: true, read: true }),
    );
  });

  it('the client-server model offers none [EMPA-9.2-03, EMPA-9.2-14]', () => {
    expect(requestParameters(options)).toEqual(word(16, 16));
  });

  it('a Read is not offered with an ORD of 0 [EMPA-9.3-01]', () => {
    expect(requestParameters({ ...peerToPeer, ord: 0 }).rtr).toEqual(only('write'));
  });

  const offer = word(16, 16, all);

  it.each([
    ['write', only('write')],
    ['read', only('read')],
    ['send', only('send')],
    ['write', all],
    ['read', { send: true, write: false, read: true }],
  ] as const)('sends %s when the Reply has %j [EMPA-9.2-10]', (kind, flags) => {
    expect(concludeReply(offer, word(16, 16, flags), peerToPeer).rtr).toBe(kind);
  });

  it('skips kinds that it did not offer [EMPA-9.2-07]', () => {
    const request = word(16, 16, only('send'));
    expect(concludeReply(request, word(16, 16, all), peerToPeer).rtr).toBe('send');
  });

  it('chooses no Read RTR when ORD falls to 0 [EMPA-9.3-01]', () => {
    expect(concludeReply(offer, word(0, 0, all), peerToPeer).rtr).toBe('write');
    expect(concludeReply(offer, word(0, 0, only('read')), peerToPeer).error?.code).toBe(7);
  });

  it('no common kind is error code 7 [EMPA-9.2-13]', () => {
    const request = word(16, 16, only('write'));
    const outcome = concludeReply(request, word(16, 16, only('read')), peerToPeer);
    expect([outcome.rtr, outcome.error?.code]).toEqual([undefined, 7]);
  });

  it('a Reply with another A, or with A and no kind, is error code 7 [EMPA-12-01]', () => {
    expect(concludeReply(offer, word(16, 16), peerToPeer).error?.code).toBe(7);
    expect(concludeReply(word(16, 16), word(16, 16, all), options).error?.code).toBe(7);
    expect(concludeReply(offer, word(16, 16, none), peerToPeer).error?.code).toBe(7);
  });
});

describe('RTR, responder', () => {
  const answer = (request: EnhancedParameters, with_: DepthOptions = options) =>
    answerRequest(request, { ird: 16, ord: 16 }, with_).reply;

  it('repeats the A flag [EMPA-9.2-05]', () => {
    expect(answer(word(32, 16, all)).peerToPeer).toBe(true);
    expect(answer(word(4, 8)).peerToPeer).toBe(false);
  });

  it('answers a Request without A with no flags [EMPA-9.2-15]', () => {
    expect(answer({ peerToPeer: false, rtr: all, ird: 4, ord: 8 }).rtr).toEqual(none);
  });

  it('sets every kind offered that it supports [EMPA-9.2-06, EMPA-9.2-08]', () => {
    expect(answer(word(16, 16, all)).rtr).toEqual({ send: false, write: true, read: true });
    expect(answer(word(16, 16, only('read'))).rtr).toEqual(only('read'));
  });

  it('answers an offer that it cannot serve with the kinds it supports [EMPA-9.2-09]', () => {
    const readOnly = { ...options, rtrKinds: only('read') };
    expect(answer(word(16, 16, only('send')), readOnly).rtr).toEqual(only('read'));
  });

  it('supports at least one kind, however it is configured [EMPA-9.2-04]', () => {
    for (const offered of [only('send'), only('write'), only('read'), none]) {
      for (const rtrKinds of [none, only('read'), only('send'), all]) {
        const { rtr } = answer(word(16, 16, offered), { ...options, rtrKinds, irdMax: 0 });
        expect(rtr.send || rtr.write || rtr.read).toBe(true);
        expect(rtr.read).toBe(false);
      }
    }
  });
});
