import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState } from '#contract/verbs/enums';
import { MessageFailure } from '#daemon/rnic/wire-port';
import { NicRig, ScriptedStream } from '#test/support/nic-rig';
import { expectOutcome, failure } from '#test/support/outcomes';

const STATES = Object.values(QPState);
const FLUSHED = CQEStatus.wrFlushErr;

/** Where the consumer may take a QP from each state; reaching RTS takes a connection. */
const ALLOWED: Readonly<Record<QPState, readonly QPState[]>> = {
  [QPState.RESET]: [QPState.RESET, QPState.INIT, QPState.ERR],
  [QPState.INIT]: [QPState.RESET, QPState.INIT, QPState.RTR, QPState.ERR],
  [QPState.RTR]: [QPState.RESET, QPState.RTR, QPState.ERR],
  [QPState.RTS]: [QPState.RESET, QPState.RTS, QPState.SQD, QPState.SQE, QPState.ERR],
  [QPState.SQD]: [QPState.RESET, QPState.SQD, QPState.ERR],
  [QPState.SQE]: [QPState.RESET, QPState.SQE, QPState.ERR],
  [QPState.ERR]: [QPState.RESET, QPState.ERR],
};

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

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

describe('the table of states', () => {
  it('reaches every state', () => {
    for (const state of STATES) expect(inState(state).qp.state).toBe(state);
  });

  for (const [from, name] of Object.entries(QPState).map(([key, value]) => [value, key] as const)) {
    it(`allows from ${name} the steps of the verbs and no others`, () => {
      for (const to of STATES) {
        const { qp } = inState(from);
        if (ALLOWED[from].includes(to)) {
          qp.modify(to, 0);
          expect(qp.state).toBe(to);
        } else {
          expect(() => qp.modify(to, 0)).toThrow(failure('EINVAL'));
          expect(qp.state).toBe(from);
        }
      }
    });
  }
});

