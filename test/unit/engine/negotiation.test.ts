import { describe, expect, it } from 'vitest';
import {
  answerRequest,
  concludeReply,
  crcInUse,
  type DepthOptions,
  depthField,
  rejectParameters,
  requestParameters,
} from '../../../daemon/engine/negotiation.ts';
import type { EnhancedParameters, RtrFlags } from '../../../daemon/wire/startup-frame.ts';

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
  it('MPA-7.1.1-09, MPA-7.1.1-10: used in both directions if either end asks for it', () => {
    expect([
      crcInUse(false, false),
      crcInUse(true, false),
      crcInUse(false, true),
      crcInUse(true, true),
    ]).toEqual([false, true, true, true]);
  });
});

describe('depths, responder', () => {
  it('EMPA-9.1-04: ORD is at most the initiator IRD', () => {
    const { reply, depths } = answerRequest(word(4, 8), { ird: 16, ord: 8 }, options);
    expect([reply.ord, depths.ord]).toEqual([4, 4]);
  });

  it('EMPA-9.1-01: the Reply says what is in force', () => {
    const { reply, depths } = answerRequest(word(32, 16), { ird: 7, ord: 5 }, options);
    expect([reply.ird, reply.ord]).toEqual([7, 5]);
    expect(depths).toEqual({ ird: 7, ord: 5 });
  });

  it('EMPA-9.1-05: IRD rises from 0 to 1 for a Read RTR', () => {
    const { reply, depths } = answerRequest(word(0, 0, only('read')), { ird: 0, ord: 0 }, options);
    expect(reply).toEqual(word(1, 0, only('read')));
    expect(depths).toEqual({ ird: 1, ord: 0 });
  });

  it('EMPA-9.1-05: and stays 0 where no Read is among the kinds answered', () => {
    const { reply } = answerRequest(word(0, 0, only('write')), { ird: 0, ord: 0 }, options);
    expect(reply).toEqual(word(0, 0, only('write')));
  });

  it('EMPA-9.1-13: Request ORD 0x3fff leaves IRD as it is and is answered by 0x3fff', () => {
    const { reply, depths } = answerRequest(word(4, 0x3fff), { ird: 9, ord: 2 }, options);
    expect([reply.ird, depths.ird]).toEqual([0x3fff, 9]);
    expect([reply.ord, depths.ord]).toEqual([2, 2]);
  });

  it('EMPA-9.1-13: an unnegotiated IRD of 0 is not raised for a Read RTR either', () => {
    const { reply, depths } = answerRequest(
      word(4, 0x3fff, only('read')),
      { ird: 0, ord: 0 },
      options,
    );
    expect([reply.ird, depths.ird]).toEqual([0x3fff, 0]);
  });

  it('EMPA-9.1-15: Request IRD 0x3fff leaves ORD as it is and is answered by 0x3fff', () => {
    const { reply, depths } = answerRequest(word(0x3fff, 8), { ird: 9, ord: 20 }, options);
    expect([reply.ord, depths.ord]).toEqual([0x3fff, 20]);
    expect([reply.ird, depths.ird]).toEqual([9, 9]);
  });

  it('keeps wishes within the ceilings of the device', () => {
    const { depths } = answerRequest(word(1000, 1000), { ird: 500, ord: 500 }, options);
    expect(depths).toEqual({ ird: 128, ord: 128 });
  });

  it('EMPA-9.1-06: a rejection tells the depths that were needed', () => {
    expect(rejectParameters(word(1, 1), { ...options, ird: 3, ord: 8 })).toEqual(word(3, 8));
  });
});

