/** The life of a connection as dialogues: stream and TCP report, the consumer gets events. */
import { beforeEach, describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { CMEventType } from '#contract/verbs/enums';
import type { StreamEvent } from '#daemon/iwarp/engine/stream-api';
import {
  CLOSED,
  CmRig,
  ESTABLISHED,
  FakeQP,
  lost,
  NO_WISHES,
  PEER,
  REQUEST,
} from '#test/support/cm-rig';
import { NO_BYTES } from '#test/support/hex';

function closedBy(kind: string): StreamEvent {
  return { type: 'closed', failure: { kind, text: `because of ${kind}` } };
}

let rig: CmRig;

beforeEach(() => {
  rig = new CmRig();
});

describe('an initiator', () => {
  it('dials, sends its Request, is established and closes', () => {
    const { id, qp, endpoint } = rig.dialing();
    expect(rig.effects).toMatchObject([{ type: 'dial', remote: PEER }]);
    expect(qp.notified).toEqual([]);
    expect(rig.manager.handleDialed(endpoint, rig.facts(), rig.now)).toBe(true);
    expect([qp.notified, rig.stream.commands]).toEqual([['attach'], ['connect 0']]);
    expect(rig.emit(endpoint, ESTABLISHED)).toEqual([CMEventType.established]);
    expect(rig.lastEvent).toMatchObject({
      id,
      error: undefined,
      privateData: Uint8Array.of(7),
      initiatorDepth: 2,
      responderResources: 3,
    });
    rig.manager.disconnect(id, rig.now);
    rig.manager.disconnect(id, rig.now);
    expect(rig.stream.commands).toEqual(['connect 0', 'disconnect']);
    expect(rig.drain()).toEqual([]);
    expect(rig.emit(endpoint, CLOSED)).toEqual([CMEventType.disconnected]);
    expect(qp.notified).toEqual([
      'attach',
      'established ird 3 ord 2',
      'disconnecting',
      'ended gracefully',
    ]);
    rig.manager.disconnect(id, rig.now);
    expect(rig.drain()).toEqual([]);
    expect(rig.manager.endpoints()).toEqual([]);
  });

  it.each([
    ['ECONNREFUSED', CMEventType.rejected, 'ECONNREFUSED'],
    ['ECONNRESET', CMEventType.rejected, 'ECONNRESET'],
    ['ETIMEDOUT', CMEventType.unreachable, 'ETIMEDOUT'],
    ['EHOSTUNREACH', CMEventType.unreachable, 'EHOSTUNREACH'],
    ['ENETUNREACH', CMEventType.unreachable, 'ENETUNREACH'],
    ['EADDRNOTAVAIL', CMEventType.connectError, 'EADDRNOTAVAIL'],
    ['EMFILE', CMEventType.connectError, 'EIO'],
  ])('reports a TCP failure (%s) as event %i with %s, and releases the QP', (code, type, error) => {
    const rig = new CmRig();
    const { qp, endpoint } = rig.dialing();
    rig.manager.handleDialFailed(endpoint, code, rig.now);
    expect(rig.drain()).toEqual([type]);
    expect(rig.lastEvent.error).toBe(error);
    expect(qp.notified).toEqual([]);
    rig.dialing(qp);
  });

  it('stops dialling at its deadline, not before', () => {
    const { endpoint } = rig.dialing();
    const deadline = rig.manager.nextDeadline();
    expect(deadline).toBe(rig.now + 10_000_000);
    rig.manager.handleDeadline(deadline - 1);
    expect(rig.drain()).toEqual([]);
    rig.manager.handleDeadline(deadline);
    expect(rig.drain()).toEqual([CMEventType.unreachable]);
    expect(rig.lastEvent.error).toBe('ETIMEDOUT');
    expect(rig.effects.at(-1)).toEqual({ type: 'cancelDial', endpoint });
    expect(rig.manager.nextDeadline()).toBe(NEVER);
    // A TCP connection that still arrives is refused.
    expect(rig.manager.handleDialed(endpoint, rig.facts(), rig.now)).toBe(false);
  });

  it('fails with a connect error when the QP no longer accepts the stream', () => {
    const { qp, endpoint } = rig.dialing();
    qp.refusal = 'EINVAL';
    expect(rig.manager.handleDialed(endpoint, rig.facts(), rig.now)).toBe(false);
    expect(rig.drain()).toEqual([CMEventType.connectError]);
    expect(rig.lastEvent.error).toBe('EINVAL');
  });

  it.each([
    ['lost', CMEventType.rejected, 'ECONNRESET'],
    ['timeout', CMEventType.unreachable, 'ETIMEDOUT'],
    ['invalid-frame', CMEventType.connectError, 'EINVAL'],
    ['protocol', CMEventType.connectError, 'EINVAL'],
  ])(
    'reports a startup that fails by %s as event %i with %s, and releases the QP',
    (kind, type, error) => {
      const rig = new CmRig();
      const { id, qp, endpoint } = rig.initiating();
      expect(rig.emit(endpoint, closedBy(kind))).toEqual([type]);
      expect(rig.lastEvent).toMatchObject({ id, error, text: `because of ${kind}` });
      expect(qp.notified).toEqual(['attach', 'detach']);
      rig.initiating(qp);
    },
  );

  it('a rejection is reported with its data, then TCP is closed [MPA-7.1.2-09, MPA-7.1.4.2-01, EMPA-9.1-11]', () => {
    const { qp, endpoint } = rig.initiating();
    const event: StreamEvent = {
      type: 'rejected',
      privateData: Uint8Array.of(9),
      peerIrd: 4,
      peerOrd: 5,
    };
    expect(rig.emit(endpoint, event)).toEqual([CMEventType.rejected]);
    expect(rig.lastEvent).toMatchObject({
      error: 'ECONNRESET',
      privateData: Uint8Array.of(9),
      initiatorDepth: 4,
      responderResources: 5,
    });
    expect(qp.notified).toEqual(['attach', 'detach']);
    expect(rig.stream.commands).toEqual(['connect 0', 'disconnect']);
    expect(rig.emit(endpoint, CLOSED)).toEqual([]);
    expect(rig.manager.endpoints()).toEqual([]);
  });
});

describe('a responder', () => {
  it('passes the request on, is accepted and established [MPA-7.1.1-24, EMPA-9.1-03]', () => {
    const listener = rig.listening();
    const endpoint = rig.incoming(listener);
    expect(rig.stream.commands).toEqual(['listen']);
    expect(rig.emit(endpoint, REQUEST)).toEqual([CMEventType.connectRequest]);
    const { id } = rig.lastEvent;
    expect(rig.lastEvent).toMatchObject({
      listener,
      privateData: Uint8Array.of(1, 2),
      initiatorDepth: 4,
      responderResources: 5,
    });
    expect(id).toMatchObject({ tag: 'server', device: 'iwarp0', peerAddress: PEER });
    const qp = new FakeQP();
    rig.manager.accept(id, qp, { ...NO_WISHES, initiatorDepth: 4 }, rig.now);
    expect(rig.stream.commands).toEqual(['listen', 'accept 0 ird 16 ord 4']);
    expect(rig.emit(endpoint, ESTABLISHED)).toEqual([CMEventType.established]);
    expect(qp.notified).toEqual(['attach', 'established ird 3 ord 2']);
  });

  it('rejects with private data, then closes TCP [MPA-7.1.2-04, MPA-7.1.2-05]', () => {
    const { id, endpoint } = rig.requested();
    rig.manager.reject(id, Uint8Array.of(1, 2, 3), rig.now);
    expect(rig.stream.commands).toEqual(['listen', 'reject 3', 'disconnect']);
    expect(rig.drain()).toEqual([]);
    expect(id.state).toBe('closed');
    expect(rig.emit(endpoint, CLOSED)).toEqual([]);
    rig.manager.destroy(id, rig.now);
    expect(rig.manager.endpoints()).toEqual([]);
  });

  it.each([
    ['is lost', lost],
    ['finishes', { type: 'peer-closed' } as const],
  ])('whose peer %s before the answer reports nothing until accept', (_name, event) => {
    const rig = new CmRig();
    const { id, endpoint } = rig.requested();
    expect(rig.emit(endpoint, event)).toEqual([]);
    const qp = new FakeQP();
    const accept = () => rig.manager.accept(id, qp, NO_WISHES, rig.now);
    expect(accept).toThrow(expect.objectContaining({ code: 'ECONNRESET' }));
    expect(qp.notified).toEqual([]);
    rig.manager.destroy(id, rig.now);
    expect(rig.manager.endpoints()).toEqual([]);
  });

  it('whose peer leaves while the Reply is sent gets a connect error', () => {
    const { id, endpoint } = rig.requested();
    const qp = new FakeQP();
    rig.manager.accept(id, qp, NO_WISHES, rig.now);
    expect(rig.emit(endpoint, lost)).toEqual([CMEventType.connectError]);
    expect(rig.lastEvent.error).toBe('ECONNRESET');
    expect(qp.notified).toEqual(['attach', 'detach']);
  });

  it('ends silently when no Request comes', () => {
    const listener = rig.listening();
    expect(rig.emit(rig.incoming(listener), closedBy('timeout'))).toEqual([]);
    expect(rig.manager.endpoints()).toEqual([]);
  });
});

describe('an established connection', () => {
  function established(): ReturnType<CmRig['initiating']> & { rig: CmRig } {
    const rig = new CmRig();
    const connecting = rig.initiating();
    rig.emit(connecting.endpoint, ESTABLISHED);
    connecting.qp.notified.length = 0;
    return { rig, ...connecting };
  }

  it('closes its half when the peer has closed [DDP-6.2.1-05, MPA-7.2-02]', () => {
    const { rig, endpoint, qp } = established();
    expect(rig.emit(endpoint, { type: 'peer-closed' })).toEqual([]);
    expect(rig.stream.commands).toEqual(['connect 0', 'disconnect']);
    expect(rig.emit(endpoint, CLOSED)).toEqual([CMEventType.disconnected]);
    expect(qp.notified).toEqual(['disconnecting', 'ended gracefully']);
  });

  it('reports disconnected once when it is lost', () => {
    const { rig, endpoint, qp } = established();
    expect(rig.emit(endpoint, lost)).toEqual([CMEventType.disconnected]);
    expect(rig.emit(endpoint, lost)).toEqual([]);
    expect(rig.lastEvent).toMatchObject({ error: 'ECONNRESET', text: 'gone' });
    expect(qp.notified).toEqual(['ended lost']);
  });

  it('reports disconnected once nothing is copied into memory any more, and lets the QP dial before', () => {
    const { rig, endpoint, qp } = established();
    qp.copying = true;
    expect(rig.emit(endpoint, lost)).toEqual([]);
    expect([endpoint.phase, qp.notified]).toEqual(['closing', ['ended lost']]);
    qp.copying = false;
    const next = rig.dialing(qp);
    for (const report of qp.waiting) report();
    expect(rig.drain()).toEqual([CMEventType.disconnected]);
    expect([endpoint.phase, next.endpoint.phase]).toEqual(['over', 'dialing']);
    rig.manager.assertInvariants();
  });

  it.each(['us', 'peer'] as const)('reports a Terminate by %s to the QP before the end', (by) => {
    const { rig, endpoint, qp } = established();
    const failure = { kind: 'protocol', text: 'CRC' };
    expect(rig.emit(endpoint, { type: 'terminated', by, failure })).toEqual([]);
    expect(rig.emit(endpoint, { type: 'closed', failure })).toEqual([CMEventType.disconnected]);
    expect(rig.lastEvent.text).toBe('CRC');
    expect(qp.notified).toEqual([`terminated by ${by}`, 'ended protocol']);
  });

  it('leaves FIN and reset to the socket', () => {
    const { rig, endpoint, qp } = established();
    expect(rig.emit(endpoint, { type: 'finish' })).toEqual([]);
    expect(rig.emit(endpoint, { type: 'abort' })).toEqual([]);
    expect([endpoint.phase, qp.notified]).toEqual(['established', []]);
  });
});

describe('destroy', () => {
  it('before TCP is connected cancels it and frees the QP', () => {
    const { id, qp, endpoint } = rig.dialing();
    rig.manager.destroy(id, rig.now);
    rig.manager.destroy(id, rig.now);
    expect(rig.drain()).toEqual([]);
    expect(rig.effects.at(-1)).toEqual({ type: 'cancelDial', endpoint });
    expect(rig.network.ports.size).toBe(0);
    expect(rig.manager.handleDialed(endpoint, rig.facts(), rig.now)).toBe(false);
    rig.dialing(qp);
  });

  it('during startup aborts the stream and frees the QP', () => {
    const { id, qp, endpoint } = rig.initiating();
    rig.manager.destroy(id, rig.now);
    expect(rig.stream.commands).toEqual(['connect 0', 'abort']);
    expect(qp.notified).toEqual(['attach', 'detach']);
    expect(rig.emit(endpoint, closedBy('local'))).toEqual([]);
  });

  it('of a request rejects it', () => {
    const { id } = rig.requested();
    rig.manager.destroy(id, rig.now);
    expect(rig.stream.commands).toEqual(['listen', 'refuse', 'disconnect']);
  });

  it('of an accepted id that is not established aborts', () => {
    const { id } = rig.requested();
    rig.manager.accept(id, new FakeQP(), NO_WISHES, rig.now);
    rig.manager.destroy(id, rig.now);
    expect(rig.stream.commands.at(-1)).toBe('abort');
  });

  it('of an established id closes gracefully; the QP is notified of the end, the id is not', () => {
    const { id, qp, endpoint } = rig.initiating();
    rig.emit(endpoint, ESTABLISHED);
    rig.manager.destroy(id, rig.now);
    expect(rig.stream.commands).toEqual(['connect 0', 'disconnect']);
    expect(rig.emit(endpoint, CLOSED)).toEqual([]);
    expect(qp.notified.at(-1)).toBe('ended gracefully');
  });

  it('of a disconnecting or closed id changes nothing for the connection', () => {
    const { id, endpoint } = rig.initiating();
    rig.emit(endpoint, ESTABLISHED);
    rig.manager.disconnect(id, rig.now);
    rig.manager.destroy(id, rig.now);
    expect(rig.stream.commands).toEqual(['connect 0', 'disconnect']);
    const other = rig.initiating();
    rig.emit(other.endpoint, lost);
    rig.manager.destroy(other.id, rig.now);
    expect(rig.stream.commands).toEqual(['connect 0']);
  });

  it('of a listener ends its startups and keeps its requests', () => {
    const listener = rig.listening();
    const { id } = rig.requested(listener);
    const requestStream = rig.stream;
    const silent = rig.incoming(listener);
    rig.manager.destroy(listener, rig.now);
    expect(rig.network.listening.size).toBe(0);
    expect([silent.phase, rig.stream.commands]).toEqual(['over', ['listen', 'abort']]);
    rig.manager.accept(id, new FakeQP(), NO_WISHES, rig.now);
    expect(requestStream.commands.at(-1)).toBe('accept 0 ird 16 ord 8');
    rig.manager.destroy(id, rig.now);
  });

  it('of a listener while a Request is on its way rejects that', () => {
    const listener = rig.listening();
    const { id } = rig.requested(listener);
    rig.manager.destroy(listener, rig.now);
    rig.manager.reject(id, NO_BYTES, rig.now);
    expect(rig.drain()).toEqual([]);
  });
});

describe('events out of place', () => {
  const events: readonly StreamEvent[] = [
    REQUEST,
    ESTABLISHED,
    { type: 'rejected', privateData: NO_BYTES, peerIrd: undefined, peerOrd: undefined },
    { type: 'terminated', by: 'us', failure: { kind: 'protocol', text: 'x' } },
    { type: 'peer-closed' },
    lost,
    CLOSED,
    { type: 'finish' },
    { type: 'abort' },
  ];

  it('never break a connection that has ended, and report nothing', () => {
    const { endpoint } = rig.initiating();
    rig.emit(endpoint, lost);
    for (const event of events) expect(rig.emit(endpoint, event)).toEqual([]);
    expect(endpoint.phase).toBe('over');
  });

  it('in any phase report at most one end to each id', () => {
    const ends: readonly number[] = [
      CMEventType.disconnected,
      CMEventType.rejected,
      CMEventType.unreachable,
      CMEventType.connectError,
    ];
    for (const first of events) {
      for (const second of events) {
        for (const third of events) {
          const rig = new CmRig();
          const { endpoint } = rig.initiating();
          const notified = [first, second, third].flatMap((event) => rig.emit(endpoint, event));
          expect(notified.filter((type) => ends.includes(type)).length).toBeLessThanOrEqual(1);
        }
      }
    }
  });
});
