import { describe, expect, it } from 'vitest';
import { isFlushing, QP_TRANSITIONS, qpAction } from '../../../daemon/rnic/qp-state.ts';
import { AsyncEventType, QPState } from '../../../verbs-api/contract/enums.ts';
import { CQEStatus, QueueFlag, SQOpcode } from '../../../verbs-api/contract/queue-layout.ts';
import { NicRig, ScriptedStream } from '../../support/nic-rig.ts';

const STATES = Object.values(QPState);
const FLUSHED = CQEStatus.wrFlushErr;

/** Brings a fresh QP into a state by legal steps. */
function inState(state: QPState): NicRig {
  const rig = new NicRig({ connected: false });
  const { qp } = rig;
  if (state === QPState.RESET) return rig;
  qp.modify(QPState.INIT, 0);
  if (state === QPState.INIT) return rig;
  qp.modify(QPState.RTR, 0);
  if (state === QPState.RTR) return rig;
  if (state === QPState.ERR) {
    qp.modify(QPState.ERR, 0);
    return rig;
  }
  rig.connect();
  if (state !== QPState.RTS) {
    rig.stream.budget = 0;
    // Keeps the drain from ending at once.
    rig.send({ opcode: SQOpcode.send });
    qp.modify(state, 0);
  }
  return rig;
}

describe('the table of states', () => {
  it('brings every state about', () => {
    for (const state of STATES) expect(inState(state).qp.state).toBe(state);
  });

  for (const [from, name] of Object.entries(QPState).map(([key, value]) => [value, key] as const)) {
    it(`allows from ${name} what it says and nothing else`, () => {
      for (const to of STATES) {
        const { qp } = inState(from);
        const action = qpAction(from, to);
        if (action === undefined) {
          expect(() => qp.modify(to, 0)).toThrow(expect.objectContaining({ code: 'EINVAL' }));
          expect(qp.state).toBe(from);
        } else {
          qp.modify(to, 0);
          expect(qp.state).toBe(to);
        }
      }
    });
  }

  it('has no way to RTS by the consumer: that takes a connection', () => {
    for (const from of STATES) {
      const expected = from === QPState.RTS ? 'none' : undefined;
      expect(QP_TRANSITIONS[from][QPState.RTS]).toBe(expected);
    }
  });

  it('lets every state go to ERR, and from everywhere back to RESET', () => {
    for (const from of STATES) {
      expect(qpAction(from, QPState.ERR)).toBeDefined();
      expect(qpAction(from, QPState.RESET)).toBe('reset');
    }
  });
});

describe('connecting', () => {
  it('takes one stream, in an idle state only', () => {
    for (const state of STATES) {
      const rig = inState(state);
      const stream = new ScriptedStream(rig.qp);
      if (state <= QPState.RTR) {
        rig.qp.attach(stream);
        expect(() => rig.qp.attach(stream)).toThrow(expect.objectContaining({ code: 'EISCONN' }));
      } else {
        expect(() => rig.qp.attach(stream)).toThrow(
          expect.objectContaining({
            code: isFlushing(state) && rig.qp.stream === undefined ? 'EINVAL' : 'EISCONN',
          }),
        );
      }
    }
  });

  it('starts at RTS what was posted before, and tells the depths', () => {
    const rig = inState(QPState.INIT);
    rig.send({ opcode: SQOpcode.send, wrId: 1 });
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expect(rig.stream.sent).toEqual([]);
    rig.qp.attach(rig.stream);
    rig.qp.established({ ird: 3, ord: 5 }, 0);
    expect(rig.sendCompletions.outcome()).toEqual([
      [1, 0],
      [2, 0],
    ]);
    expect(rig.qp.query()).toMatchObject({
      state: QPState.RTS,
      maxRdAtomic: 5,
      maxDestRdAtomic: 3,
      sqSigAll: false,
    });
  });

  it('receives what comes right behind the Reply, before RTS is told', () => {
    const rig = inState(QPState.INIT);
    rig.receives.post(1, [rig.piece(0, 4)]);
    expect(rig.receive([1])).not.toBe(0);
    rig.qp.attach(rig.stream);
    expect(rig.receive([1])).toBe(0);
  });

  it('may try again after a startup that came to nothing', () => {
    const rig = inState(QPState.INIT);
    rig.receives.post(1, [rig.piece(0, 4)]);
    rig.qp.attach(rig.stream);
    rig.qp.detach(new ScriptedStream(rig.qp));
    expect(rig.qp.stream).toBe(rig.stream);
    rig.qp.detach(rig.stream);
    expect(rig.qp.stream).toBeUndefined();
    expect(rig.recvCompletions.poll()).toEqual([]);
    rig.connect();
    expect(rig.receive([1])).toBe(0);
  });
});

