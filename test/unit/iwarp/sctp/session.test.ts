/** Sessions as dialogues: each message is written out, derived by hand from RFC 5043 and 6581. */
import { describe, expect, it } from 'vitest';
import { bytesOf } from '#test/support/hex';
import { LiteralSession } from '#test/support/sctp-session';

/** DDP and RDMAP headers of a Send on queue 0: last, not tagged; then MSN and offset 0. */
const SEND = (msn: number) => `4143 00000000 00000000 ${hex(msn, 8)} 00000000`;
/** A tagged Write, last, to STag 0xdead at offset 0. */
const BAD_WRITE = 'c140 0000dead 0000000000000000 ff';
const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');
const ssn = (value: number) => hex(value, 4);
const compact = (hex: string) => hex.replaceAll(' ', '');
const SECOND = 1_000_000;

describe('the active side', () => {
  it('initiates, is accepted, sends and terminates [SCTP-6.2-01, SCTP-5.2.3-03, SCTP-6-02]', () => {
    const session = LiteralSession.connecting({ mpaRevision: 1 }, '68656c6c6f');
    expect(session.take()).toEqual(['17 0000000168656c6c6f']);
    session.control('0000 0002 6f6b');
    expect(session.events).toMatchObject([
      { type: 'established', revision: 1, privateData: bytesOf('6f6b'), crcEnabled: false },
    ]);
    session.user.send(bytesOf('6869'));
    expect(session.run().take()).toEqual([compact(`16 0001${SEND(1)}6869`).replace('16', '16 ')]);
    session.stream.disconnect(0);
    expect(session.run().take()).toEqual(['17 00020004']);
    session.control('0001 0004');
    expect(session.types).toEqual(['established', 'finish', 'peer-closed', 'closed']);
    expect(session.failure).toBeUndefined();
  });

  it('asks for IRD, ORD and RTR, and begins with the RTR [SCTPE-7-02, SCTPE-9.2-01, SCTPE-9.1-01]', () => {
    const session = LiteralSession.connecting(
      { peerToPeer: true, rtrKinds: { send: false, write: true, read: false }, ird: 16, ord: 8 },
      '6869',
    );
    expect(session.take()).toEqual(['17 00000005801080086869']);
    session.control('0000 0006 80048010');
    expect(session.events).toMatchObject([{ type: 'established', ird: 16, ord: 4, revision: 2 }]);
    // An RDMA Write of no bytes.
    expect(session.take()).toEqual([
      compact('16 0001 c140 00000000 0000000000000000').replace('16', '16 '),
    ]);
  });

  it('ends with code 6 when its IRD does not suffice [SCTPE-8-01, SCTPE-9.1-01, SCTP-6.2-02]', () => {
    const session = LiteralSession.connecting({ ird: 8, irdMax: 8 });
    session.take();
    session.control('0000 0006 00080020');
    const [terminate = '', end] = session.take();
    expect(terminate).toMatch(/^16 0001/);
    expect(terminate).toContain('20060000');
    expect(end).toBe('17 00020004');
  });

  it('keeps values that the peer does not negotiate [SCTPE-9.1-02]', () => {
    const session = LiteralSession.connecting({ ird: 6, ord: 7 });
    expect(session.take()).toEqual(['17 0000000500060007']);
    session.control('0000 0006 3fff3fff');
    expect(session.events).toMatchObject([{ type: 'established', ird: 6, ord: 7 }]);
  });

  it('reports a rejection and its private data, and sends nothing more [SCTP-6.3-01, SCTP-5.2.3-05]', () => {
    const session = LiteralSession.connecting({ mpaRevision: 1 });
    session.take();
    session.control('0000 0003 6e6f');
    expect(session.events).toMatchObject([{ type: 'rejected', privateData: bytesOf('6e6f') }]);
    session.stream.disconnect(0);
    session.run();
    expect(session.take()).toEqual([]);
    expect(session.types).toEqual(['rejected', 'finish', 'closed']);
  });

  it('reports an enhanced rejection, with or without the needs of the peer [SCTPE-7-04]', () => {
    const session = LiteralSession.connecting();
    session.control('0000 0007 00100020 6e6f');
    expect(session.events).toMatchObject([{ type: 'rejected', peerIrd: 16, peerOrd: 32 }]);
    const bare = LiteralSession.connecting();
    bare.control('0000 0007');
    expect(bare.events).toMatchObject([{ type: 'rejected', peerIrd: undefined }]);
  });

  it('reports a refusal, and does not answer it [SCTP-5.2.3-06]', () => {
    const session = LiteralSession.connecting();
    session.take();
    session.control('0000 0004');
    expect(session.failure?.kind).toBe('refused');
    expect(session.take()).toEqual([]);
    expect(session.layer.reusable).toBe(false);
    expect(session.acknowledge().layer.reusable).toBe(true);
  });

  it('sends no segment before it is accepted [SCTP-6.6-02]', () => {
    const session = LiteralSession.connecting({ mpaRevision: 1 });
    session.take();
    session.user.send(bytesOf('6869'));
    expect(session.run().take()).toEqual([]);
    session.acknowledge();
    expect(session.take()).toEqual([]);
    expect(session.control('0000 0002').take()).toHaveLength(1);
  });

  it('gives up after the startup timeout', () => {
    const session = LiteralSession.connecting();
    session.acknowledge().take();
    session.pass(5 * SECOND);
    expect(session.failure?.kind).toBe('timeout');
    expect(session.take()).toEqual(['17 00010004']);
  });

  it.each([
    ['a plain Accept of an enhanced Initiate', '0000 0002'],
    ['a plain Reject of an enhanced Initiate', '0000 0003'],
    ['another Initiate', '0000 0001'],
    ['an unknown function', '0000 0009'],
  ])('ends at %s [SCTP-6.1-02, SCTPE-7-07, SCTPE-10-01]', (_name, hex) => {
    const session = LiteralSession.connecting();
    session.take();
    session.control(hex);
    expect(session.failure?.kind).toBe('protocol');
    expect(session.types).not.toContain('established');
  });

  it('ends at an enhanced answer to a plain Initiate [SCTPE-10-01, SCTPE-7-07]', () => {
    for (const hex of ['0000 0006 00010001', '0000 0007 00010001']) {
      const session = LiteralSession.connecting({ mpaRevision: 1 });
      expect(session.control(hex).failure?.kind).toBe('protocol');
    }
  });

  it('sends nothing to a peer whose association is not for DDP [SCTP-11.1-01]', () => {
    for (const peerAdaptation of [undefined, 0, 2]) {
      for (const role of ['connect', 'listen'] as const) {
        const session = new LiteralSession({}, { peerAdaptation: 1 });
        const other = new LiteralSession({}, { peerAdaptation });
        for (const one of [session, other]) {
          if (role === 'connect') one.stream.connect(bytesOf(''), one.user, 0);
          else one.stream.listen(0);
          one.run();
        }
        expect(session.types).toEqual([]);
        expect(other.types).toEqual(['abort', 'closed']);
        expect(other.take()).toEqual([]);
      }
    }
  });
});

