import { beforeEach, describe, expect, it } from 'vitest';
import { CQE_BYTES, CQEStatus, Notify, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState } from '#contract/verbs/enums';
import { NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';

const PLAIN = { solicited: false };
const SOLICITED = { solicited: true };

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
  for (let wrId = 0; wrId < 8; wrId += 1) rig.receives.post(wrId, [rig.piece(0, 8)]);
});

describe('notification', () => {
  it('fires once for each arming, at the next completion', () => {
    rig.receive([1], PLAIN);
    rig.recvCompletions.arm(Notify.solicited | Notify.any);
    // Earlier completions do not fire the queue.
    expect(rig.effects()).toEqual([]);
    rig.receive([1], PLAIN);
    expect(rig.effects()).toMatchObject([{ type: 'completion', cq: rig.recvCQ }]);
    expect(rig.recvCompletions.armed).toBe(Notify.none);
    rig.receive([1], PLAIN);
    expect(rig.effects()).toEqual([]);
  });

  it('armed for solicited events it ignores plain Sends [RDMAP-5.3-06]', () => {
    rig.recvCompletions.arm(Notify.solicited);
    rig.receive([1], PLAIN);
    expect(rig.effects()).toEqual([]);
    rig.receive([1], SOLICITED);
    expect(rig.effects()).toMatchObject([{ type: 'completion' }]);
  });

  it('armed for solicited events it fires for every failure', () => {
    rig.recvCompletions.arm(Notify.solicited);
    rig.receive(new Array<number>(9).fill(1), PLAIN);
    expect(rig.effects()).toMatchObject([{ type: 'failed' }, { type: 'completion' }]);
    expectOutcome(rig.recvCompletions, [0, CQEStatus.locLenErr]);
  });

  it('stores 0 before it fires, so that a consumer can arm again at once', () => {
    rig.recvCompletions.arm(Notify.any);
    rig.receive([1]);
    rig.recvCompletions.arm(Notify.any);
    rig.receive([1]);
    expect(rig.effects()).toHaveLength(2);
  });

  it('accepts anything a client writes into the notify word', () => {
    rig.recvCompletions.arm(-4);
    rig.receive([1], SOLICITED);
    expect(rig.effects()).toEqual([]);
    rig.recvCompletions.arm(-1);
    rig.receive([1], PLAIN);
    expect(rig.effects()).toHaveLength(1);
  });
});

describe('the ring', () => {
  it('wraps, and ignores flags that a client leaves in free entries', () => {
    const rig = new NicRig({ cqe: 4 });
    for (let round = 0; round < 10; round += 1) {
      rig.send({ opcode: SQOpcode.send, wrId: round });
      expectOutcome(rig.sendCompletions, [round, 0]);
    }
  });

  it('reports how many completions were written, after the notify word', () => {
    const rig = new NicRig({ cqe: 4 });
    const { ring } = rig.sendCQ;
    const written = new Int32Array(ring.buffer, ring.byteOffset + 4 * CQE_BYTES + 4, 1);
    for (let round = 1; round < 10; round += 1) {
      rig.send({ opcode: SQOpcode.send });
      rig.sendCompletions.poll();
      expect(written[0]).toBe(round);
    }
  });

  it('an overflow loses completions, is reported once, and affects no other queue [SEC-6.4.6-01]', () => {
    const rig = new NicRig({ cqe: 2 });
    for (let wrId = 0; wrId < 5; wrId += 1) rig.send({ opcode: SQOpcode.send, wrId });
    expect(rig.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.cqErr, object: rig.sendCQ },
    ]);
    expect(rig.sendCQ.lost).toBe(3);
    expect(rig.qp.state).toBe(QPState.RTS);
    expectOutcome(rig.sendCompletions, [0, 0], [1, 0]);
    rig.receives.post(9, [rig.piece(0, 1)]);
    rig.receive([1]);
    expectOutcome(rig.recvCompletions, [9, 0]);
    for (let wrId = 5; wrId < 8; wrId += 1) rig.send({ opcode: SQOpcode.send, wrId });
    expect(rig.asyncEvents()).toEqual([AsyncEventType.cqErr]);
  });

  it('carries a 64-bit work request id unchanged', () => {
    rig.sends.post({ opcode: SQOpcode.send });
    rig.sends.view.setBigUint64(0, 0xfedc_ba98_7654_3210n, true);
    rig.qp.doorbell(0);
    expect(new DataView(rig.sendCQ.ring.buffer).getBigUint64(0, true)).toBe(0xfedc_ba98_7654_3210n);
  });

  it('cannot be closed while QPs use it; afterwards it reports nothing', () => {
    expect(() => rig.recvCQ.close()).toThrow(expect.objectContaining({ code: 'EBUSY' }));
    rig.recvCompletions.arm(Notify.any);
    rig.qp.close(0);
    rig.recvCQ.close();
    rig.recvCQ.close();
    expect(rig.effects().map(({ type }) => type)).toEqual(['abort']);
  });
});