describe('connecting', () => {
  it('accepts one stream, in an idle state only', () => {
    for (const state of STATES) {
      const rig = inState(state);
      const stream = new ScriptedStream(rig.qp);
      if (state <= QPState.RTR) {
        rig.qp.attach(stream);
        expect(() => rig.qp.attach(stream)).toThrow(failure('EISCONN'));
      } else {
        // Of these, only ERR is reached without a connection.
        const code = state === QPState.ERR ? 'EINVAL' : 'EISCONN';
        expect(() => rig.qp.attach(stream)).toThrow(failure(code));
      }
    }
  });

  it('starts earlier posts at RTS, and reports the depths', () => {
    const rig = inState(QPState.INIT);
    rig.send({ opcode: SQOpcode.send, wrId: 1 });
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expect(rig.stream.sent).toEqual([]);
    rig.qp.attach(rig.stream);
    rig.qp.established({ ird: 3, ord: 5 }, 0);
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0]);
    expect(rig.qp.query()).toMatchObject({
      state: QPState.RTS,
      maxRdAtomic: 5,
      maxDestRdAtomic: 3,
      sqSigAll: false,
    });
  });

  it('receives bytes right after the Reply, before RTS is reported', () => {
    const rig = inState(QPState.INIT);
    rig.receives.post(1, [rig.piece(0, 4)]);
    expect(rig.receive([1])).not.toBe(0);
    rig.qp.attach(rig.stream);
    expect(rig.receive([1])).toBe(0);
  });

  it('may retry after a failed startup', () => {
    const rig = inState(QPState.INIT);
    rig.receives.post(1, [rig.piece(0, 4)]);
    rig.qp.attach(rig.stream);
    rig.qp.detach(new ScriptedStream(rig.qp));
    expect(rig.qp.wire).toBe(rig.stream);
    rig.qp.detach(rig.stream);
    expect(rig.qp.wire).toBeUndefined();
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

  it('flushes a work request that waits for its fence', () => {
    rig.send({ opcode: SQOpcode.read, wrId: 1, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: SQOpcode.send, wrId: 2, flags: QueueFlag.readFence });
    rig.qp.modify(QPState.ERR, 0);
    expectOutcome(rig.sendCompletions, [1, FLUSHED], [2, FLUSHED]);
  });

  it('does the same when a Terminate was sent or received [RDMAP-6.2.1-02]', () => {
    for (const by of ['us', 'peer'] as const) {
      const rig = busy();
      rig.qp.terminated(by, { kind: 'protocol', text: 'x' }, 0);
      expect(rig.qp.state).toBe(QPState.SQE);
      expect(rig.sendCompletions.outcome()).toEqual(sends);
      expect(rig.recvCompletions.outcome()).toEqual(receives);
      expect(rig.stream.calls).toEqual([]);
      rig.qp.wireEnded({ kind: 'protocol', text: 'x' }, 0);
      expect(rig.qp.state).toBe(QPState.ERR);
      expect(rig.asyncEvents()).toEqual([AsyncEventType.qpFatal]);
    }
  });

  it('a lost stream raises an event, a graceful end does not [RDMAP-6.2-01]', () => {
    const graceful = busy();
    graceful.qp.wireEnded(undefined, 0);
    expect(graceful.sendCompletions.outcome()).toEqual(sends);
    expect(graceful.asyncEvents()).toEqual([]);
    const lost = busy();
    lost.qp.wireEnded({ kind: 'lost', text: 'reset by peer' }, 0);
    expect(lost.recvCompletions.outcome()).toEqual(receives);
    expect(lost.effects()).toMatchObject([
      { type: 'flushed', work: { sends: sends.length, receives: receives.length } },
      { type: 'async', event: AsyncEventType.qpFatal, object: lost.qp, text: 'reset by peer' },
    ]);
  });

  it('flushes later posts, at the doorbell and, for receives, on request', () => {
    rig.qp.modify(QPState.ERR, 0);
    rig.send({ opcode: SQOpcode.send, wrId: 8 });
    expectOutcome(rig.sendCompletions, [8, FLUSHED]);
    rig.receives.post(9, [rig.piece(0, 8)]);
    expect(rig.nic.flushErrored(0)).toBe(1);
    expectOutcome(rig.recvCompletions, [9, FLUSHED]);
    rig.qp.close(0);
    expect(rig.nic.flushErrored(0)).toBe(0);
  });

  it('reports which error of the peer ended the stream [RDMAP-7.1-01, DDP-8.3-03, RDMAP-7-01]', () => {
    const events: [{ event?: 'access' | 'request' }, AsyncEventType][] = [
      [{ event: 'access' }, AsyncEventType.qpAccessErr],
      [{ event: 'request' }, AsyncEventType.qpReqErr],
      [{}, AsyncEventType.qpFatal],
    ];
    for (const [word, event] of events) {
      const rig = new NicRig();
      const said = { kind: 'protocol', text: 'why', sent: 'a Terminate', detail: 'code 3' };
      rig.qp.terminated('us', { ...said, ...word }, 0);
      const [effect] = rig.effects();
      expect(effect).toMatchObject({ type: 'async', event, object: rig.qp });
      expect(effect?.type === 'async' && effect.text).toBe('sent a Terminate: why (code 3)');
    }
  });

  it('names a known quirk of the peer', () => {
    rig.qp.terminated('peer', { kind: 'protocol', text: 'why', quirk: 'siw-bits' }, 0);
    expect(rig.effects()[0]).toMatchObject({ text: 'why; known quirk: siw-bits' });
  });

  it('distinguishes a refused Read from those flushed with it', () => {
    for (const [refusal, status] of [
      [MessageFailure.remoteAccess, CQEStatus.remAccessErr],
      [MessageFailure.remoteInvalidRequest, CQEStatus.remInvReqErr],
    ] as const) {
      const rig = new NicRig();
      rig.send({ opcode: SQOpcode.send, wrId: 1 });
      rig.send({ opcode: SQOpcode.read, wrId: 2, sges: [rig.piece(0, 8)] });
      rig.send({ opcode: SQOpcode.read, wrId: 3, sges: [rig.piece(0, 8)] });
      rig.qp.terminated('peer', { kind: 'protocol', text: 'x', refusal }, 0);
      expectOutcome(rig.sendCompletions, [1, 0], [2, status], [3, FLUSHED]);
    }
  });

  it('passes nothing more of a failed stream', () => {
    const rig = busy();
    rig.qp.terminated('us', { kind: 'protocol', text: 'x' }, 0);
    rig.memory.fill(0);
    const { stag } = rig.mr;
    expect(rig.write(stag, 0x10000n, [1])).not.toBe(0);
    expect(rig.receive([1])).not.toBe(0);
    expect(rig.qp.checkReadSource(stag, 0, 0x10000, 1)).not.toBe(0);
    expect(rig.qp.placeReceive(0, Uint8Array.of(1), 0, 1)).not.toBe(0);
    rig.qp.readCompleted();
    rig.qp.atomicCompleted(1, 1);
    rig.qp.messageDone();
    expect(rig.memory.every((byte) => byte === 0)).toBe(true);
    rig.sendCompletions.poll();
    rig.qp.doorbell(0);
    expect(rig.sendCompletions.poll()).toEqual([]);
  });
});

