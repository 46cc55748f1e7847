import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { DEFAULT_PROFILE } from '#daemon/rnic/device-profile';
import { DeviceRegistry } from '#daemon/rnic/device-registry';
import type { QP } from '#daemon/rnic/queue-pair';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { CompletionConsumer, ReceiveProducer, SendProducer } from '#test/support/flag-ring-client';
import { atomicAccess, NicRig, NO_MESSAGE } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo, MASKS, modify } from '#test/support/program-steps';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { RESET, INIT, RTR, RTS, SQD, ERR } = QPState;

function post(qp: QP, rig: ProgramRig, ids: readonly number[]): void {
  const producer = producers.get(qp) ?? new SendProducer(qp);
  producers.set(qp, producer);
  const sges = [{ addr: MEMORY_ADDRESS, length: 4, lkey: rig.mr.lkey }];
  for (const wrId of ids) producer.post({ opcode: SQOpcode.send, wrId, sges });
  qp.doorbell(0);
}
const producers = new WeakMap<QP, SendProducer>();

function postReceive(qp: QP, wrId: number, rig: ProgramRig): void {
  const producer = receivers.get(qp) ?? new ReceiveProducer(qp.ring, qp.rqOffset, qp.rqCount);
  receivers.set(qp, producer);
  producer.post(wrId, [{ addr: MEMORY_ADDRESS, length: 64, lkey: rig.mr.lkey }]);
}
const receivers = new WeakMap<QP, ReceiveProducer>();

let rig: ProgramRig;

beforeEach(() => {
  rig = new ProgramRig();
});

