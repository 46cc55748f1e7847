/** DDP over SCTP: codecs are inverse, any order of messages is one order, no bytes break a session. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  emitSessionMessage,
  parseSessionMessage,
  type SessionMessage,
  sessionDataMaxBytes,
  sessionMessageBytes,
} from '#daemon/iwarp/sctp/session-message';
import { bytesOf, hexOf } from '../support/hex.ts';
import { LiteralSession } from '../support/sctp-session.ts';

const depth = fc.integer({ min: 0, max: 0x3fff });
const word = fc
  .record({
    peerToPeer: fc.boolean(),
    rtr: fc.record({ send: fc.boolean(), write: fc.boolean(), read: fc.boolean() }),
    ird: depth,
    ord: depth,
  })
  .map((value) =>
    value.peerToPeer ? value : { ...value, rtr: { send: false, write: false, read: false } },
  );
const data = (enhanced: boolean) => fc.uint8Array({ maxLength: sessionDataMaxBytes(enhanced) });
const message: fc.Arbitrary<SessionMessage> = fc.oneof(
  fc.record({
    function: fc.constantFrom(1 as const, 2 as const, 3 as const),
    enhanced: fc.constant(undefined),
    privateData: data(false),
  }),
  fc.record({
    function: fc.constantFrom(5 as const, 6 as const, 7 as const),
    enhanced: word,
    privateData: data(true),
  }),
);
/** DDP and RDMAP headers of a Send that is message `msn`; its payload is the number. */
const send = (msn: number) =>
  `4143 00000000 00000000 ${msn.toString(16).padStart(8, '0')} 00000000 ${ssn(msn)}`;
const ssn = (n: number) => n.toString(16).padStart(4, '0');

describe('DDP over SCTP', () => {
  it('reads every message that it writes [SCTP-5.2.3-01, SCTPE-7-02, SCTPE-9-01]', () => {
    fc.assert(
      fc.property(message, fc.integer({ min: 0, max: 0xffff }), (value, number) => {
        const bytes = new Uint8Array(sessionMessageBytes(value)).fill(0xa5);
        emitSessionMessage(value, number, bytes, 0);
        expect(hexOf(bytes.subarray(0, 2))).toBe(ssn(number));
        expect(parseSessionMessage(bytes)).toEqual(value);
      }),
    );
  });

  it('delivers in order, in whatever order messages arrive [SCTP-6.1-02, SCTP-10-02]', () => {
    const count = 24;
    const numbers = Array.from({ length: count }, (_, n) => n);
    fc.assert(
      fc.property(fc.shuffledSubarray(numbers, { minLength: count }), (order) => {
        const session = LiteralSession.connecting({ mpaRevision: 1 });
        session.user.postReceive(16, count);
        for (const n of order) {
          if (n === 0) session.control('0000 0002');
          else if (n === count - 1) session.control(`${ssn(n)} 0004`);
          else session.segment(`${ssn(n)} ${send(n)}`);
        }
        const due = numbers.slice(1, -1).map(ssn);
        expect(session.user.delivered.map(({ payload }) => payload)).toEqual(due);
        expect(session.types).toEqual(['established', 'peer-closed']);
        expect(session.layer.heldCount).toBe(0);
      }),
    );
  });

  it('survives any messages: no throw, bounded memory, at most one end', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc
        .tuple(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 0, max: 9 }), fc.uint8Array())
        .map(([number, code, rest]) => bytesOf(`${ssn(number)} ${ssn(code)} ${hexOf(rest)}`)),
      fc
        .tuple(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 1, max: 3 }))
        .map(([number, msn]) => bytesOf(`${ssn(number)} ${send(msn)}`)),
    );
    const protocol = fc.constantFrom(16, 16, 17, 17, 0);
    const input = fc.oneof(fc.tuple(protocol, bytes), fc.constantFrom('accept', 'ack', 'close'));
    const role = fc.constantFrom('active', 'passive', 'open', 'accepted');
    fc.assert(
      fc.property(role, fc.array(input, { maxLength: 40 }), (which, inputs) => {
        const session = {
          active: () => LiteralSession.connecting(),
          passive: () => LiteralSession.listening(),
          open: () => LiteralSession.open(),
          accepted: () => LiteralSession.accepted(),
        }[which]();
        session.user.postReceive(8, 4);
        for (const one of inputs) {
          if (one === 'ack') session.acknowledge();
          else if (one === 'close') session.stream.disconnect(session.now);
          else if (one === 'accept') {
            if (session.types.at(-1) === 'request') session.accept();
          } else session.feed(...one);
        }
        session.run();
        expect(session.types.filter((type) => type === 'closed').length).toBeLessThan(2);
        session.stream.handleClosed(undefined, session.now);
        session.run();
        expect(session.types.filter((type) => type === 'closed')).toHaveLength(1);
        expect(session.pool.inUseCount).toBe(0);
        expect(session.layer.heldCount).toBe(0);
      }),
      { numRuns: 500 },
    );
  });
});