describe('the passive side', () => {
  it('reports an Initiate, and sends right after its Accept [SCTP-5.2.3-05, SCTPE-7-08]', () => {
    const session = LiteralSession.listening();
    expect(session.control('0000 0001 68656c6c6f').events).toMatchObject([
      { type: 'request', enhanced: false, privateData: bytesOf('68656c6c6f'), peerIrd: undefined },
    ]);
    session.user.send(bytesOf('6869'));
    session.accept('6f6b');
    expect(session.take()).toEqual([
      '17 000000026f6b',
      compact(`16 0001${SEND(1)}6869`).replace('16', '16 '),
    ]);
  });

  it('answers enhanced requests enhanced, within the limits of the peer [SCTPE-10-01, SCTPE-9.1-01, SCTPE-9.1-02, SCTPE-9.2-01]', () => {
    const session = LiteralSession.listening();
    session.control('0000 0005 8002c008');
    session.accept('', { ird: 8, ord: 8 });
    expect(session.take()).toEqual(['17 000000068008c002']);
    expect(session.events[1]).toMatchObject({ type: 'established', ird: 8, ord: 2 });
    const open = LiteralSession.listening();
    open.control('0000 0005 3fff3fff').accept('', { ird: 3, ord: 4 });
    expect(open.take()).toEqual(['17 000000063fff3fff']);
    expect(open.events[1]).toMatchObject({ type: 'established', ird: 3, ord: 4 });
  });

  it('rejects if its consumer does, enhanced if the request was [SCTP-6.3-02, SCTPE-7-04]', () => {
    const session = LiteralSession.listening();
    session.control('0000 0001').stream.reject(bytesOf('6e6f'), 0);
    expect(session.run().take()).toEqual(['17 000000036e6f']);
    const enhanced = LiteralSession.listening({ irdMax: 32, ordMax: 32 });
    enhanced.control('0000 0005 00010001').stream.reject(bytesOf(''), 0);
    expect(enhanced.run().take()).toEqual(['17 0000000700080008']);
  });

  it('refuses with a Terminate when the refusal is not its consumer’s [SCTP-5.2.3-06, SCTP-6.3-02]', () => {
    const session = LiteralSession.listening();
    session.control('0000 0005 00010001').stream.refuse(0);
    expect(session.run().take()).toEqual(['17 00000004']);
    expect(session.acknowledge().layer.reusable).toBe(true);
  });

  it('refuses an enhanced request if only plain ones are supported', () => {
    const session = LiteralSession.listening({ enhancedSupported: false });
    session.control('0000 0005 00010001');
    expect(session.take()).toEqual(['17 00000004']);
    expect(session.types).toEqual(['closed']);
  });

  it('holds segments that arrive before the consumer has answered, within bounds', () => {
    const session = LiteralSession.listening();
    session.user.postReceive(16);
    session.control('0000 0001').segment(`0001 ${SEND(1)} 6869`);
    expect(session.user.delivered).toEqual([]);
    session.accept();
    expect(session.user.delivered.map(({ payload }) => payload)).toEqual(['6869']);
    const flooded = LiteralSession.listening().control('0000 0001');
    for (let n = 1; n < 60; n += 1) {
      flooded.segment(`${ssn(n)} 00*1400`);
    }
    expect(flooded.failure?.kind).toBe('protocol');
    expect(flooded.layer.heldCount).toBe(0);
  });

  it('holds more messages that overtake the awaited Accept', () => {
    const session = LiteralSession.connecting({ mpaRevision: 1 });
    session.user.postReceive(1400, 60);
    for (let n = 60; n > 0; n -= 1) session.segment(`${ssn(n)} ${SEND(n)} 00*1300`);
    session.control('0000 0002');
    expect(session.user.delivered.length).toBe(60);
    expect(session.types).toEqual(['established']);
  });

  it('still holds out-of-order messages when its own half has ended', () => {
    const session = LiteralSession.accepted();
    session.user.postReceive(1400, 60);
    session.stream.disconnect(0);
    session.acknowledge();
    expect(session.take()).toEqual(['17 00010004']);
    for (let n = 60; n > 0; n -= 1) session.segment(`${ssn(n)} ${SEND(n)} 00*1300`);
    expect(session.user.delivered.length).toBe(60);
    expect(session.failure).toBe(undefined);
  });

  it.each([
    ['an Accept', 17, '0000 0002'],
    ['a Terminate', 17, '0000 0004'],
    ['a segment', 16, `0000 ${SEND(1)}`],
    ['too much private data', 17, '0000 0001 00*513'],
    ['nothing but a byte', 17, '00'],
    ['another payload protocol', 0, '0000 0001'],
  ])(
    'ends at %s instead of an Initiate [SCTP-6.1-02, SCTP-5.1-02, SCTP-6.5-01]',
    (_name, protocol, hex) => {
      const session = LiteralSession.listening().feed(protocol, bytesOf(hex));
      expect(session.failure?.kind).toBe('protocol');
      expect(session.take()).toEqual(['17 00000004']);
    },
  );

  it('gives up when no Initiate comes', () => {
    const session = LiteralSession.listening();
    session.pass(5 * SECOND);
    expect(session.types).toEqual(['abort', 'closed']);
    expect(session.take()).toEqual([]);
  });
});