describe('SQD', () => {
  it('closes at once when nothing is left to do', () => {
    rig.qp.modify(QPState.SQD, 0);
    expect(rig.stream.calls).toEqual(['disconnect']);
    expect(rig.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.sqDrained },
      { type: 'disconnect', qp: rig.qp },
    ]);
    rig.qp.wireEnded(undefined, 0);
    expect(rig.qp.state).toBe(QPState.ERR);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('sends posted work, then closes and flushes later work [DDP-6.2.1-02]', () => {
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
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0], [3, FLUSHED]);
    rig.send({ opcode: SQOpcode.send, wrId: 4 });
    expectOutcome(rig.sendCompletions, [4, FLUSHED]);
    rig.qp.wireEnded(undefined, 0);
    expectOutcome(rig.sendCompletions);
  });

  it('stops the send queue on a disconnect, without the event of SQD [DDP-6.2.1-02]', () => {
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 1 });
    rig.qp.disconnecting(0);
    rig.qp.disconnecting(0);
    expect(rig.qp.state).toBe(QPState.SQD);
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    expectOutcome(rig.sendCompletions);
    rig.stream.budget = 10;
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(1);
    expectOutcome(rig.sendCompletions, [1, 0], [2, FLUSHED]);
    expect(rig.effects()).toEqual([]);
    rig.receives.post(3, [rig.piece(0, 8)]);
    expect(rig.receive([1])).toBe(0);
  });

  it('still receives until the stream has ended', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.qp.modify(QPState.SQD, 0);
    expect(rig.receive([1])).toBe(0);
  });
});

describe('SQE', () => {
  it('sends a Terminate on the consumer’s request and reports no error', () => {
    rig.qp.modify(QPState.SQE, 0);
    expect(rig.stream.calls).toEqual(['fail: the consumer terminated the stream']);
    expect(rig.effects()).toMatchObject([{ type: 'disconnect', qp: rig.qp }]);
    rig.qp.terminated('us', { kind: 'local', text: 'x' }, 0);
    rig.qp.wireEnded({ kind: 'local', text: 'x' }, 0);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('allows the engine to finish the message already on the wire', () => {
    rig.memory[0] = 7;
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 1, sges: [rig.piece(0, 1)] });
    rig.qp.modify(QPState.SQE, 0);
    const bytes = new Uint8Array(1);
    expect(rig.qp.gather(0, 0, 1, bytes, 0)).toBe(0);
    rig.qp.messageDone();
    expect(bytes[0]).toBe(7);
    expectOutcome(rig.sendCompletions, [1, FLUSHED]);
  });
});