describe('errors and the flush', () => {
  /** A QP with work in every place. */
  function busy(): NicRig {
    const rig = new NicRig();
    rig.receives.post(100, [rig.piece(0, 8)]);
    rig.receives.post(101, [rig.piece(0, 8)]);
    rig.qp.beginReceive();
    rig.send({ opcode: SQOpcode.read, wrId: 1, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: SQOpcode.write, wrId: 2, flags: 0 });
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 3, flags: 0, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: SQOpcode.send, wrId: 4, flags: 0 });
    rig.send({ opcode: SQOpcode.fetchAndAdd, wrId: 5, flags: 0 });
    return rig;
  }
  const sends = [
    [1, FLUSHED],
    [2, FLUSHED],
    [3, FLUSHED],
    [4, FLUSHED],
    [5, FLUSHED],
  ];
  const receives = [
    [100, FLUSHED],
    [101, FLUSHED],
  ];

  it('completes all work once, unsignalled work too, in order, on modify to ERR', () => {
    const rig = busy();
    rig.qp.modify(QPState.ERR, 0);
    expect(rig.sendCompletions.outcome()).toEqual(sends);
    expect(rig.recvCompletions.outcome()).toEqual(receives);
    expect(rig.stream.calls).toEqual(['abort']);
    expect(rig.effects()).toMatchObject([{ type: 'abort', qp: rig.qp }]);
    rig.qp.modify(QPState.ERR, 0);
    rig.qp.doorbell(0);
    expect(rig.sendCompletions.poll()).toEqual([]);
  });

  it('flushes a work request that was taken and waits for its fence', () => {
    const rig = new NicRig();
    rig.send({ opcode: SQOpcode.read, wrId: 1, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: SQOpcode.send, wrId: 2, flags: QueueFlag.readFence });
    rig.qp.modify(QPState.ERR, 0);
    expect(rig.sendCompletions.outcome()).toEqual([
      [1, FLUSHED],
      [2, FLUSHED],
    ]);
  });

  it('RDMAP-6.2.1-02: the same when a Terminate was sent or came', () => {
    for (const by of ['us', 'peer'] as const) {
      const rig = busy();
      rig.qp.terminated(by, { kind: 'protocol', text: 'x', layer: 1, etype: 2, code: 2 }, 0);
      expect(rig.qp.state).toBe(QPState.SQE);
      expect(rig.sendCompletions.outcome()).toEqual(sends);
      expect(rig.recvCompletions.outcome()).toEqual(receives);
      expect(rig.stream.calls).toEqual([]);
      rig.qp.streamEnded({ kind: 'protocol', text: 'x' }, 0);
      expect(rig.qp.state).toBe(QPState.ERR);
      expect(rig.asyncEvents()).toEqual([AsyncEventType.qpFatal]);
    }
  });

  it('RDMAP-6.2-01: a graceful end is no event, a lost stream is', () => {
    const graceful = busy();
    graceful.qp.streamEnded(undefined, 0);
    expect(graceful.sendCompletions.outcome()).toEqual(sends);
    expect(graceful.asyncEvents()).toEqual([]);
    const lost = busy();
    lost.qp.streamEnded({ kind: 'lost', text: 'reset by peer' }, 0);
    expect(lost.recvCompletions.outcome()).toEqual(receives);
    expect(lost.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.qpFatal, element: lost.qp, text: 'reset by peer' },
    ]);
  });

  it('flushes what is posted later, at the doorbell and, for receives, on request', () => {
    const rig = new NicRig();
    rig.qp.modify(QPState.ERR, 0);
    rig.send({ opcode: SQOpcode.send, wrId: 8 });
    expect(rig.sendCompletions.outcome()).toEqual([[8, FLUSHED]]);
    rig.receives.post(9, [rig.piece(0, 8)]);
    expect(rig.nic.flushErrored(0)).toBe(1);
    expect(rig.recvCompletions.outcome()).toEqual([[9, FLUSHED]]);
    rig.qp.close(0);
    expect(rig.nic.flushErrored(0)).toBe(0);
  });

  it('RDMAP-7.1-01, DDP-8.3-03, RDMAP-7-01: tells which fault of the peer ended the stream', () => {
    const events: [number, number, AsyncEventType][] = [
      [1, 1, AsyncEventType.qpAccessErr],
      [1, 2, AsyncEventType.qpFatal],
      [0, 1, AsyncEventType.qpReqErr],
      [0, 2, AsyncEventType.qpReqErr],
      [2, 0, AsyncEventType.qpFatal],
    ];
    for (const [layer, etype, event] of events) {
      const rig = new NicRig();
      rig.qp.terminated('us', { kind: 'protocol', text: 'why', layer, etype, code: 3 }, 0);
      const [effect] = rig.effects();
      expect(effect).toMatchObject({ type: 'async', event, element: rig.qp });
      expect(effect?.type === 'async' && effect.text).toBe(
        `terminated the stream: why (layer ${layer}, type ${etype}, code 3)`,
      );
    }
  });

  it('names a known peculiarity of the peer', () => {
    const rig = new NicRig();
    rig.qp.terminated('peer', { kind: 'protocol', text: 'why', quirk: 'siw-bits' }, 0);
    expect(rig.effects()[0]).toMatchObject({
      text: 'the peer terminated the stream: why; known peculiarity: siw-bits',
    });
  });

  it('tells a refused Read apart from what is flushed with it', () => {
    for (const [etype, status] of [
      [1, CQEStatus.remAccessErr],
      [2, CQEStatus.remInvReqErr],
    ] as const) {
      const rig = new NicRig();
      rig.send({ opcode: SQOpcode.send, wrId: 1 });
      rig.send({ opcode: SQOpcode.read, wrId: 2, sges: [rig.piece(0, 8)] });
      rig.send({ opcode: SQOpcode.read, wrId: 3, sges: [rig.piece(0, 8)] });
      rig.qp.terminated('peer', { kind: 'protocol', text: 'x', layer: 0, etype, code: 0 }, 0);
      expect(rig.sendCompletions.outcome()).toEqual([
        [1, 0],
        [2, status],
        [3, FLUSHED],
      ]);
    }
  });

  it('lets nothing of a failed stream through any more', () => {
    const rig = busy();
    rig.qp.terminated('us', { kind: 'protocol', text: 'x' }, 0);
    rig.memory.fill(0);
    const { stag } = rig.mr;
    expect(rig.write(stag, 0x10000n, [1])).not.toBe(0);
    expect(rig.receive([1])).not.toBe(0);
    expect(rig.qp.checkReadSource(stag, 0, 0x10000, 1)).not.toBe(0);
    expect(rig.qp.gatherReadSource(stag, 0, 0x10000, 1, new Uint8Array(1), 0)).not.toBe(0);
    expect(rig.qp.placeReceive(0, Uint8Array.of(1), 0, 1)).not.toBe(0);
    rig.qp.readCompleted();
    rig.qp.atomicCompleted(1, 1);
    rig.qp.messageSent();
    expect(rig.memory.every((octet) => octet === 0)).toBe(true);
    rig.sendCompletions.poll();
    rig.qp.doorbell(0);
    expect(rig.sendCompletions.poll()).toEqual([]);
  });
});