describe('depths, initiator', () => {
  const request = word(4, 16);

  it('EMPA-9.1-08: IRD rises to the responder ORD', () => {
    expect(concludeReply(request, word(128, 8), options)).toEqual({
      ird: 8,
      ord: 16,
      rtr: undefined,
      error: undefined,
    });
  });

  it('EMPA-9.1-09: ORD falls to the responder IRD', () => {
    expect(concludeReply(request, word(4, 0), options).ord).toBe(4);
    expect(concludeReply(request, word(0, 0), options).ord).toBe(0);
  });

  it('EMPA-9.1-10, EMPA-9.1-07: an ORD above the ceiling is insufficient IRD', () => {
    expect(concludeReply(request, word(16, 128), options).error).toBeUndefined();
    expect(concludeReply(request, word(16, 129), options).error?.code).toBe(6);
    expect(concludeReply(request, word(16, 0x3ffe), options).error?.code).toBe(6);
  });

  it('EMPA-9.1-14: Reply IRD 0x3fff leaves ORD as it is', () => {
    expect(concludeReply(request, word(0x3fff, 0), options).ord).toBe(16);
  });

  it('EMPA-9.1-16: Reply ORD 0x3fff leaves IRD as it is, without an error', () => {
    const outcome = concludeReply(request, word(16, 0x3fff), options);
    expect([outcome.ird, outcome.error]).toEqual([4, undefined]);
  });

  it('EMPA-9.1-02: whatever both ends wish, ORD fits the peer IRD', () => {
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

  it('EMPA-9.1-12: a depth of 16383 and more never becomes "not negotiated"', () => {
    expect([depthField(16382), depthField(16383), depthField(70_000)]).toEqual([
      0x3ffe, 0x3ffe, 0x3ffe,
    ]);
    const huge = { ...options, ird: 16383, ord: 99_999, irdMax: 99_999, ordMax: 99_999 };
    expect(requestParameters(huge)).toEqual(word(0x3ffe, 0x3ffe));
  });
});

describe('RTR, initiator', () => {
  it('EMPA-9.2-02: the peer-to-peer model offers every kind supported', () => {
    expect(requestParameters(peerToPeer)).toEqual(
      word(16, 16, { send: false, write: true, read: true }),
    );
  });

  it('EMPA-9.2-03, EMPA-9.2-14: the client-server model offers none', () => {
    expect(requestParameters(options)).toEqual(word(16, 16));
  });

  it('EMPA-9.3-01: a Read is not offered with an ORD of 0', () => {
    expect(requestParameters({ ...peerToPeer, ord: 0 }).rtr).toEqual(only('write'));
  });

  const offer = word(16, 16, all);

  it.each([
    ['write', only('write')],
    ['read', only('read')],
    ['send', only('send')],
    ['write', all],
    ['read', { send: true, write: false, read: true }],
  ] as const)('EMPA-9.2-10: sends %s when the Reply has %j', (kind, flags) => {
    expect(concludeReply(offer, word(16, 16, flags), peerToPeer).rtr).toBe(kind);
  });

  it('EMPA-9.2-07: passes over kinds that it did not offer', () => {
    const request = word(16, 16, only('send'));
    expect(concludeReply(request, word(16, 16, all), peerToPeer).rtr).toBe('send');
  });

  it('EMPA-9.3-01: takes no Read RTR when ORD comes to 0', () => {
    expect(concludeReply(offer, word(0, 0, all), peerToPeer).rtr).toBe('write');
    expect(concludeReply(offer, word(0, 0, only('read')), peerToPeer).error?.code).toBe(7);
  });

  it('EMPA-9.2-13: no common kind is error code 7', () => {
    const request = word(16, 16, only('write'));
    const outcome = concludeReply(request, word(16, 16, only('read')), peerToPeer);
    expect([outcome.rtr, outcome.error?.code]).toEqual([undefined, 7]);
  });

  it('EMPA-12-01: a Reply with another A, or with A and no kind, is error code 7', () => {
    expect(concludeReply(offer, word(16, 16), peerToPeer).error?.code).toBe(7);
    expect(concludeReply(word(16, 16), word(16, 16, all), options).error?.code).toBe(7);
    expect(concludeReply(offer, word(16, 16, none), peerToPeer).error?.code).toBe(7);
  });
});

describe('RTR, responder', () => {
  const answer = (request: EnhancedParameters, with_: DepthOptions = options) =>
    answerRequest(request, { ird: 16, ord: 16 }, with_).reply;

  it('EMPA-9.2-05: repeats the A flag', () => {
    expect(answer(word(32, 16, all)).peerToPeer).toBe(true);
    expect(answer(word(4, 8)).peerToPeer).toBe(false);
  });

  it('EMPA-9.2-15: answers a Request without A by no flags at all', () => {
    expect(answer({ peerToPeer: false, rtr: all, ird: 4, ord: 8 }).rtr).toEqual(none);
  });

  it('EMPA-9.2-06, EMPA-9.2-08: sets every kind offered that it supports', () => {
    expect(answer(word(16, 16, all)).rtr).toEqual({ send: false, write: true, read: true });
    expect(answer(word(16, 16, only('read'))).rtr).toEqual(only('read'));
  });

  it('EMPA-9.2-09: of an offer that it cannot serve, it answers what it supports', () => {
    const readOnly = { ...options, rtrKinds: only('read') };
    expect(answer(word(16, 16, only('send')), readOnly).rtr).toEqual(only('read'));
  });

  it('EMPA-9.2-04: supports at least one kind, however it is configured', () => {
    for (const offered of [only('send'), only('write'), only('read'), none]) {
      for (const rtrKinds of [none, only('read'), only('send'), all]) {
        const { rtr } = answer(word(16, 16, offered), { ...options, rtrKinds, irdMax: 0 });
        expect(rtr.send || rtr.write || rtr.read).toBe(true);
        expect(rtr.read).toBe(false);
      }
    }
  });
});