describe('a message partly on the wire when its QP fails', () => {
  function cutOff(): NicRig {
    const rig = new NicRig();
    rig.memory[0] = 7;
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 1, sges: [rig.piece(0, 1)] });
    rig.send({ opcode: SQOpcode.send, wrId: 2 });
    rig.receives.post(3, [rig.piece(8, 8)]);
    rig.stream.midSend = true;
    rig.qp.terminated('us', { kind: 'protocol', text: 'why', event: 'access' }, 0);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.qpAccessErr]);
    expectOutcome(rig.recvCompletions, [3, FLUSHED]);
    // Its buffer is still being read, so it is not returned to the consumer.
    expectOutcome(rig.sendCompletions);
    return rig;
  }

  it('completes in error once it is framed, followed by later work [RDMAP-7.1-03]', () => {
    const rig = cutOff();
    rig.send({ opcode: SQOpcode.send, wrId: 4 });
    const bytes = new Uint8Array(1);
    expect(rig.qp.gather(0, 0, 1, bytes, 0)).toBe(0);
    expect(bytes[0]).toBe(7);
    expectOutcome(rig.sendCompletions);
    rig.stream.midSend = false;
    rig.qp.messageDone();
    expectOutcome(rig.sendCompletions, [1, FLUSHED], [2, FLUSHED], [4, FLUSHED]);
  });

  it('completes in error after outstanding Reads, which are flushed at once [RDMAP-6.2.1-02]', () => {
    for (const wrId of [1, 2]) {
      rig.send({ opcode: SQOpcode.read, wrId, rkey: 1, sges: [rig.piece(0, 4)] });
    }
    rig.stream.budget = 0;
    rig.send({ opcode: SQOpcode.send, wrId: 3, sges: [rig.piece(8, 1)] });
    rig.stream.midSend = true;
    rig.qp.terminated('peer', { kind: 'protocol', text: 'why' }, 0);
    expectOutcome(rig.sendCompletions, [1, FLUSHED], [2, FLUSHED]);
    rig.stream.midSend = false;
    rig.qp.messageDone();
    expectOutcome(rig.sendCompletions, [3, FLUSHED]);
  });

  it('completes when its memory is lost, when the stream ends, and when its QP is destroyed', () => {
    const ends: ((rig: NicRig) => void)[] = [
      (rig) => {
        rig.mr.close();
        expect(rig.qp.gather(0, 0, 1, new Uint8Array(1), 0)).not.toBe(0);
      },
      (rig) => rig.qp.wireEnded({ kind: 'timeout', text: 'x' }, 0),
      (rig) => rig.qp.modify(QPState.ERR, 0),
      (rig) => rig.qp.close(0),
    ];
    for (const end of ends) {
      const rig = cutOff();
      end(rig);
      const outcome = rig.sendCompletions.outcome();
      expect(outcome.map(([wrId]) => wrId)).toEqual([1, 2]);
      expect(outcome.every(([, status]) => status !== 0)).toBe(true);
    }
  });
});

describe('RESET and close', () => {
  it('drops all work without a completion, and can connect again', () => {
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
    expectOutcome(rig.recvCompletions, [5, 0]);
    expectOutcome(rig.sendCompletions, [6, 0]);
  });

  it('flushes, resets the stream and is destroyed', () => {
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.qp.close(0);
    rig.qp.close(0);
    expectOutcome(rig.recvCompletions, [1, FLUSHED]);
    expect(rig.stream.calls).toEqual(['abort']);
    expect(rig.nic.findQP(rig.qp.qpn)).toBeUndefined();
    rig.qp.wireEnded(undefined, 0);
    rig.qp.terminated('peer', { kind: 'x', text: 'x' }, 0);
    expect(rig.effects()).toHaveLength(1);
    expect(() => rig.qp.modify(QPState.RESET, 0)).toThrow(failure('EINVAL'));
  });
});