describe('SQD', () => {
  it('closes at once when nothing is left to do', () => {
    const rig = new NicRig();
    rig.qp.modify(QPState.SQD, 0);
    expect(rig.stream.calls).toEqual(['disconnect']);
    expect(rig.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.sqDrained },
      { type: 'disconnect', qp: rig.qp },
    ]);
    rig.qp.streamEnded(undefined, 0);
    expect(rig.qp.state).toBe(QPState.ERR);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('DDP-6.2.1-02: sends what was posted, then closes; later work is flushed', () => {
    const rig = new NicRig();
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.read, wrId: 1, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    rig.qp.modify(QPState.SQD, 0);
    rig.send({ opcode: SQOpcode.send, wrId: 3 });
    rig.stream.budget = 10;
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(2);
    expect(rig.stream.calls).toEqual([]);
    rig.qp.readCompleted();
    expect(rig.asyncEvents()).toEqual([AsyncEventType.sqDrained]);
    expect(rig.stream.calls).toEqual(['disconnect']);
    expect(rig.sendCompletions.outcome()).toEqual([
      [1, 0],
      [2, 0],
    ]);
    rig.qp.streamEnded(undefined, 0);
    expect(rig.sendCompletions.outcome()).toEqual([[3, FLUSHED]]);
  });

  it('still receives until the stream has ended', () => {
    const rig = new NicRig();
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.qp.modify(QPState.SQD, 0);
    expect(rig.receive([1])).toBe(0);
  });
});