describe('a session', () => {
  it('judges messages in the order of their DDP-SSNs, however they arrive [SCTP-6.1-02, SCTP-10-02]', () => {
    const session = LiteralSession.connecting({ mpaRevision: 1 });
    session.user.postReceive(16, 3);
    session.control('0003 0004');
    session.segment(`0002 ${SEND(2)} 02`);
    session.segment(`0001 ${SEND(1)} 01`);
    expect(session.types).toEqual([]);
    session.control('0000 0002');
    expect(session.types).toEqual(['established', 'peer-closed']);
    expect(session.user.delivered.map(({ payload }) => payload)).toEqual(['01', '02']);
  });

  it('sends no control message that could overtake its Accept [SCTP-6.6-01]', () => {
    const session = LiteralSession.accepted();
    session.stream.disconnect(0);
    expect(session.run().take()).toEqual([]);
    expect(session.types).not.toContain('finish');
    expect(session.acknowledge().take()).toEqual(['17 00010004']);
    expect(session.types).toContain('finish');
    const received = LiteralSession.accepted();
    received.user.postReceive(16);
    received.stream.disconnect(0);
    // The active side sends, so it has the Accept.
    expect(
      received
        .run()
        .segment(`0001 ${SEND(1)} 01`)
        .take(),
    ).toEqual(['17 00010004']);
  });

  it('ends gracefully when only one side terminates [SCTP-6.2-01]', () => {
    const session = LiteralSession.open();
    session.stream.disconnect(0);
    expect(session.run().take()).toEqual(['17 00010004']);
    session.acknowledge().pass(SECOND);
    expect(session.types).toEqual(['established', 'finish', 'closed']);
    expect(session.failure).toBeUndefined();
    expect(session.layer.reusable).toBe(false);
    const deaf = LiteralSession.open();
    deaf.stream.disconnect(0);
    deaf.run().pass(SECOND);
    expect(deaf.failure?.kind).toBe('timeout');
  });

  it('may be followed by another one once everything is acknowledged [SCTP-6.6-03, SCTP-6-02]', () => {
    const session = LiteralSession.open();
    session.control('0001 0004');
    session.stream.disconnect(0);
    expect(session.run().take()).toEqual(['17 00010004']);
    expect(session.layer).toMatchObject({ over: true, reusable: false });
    session.acknowledge();
    expect(session.layer.reusable).toBe(true);
  });

  it('that breaks a rule of RDMAP sends RDMAP’s Terminate, then its own [SCTP-11.3-02, SCTP-6.2-02, SCTPE-7-05]', () => {
    const session = LiteralSession.connecting();
    session.take();
    session.control('0000 0006 00080008').take();
    session.segment(`0001 ${BAD_WRITE}`);
    const [rdmap = '', ddp] = session.take();
    expect(rdmap).toMatch(/^16 0001/);
    expect(rdmap).toContain('1100');
    expect(ddp).toBe('17 00020004');
    // Messages before the peer's Terminate are dropped, and still count in the order.
    session.segment(`0002 ${BAD_WRITE}`).control('0003 0004');
    expect(session.types).toEqual(['established', 'terminated', 'finish', 'closed']);
  });

  it.each([
    ['a second Initiate', 17, '0001 0001'],
    ['a second Accept', 17, '0001 0002'],
    ['a Terminate with data', 17, '0001 0004 00'],
    ['another payload protocol', 99, '0001 0004'],
    ['a DDP-SSN for the second time', 17, '0000 0004'],
    ['a DDP-SSN far ahead', 16, '2000 00'],
    ['a message without a whole DDP-SSN', 16, '00'],
  ])(
    'ends at %s, without an RDMAP Terminate [SCTP-6.1-02, SCTP-6.5-01]',
    (_name, protocol, hex) => {
      const session = LiteralSession.open();
      session.take();
      session.feed(protocol, bytesOf(hex));
      expect(session.failure?.kind).toBe('protocol');
      expect(session.take()).toEqual(['17 00010004']);
      // Whatever follows changes nothing.
      session.segment(`0001 ${SEND(1)} 01`).control('0002 0002');
      expect(session.take()).toEqual([]);
      expect(session.types).toEqual(['established', 'closed']);
    },
  );

  it('ends when a segment follows the peer’s Terminate [SCTP-6.2-01, SCTP-6.1-02]', () => {
    const session = LiteralSession.open();
    session.control('0001 0004').segment(`0002 ${SEND(1)} 01`);
    const text = expect.stringContaining('after the FIN of the peer');
    expect(session.failure).toMatchObject({ kind: 'lost', text });
    expect(session.types.at(-1)).toBe('closed');
    expect(session.user.delivered).toEqual([]);
  });

  it('is lost with its association, and notifies its consumer [SCTP-11.3-01]', () => {
    for (const session of [
      LiteralSession.open(),
      LiteralSession.connecting(),
      LiteralSession.listening().control('0000 0001'),
    ]) {
      session.take();
      session.stream.handleClosed('ECONNRESET', 0);
      session.run();
      expect(session.failure?.kind).toBe('lost');
      expect(session.take()).toEqual([]);
      expect(session.pool.inUseCount).toBe(0);
    }
  });

  it('is aborted by its user without another message', () => {
    const session = LiteralSession.connecting();
    session.take();
    session.stream.disconnect(0);
    expect(session.run().types).toEqual(['abort', 'closed']);
    expect(session.take()).toEqual([]);
  });

  it('cuts segments as the path shrinks and grows [SCTP-9-01, SCTP-9-04]', () => {
    const session = LiteralSession.open();
    session.user.write(new Uint8Array(3000), 1, 0);
    const lengths = (messages: string[]) => messages.map((one) => (one.length - 3) / 2);
    expect(lengths(session.run().take())).toEqual([1428, 1428, 2 + 14 + 3000 - 2 * 1412]);
    session.stream.setEmss(800);
    session.user.write(new Uint8Array(1000), 1, 0);
    expect(lengths(session.run().take())).toEqual([784, 2 + 14 + 1000 - 768]);
  });
});