describe('a queue pair that its program connects', () => {
  it('has a wire from RTR on, configured by each step', () => {
    const qp = bringTo(rig.createQP(QPType.rc), INIT);
    expect(qp.wire).toBeUndefined();
    modify(qp, RTR, MASKS[QPType.rc][1]);
    expect(qp.wire).toBe(rig.wire);
    expect(rig.wire.path).toMatchObject({ destQpNum: 0x2a1, rqPsn: 0xffffff, maxDestRdAtomic: 8 });
    modify(qp, RTS, MASKS[QPType.rc][2]);
    expect(rig.wire.states).toEqual([RTR, RTS]);
    expect(rig.wire.path).toMatchObject({ sqPsn: 0xabcdef, timeout: 12, retryCnt: 3 });
  });

  it("has no more Reads outstanding than its program asked for, and reports rxe's power of two", () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTS, { maxRdAtomic: 5, maxDestRdAtomic: 5 });
    expect(rig.wire.path).toMatchObject({ maxRdAtomic: 5, maxDestRdAtomic: 8 });
    expect(qp.queryPath()).toMatchObject({ maxRdAtomic: 8, maxDestRdAtomic: 8 });
  });

  it('starts earlier posts at RTS', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTR);
    post(qp, rig, [1, 2]);
    expect(rig.wire.sent).toEqual([]);
    modify(qp, RTS, MASKS[QPType.rc][2]);
    expect(rig.wire.sent).toHaveLength(2);
  });

  it('in SQD starts no more, reports that started work is done, and continues in RTS', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTS);
    rig.wire.budget = 0;
    post(qp, rig, [1]);
    modify(qp, SQD);
    post(qp, rig, [2]);
    expect(qp.queryPath().draining).toBe(true);
    expect(rig.asyncEvents()).toEqual([]);
    expect(() => modify(qp, RTS)).toThrow('draining');
    rig.wire.budget = 9;
    rig.wire.pump();
    expect(rig.asyncEvents()).toEqual([AsyncEventType.sqDrained]);
    expect(rig.wire.sent).toHaveLength(1);
    expect(qp.queryPath().draining).toBe(false);
    modify(qp, RTS);
    expect(rig.wire.sent).toHaveLength(2);
    expectOutcome(
      new CompletionConsumer(qp.sendCQ),
      [1, CQEStatus.success],
      [2, CQEStatus.success],
    );
  });

  it('with nothing in progress is drained at once', () => {
    const qp = bringTo(rig.createQP(QPType.rc), SQD);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.sqDrained]);
    modify(qp, RTS);
    modify(qp, SQD);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.sqDrained]);
  });

  it('in ERR flushes sends, then receives, and later posts; it has no wire', () => {
    const cq = rig.nic.createCQ({ cqe: 64, ring: (n) => new Uint8Array(n), tag: 0 });
    const qp = bringTo(rig.createQP(QPType.rc, { sendCQ: cq, recvCQ: cq }), RTS);
    rig.wire.budget = 0;
    postReceive(qp, 7, rig);
    post(qp, rig, [1, 2]);
    modify(qp, ERR);
    const flushed = CQEStatus.wrFlushErr;
    const completions = new CompletionConsumer(cq);
    expectOutcome(completions, [1, flushed], [2, flushed], [7, flushed]);
    expect(qp.wire).toBeUndefined();
    expect(rig.wire.calls).toEqual(['abort']);
    post(qp, rig, [3]);
    postReceive(qp, 8, rig);
    expect(rig.nic.flushErrored(0)).toBe(1);
    expectOutcome(completions, [3, flushed], [8, flushed]);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('in RESET forgets its work without completions and can be brought up again', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTS);
    rig.wire.budget = 0;
    postReceive(qp, 7, rig);
    post(qp, rig, [1, 2]);
    modify(qp, RESET);
    for (const cq of [qp.sendCQ, qp.recvCQ]) expectOutcome(new CompletionConsumer(cq));
    expect(qp.queryPath()).toMatchObject({ state: RESET, accessFlags: 0, portNum: 0 });
    bringTo(qp, RTS);
    expect(rig.wires).toHaveLength(2);
    post(qp, rig, [3]);
    expect(rig.wire.sent).toHaveLength(1);
    expectOutcome(new CompletionConsumer(qp.sendCQ), [3, CQEStatus.success]);
  });

  it('is destroyed without completions', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTS);
    rig.wire.budget = 0;
    postReceive(qp, 7, rig);
    post(qp, rig, [1]);
    qp.close(0);
    for (const cq of [qp.sendCQ, qp.recvCQ]) expectOutcome(new CompletionConsumer(cq));
    rig.nic.assertDeepInvariants();
  });

  it('raises COMM_EST for the first message in RTR, and not in RTS', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTR);
    postReceive(qp, 1, rig);
    postReceive(qp, 2, rig);
    for (let message = 0; message < 2; message += 1) {
      expect(qp.beginReceive()).toBe(AccessRefusal.none);
      expect(qp.completeReceive(NO_MESSAGE)).toBe(AccessRefusal.none);
    }
    expect(rig.asyncEvents()).toEqual([AsyncEventType.commEst]);
    const other = bringTo(rig.createQP(QPType.rc), RTS);
    postReceive(other, 1, rig);
    expect(other.beginReceive()).toBe(AccessRefusal.none);
    expect(rig.asyncEvents()).toEqual([]);
  });

  it('permits its peer what its access flags allow, whatever the memory grants', () => {
    const { rkey } = rig.mr;
    const requests = (qp: QP): AccessRefusal[] => [
      qp.checkWriteTarget(rkey, 0, MEMORY_ADDRESS, 8),
      qp.placeWrite(rkey, 0, MEMORY_ADDRESS, new Uint8Array(8), 0, 8),
      qp.checkReadSource(rkey, 0, MEMORY_ADDRESS, 8),
      qp.executeAtomic(atomicAccess({ stag: rkey, toLo: MEMORY_ADDRESS })),
      // Without data no memory is needed, but the right is.
      qp.checkWriteTarget(1, 0, 0, 0),
      qp.checkReadSource(1, 0, 0, 0),
    ];
    const { none, notPermitted } = AccessRefusal;
    const cases = [
      [Access.remoteWrite, [none, none, notPermitted, notPermitted, none, notPermitted]],
      [Access.remoteRead, [notPermitted, notPermitted, none, notPermitted, notPermitted, none]],
      [Access.remoteAtomic, [...Array(3).fill(notPermitted), none, notPermitted, notPermitted]],
      [Access.localWrite, Array(6).fill(notPermitted)],
    ] as const;
    for (const [accessFlags, expected] of cases) {
      const qp = rig.createQP(QPType.rc);
      modify(qp, INIT, MASKS[QPType.rc][0], { accessFlags });
      modify(qp, RTR, MASKS[QPType.rc][1]);
      expect(requests(qp)).toEqual(expected);
    }
  });

  it('fails without an event for a bad work request; its completion has the cause', () => {
    const qp = bringTo(rig.createQP(QPType.rc), RTS);
    new SendProducer(qp).post({
      opcode: SQOpcode.send,
      wrId: 4,
      flags: QueueFlag.signalled,
      sges: [{ addr: MEMORY_ADDRESS, length: 4, lkey: 0x999 }],
    });
    qp.doorbell(0);
    expectOutcome(new CompletionConsumer(qp.sendCQ), [4, CQEStatus.locProtErr]);
    expect(rig.asyncEvents()).toEqual([]);
    expect(qp.state).toBe(ERR);
    expect(rig.wire.calls).toEqual(['abort']);
  });

  it('has a number that is hard to guess, and none that InfiniBand reserves', () => {
    const numbers = Array.from({ length: 50 }, () => rig.createQP(QPType.rc).qpn);
    expect(new Set(numbers).size).toBe(50);
    expect(Math.min(...numbers)).toBeGreaterThan(16);
    expect(Math.max(...numbers)).toBeLessThan(0xffffff);
    const steps = numbers.slice(1).map((qpn, index) => Math.abs(qpn - (numbers[index] ?? 0)));
    expect(Math.min(...steps)).toBeGreaterThan(1);
    // Reserved numbers are skipped, and so is one in use.
    const draws = [0, 1, 16, 0xffffff, 17, 17, 18].map((qpn) => qpn << 8);
    const registry = new DeviceRegistry(DEFAULT_PROFILE);
    const draw = (): number => draws.shift() ?? 0;
    expect(registry.randomQpn(draw, (qpn) => qpn === 17)).toBe(18);
  });

  it('has a type, which iWARP refuses', () => {
    expect(new ProgramRig().createQP(QPType.ud).type).toBe(QPType.ud);
    const { nic, pd, sendCQ, recvCQ, qp } = new NicRig();
    const { capabilities } = qp;
    const rings = { srq: undefined, sqSigAll: false, ring: (n: number) => new Uint8Array(n) };
    const init = { ...rings, sendCQ, recvCQ, capabilities, tag: undefined };
    expect(() => nic.createQP(pd, { ...init, type: QPType.uc })).toThrow('reliable');
    expect(() => modify(qp, INIT)).toThrow('connection manager');
  });
});