describe('SQE', () => {
  it('sends a Terminate on the word of the consumer and tells no fault', () => {
    const rig = new NicRig();
    rig.qp.modify(QPState.SQE, 0);
    expect(rig.stream.calls).toEqual(['fail: the consumer terminated the stream']);
    expect(rig.effects()).toMatchObject([{ type: 'disconnect', qp: rig.qp }]);
    rig.qp.terminated('us', { kind: 'local', text: 'x' }, 0);
    rig.qp.streamEnded({ kind: 'local', text: 'x' }, 0);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('lets the engine finish the message that is on the wire already', () => {
    const rig = new NicRig();
    rig.memory[0] = 7;
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 1, sges: [rig.piece(0, 1)] });
    rig.qp.modify(QPState.SQE, 0);
    const octets = new Uint8Array(1);
    expect(rig.qp.gather(0, 1, octets, 0)).toBe(0);
    rig.qp.messageSent();
    expect(octets[0]).toBe(7);
    expect(rig.sendCompletions.outcome()).toEqual([[1, FLUSHED]]);
  });
});

describe('RESET and close', () => {
  it('forgets all work without a completion, and can connect anew', () => {
    const rig = new NicRig();
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.send({ opcode: SQOpcode.read, wrId: 2, sges: [rig.piece(0, 8)] });
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 3 });
    rig.sends.post({ opcode: SQOpcode.send, wrId: 4 });
    rig.qp.modify(QPState.RESET, 0);
    expect(rig.stream.calls).toEqual(['abort']);
    expect(rig.sendCompletions.poll()).toEqual([]);
    expect(rig.recvCompletions.poll()).toEqual([]);
    rig.stream.open = true;
    rig.stream.current = undefined;
    rig.stream.budget = 10;
    rig.connect();
    rig.receives.post(5, [rig.piece(0, 8)]);
    rig.receive([1]);
    rig.send({ opcode: SQOpcode.send, wrId: 6 });
    expect(rig.recvCompletions.outcome()).toEqual([[5, 0]]);
    expect(rig.sendCompletions.outcome()).toEqual([[6, 0]]);
  });

  it('flushes, resets the stream and is gone', () => {
    const rig = new NicRig();
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.qp.close(0);
    rig.qp.close(0);
    expect(rig.recvCompletions.outcome()).toEqual([[1, FLUSHED]]);
    expect(rig.stream.calls).toEqual(['abort']);
    expect(rig.nic.findQP(rig.qp.qpn)).toBeUndefined();
    rig.qp.streamEnded(undefined, 0);
    rig.qp.terminated('peer', { kind: 'x', text: 'x' }, 0);
    expect(rig.effects()).toHaveLength(1);
    expect(() => rig.qp.modify(QPState.RESET, 0)).toThrow(
      expect.objectContaining({ code: 'EINVAL' }),
    );
  });
});
