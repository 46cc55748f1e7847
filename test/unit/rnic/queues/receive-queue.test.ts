import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, Notify, QueueFlag, RQE, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, AsyncEventType, QPState } from '#contract/verbs/enums';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { NicRig, NO_MESSAGE } from '#test/support/nic-rig';
import { expectOutcome, failure } from '#test/support/outcomes';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { locLenErr, locProtErr, locQpOpErr, success, wrFlushErr } = CQEStatus;

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

describe('receives', () => {
  it('scatters a Send over its pieces and reports length and data [RDMAP-3.2-02]', () => {
    rig.receives.post(5, [rig.piece(0, 2), rig.piece(10, 1), rig.piece(20, 10)]);
    expect(rig.receive([1, 2, 3, 4, 5])).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(0, 3)]).toEqual([1, 2, 0]);
    expect([...rig.memory.subarray(10, 12)]).toEqual([3, 0]);
    expect([...rig.memory.subarray(20, 23)]).toEqual([4, 5, 0]);
    expect(rig.recvCompletions.poll()).toEqual([
      {
        wrId: 5,
        opcode: SQOpcode.receive,
        status: success,
        bytes: 5,
        flags: QueueFlag.valid,
        immediate: 0n,
        qpn: rig.qp.qpn,
      },
    ]);
  });

  it('places segments at their offsets and delivers in the order sent [RDMAP-5.3-05]', () => {
    rig.receives.post(1, [rig.piece(0, 3), rig.piece(100, 3)]);
    rig.receives.post(2, [rig.piece(200, 1)]);
    rig.qp.beginReceive();
    rig.qp.placeReceive(0, Uint8Array.of(1, 2), 0, 2);
    rig.qp.placeReceive(2, Uint8Array.of(0, 3, 4, 0), 1, 2);
    rig.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: 4 });
    rig.receive([7]);
    expect([...rig.memory.subarray(0, 3), ...rig.memory.subarray(100, 102)]).toEqual([
      1, 2, 3, 4, 0,
    ]);
    expectOutcome(rig.recvCompletions, [1, 0], [2, 0]);
  });

  it('a Send of no bytes consumes exactly one receive [RDMAP-5.3-02]', () => {
    rig.receives.post(1, []);
    rig.receives.post(2, [rig.piece(0, 1)]);
    expect(rig.receive([])).toBe(AccessRefusal.none);
    expect(rig.receive([9])).toBe(AccessRefusal.none);
    expect(rig.recvCompletions.poll()).toMatchObject([
      { wrId: 1, bytes: 0 },
      { wrId: 2, bytes: 1 },
    ]);
  });

  it('has no buffer when none is posted', () => {
    expect(rig.receive([1])).toBe(AccessRefusal.noBuffer);
    expect(rig.recvCompletions.poll()).toEqual([]);
  });

  it('frees the element when the message begins', () => {
    rig.receives.post(1, [rig.piece(0, 4)]);
    const flags = rig.qp.rqOffset + RQE.flags;
    expect(rig.qp.ring[flags]).toBe(QueueFlag.valid);
    rig.qp.beginReceive();
    expect(rig.qp.ring[flags]).toBe(0);
  });

  it('a Send longer than its receive completes it in error and places nothing [RDMAP-5.3-04]', () => {
    rig.receives.post(1, [rig.piece(0, 4)]);
    expect(rig.receive([1, 2, 3, 4, 5])).toBe(AccessRefusal.messageTooLong);
    expect(rig.nic.counters).toMatchObject({ tooLongMessages: 1, accessErrors: 0 });
    expect(rig.memory.every((byte) => byte === 0)).toBe(true);
    expect(rig.recvCompletions.poll()).toMatchObject([{ wrId: 1, status: locLenErr, bytes: 0 }]);
  });

  it('Immediate Data that are placed need a receive of 8 bytes [RDMAPX-6.3-02]', () => {
    const immediate = [1, 2, 3, 4, 5, 6, 7, 8];
    const message = { hasImmediate: true, immediateHi: 0x01020304, immediateLo: 0x05060708 };
    rig.receives.post(1, [rig.piece(0, 8)]);
    rig.receives.post(2, [rig.piece(0, 4)]);
    expect(rig.receive(immediate, message)).toBe(AccessRefusal.none);
    expect(rig.receive(immediate, message)).toBe(AccessRefusal.messageTooLong);
    expect(rig.recvCompletions.poll()).toMatchObject([
      {
        wrId: 1,
        status: 0,
        bytes: 8,
        flags: QueueFlag.valid | QueueFlag.immediate,
        immediate: 0x0102_0304_0506_0708n,
      },
      { wrId: 2, status: locLenErr },
    ]);
  });

  it('a Write is placed and reports nothing to the consumer [RDMAP-5.1-02]', () => {
    rig.receives.post(1, [rig.piece(0, 4)]);
    rig.recvCompletions.arm(Notify.any);
    expect(rig.write(rig.mr.rkey, BigInt(MEMORY_ADDRESS + 50), [1, 2])).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(49, 53)]).toEqual([0, 1, 2, 0]);
    expect(rig.recvCompletions.poll()).toEqual([]);
    expect(rig.effects()).toEqual([]);
    expect(rig.receive([3])).toBe(AccessRefusal.none);
  });
});

describe('invalid receives posted by a client', () => {
  const cases: [string, CQEStatus, (rig: NicRig) => void][] = [
    [
      'an unknown lkey',
      locProtErr,
      (rig) => rig.receives.post(1, [{ addr: MEMORY_ADDRESS, length: 7, lkey: 0x777700 }]),
    ],
    [
      'memory without LOCAL_WRITE',
      locProtErr,
      (rig) => {
        const mr = rig.register(rig.pd, { access: Access.none });
        rig.receives.post(1, [rig.piece(0, 7, mr)]);
      },
    ],
    [
      'memory of another protection domain',
      locProtErr,
      (rig) => {
        const mr = rig.register(rig.nic.allocPD());
        rig.receives.post(1, [rig.piece(0, 7, mr)]);
      },
    ],
    ['an end beyond the region', locProtErr, (rig) => rig.receives.post(1, [rig.piece(4090, 7)])],
    ['seven pieces', locQpOpErr, (rig) => rig.receives.post(1, [], 7)],
  ];
  for (const [what, status, post] of cases) {
    it(`completes a receive in ${what} in error, and names the receive as the reason`, () => {
      post(rig);
      expect(rig.receive([1, 2, 3, 4, 5, 6, 7])).toBe(AccessRefusal.receiveInvalid);
      expectOutcome(rig.recvCompletions, [1, status]);
    });
  }

  it('accepts a message that fits the region, however long the receive is', () => {
    rig.receives.post(1, [rig.piece(4090, 100), { addr: 0, length: 8, lkey: 0 }]);
    rig.qp.beginReceive();
    expect(rig.qp.placeReceive(0, Uint8Array.of(1, 2, 3, 4), 0, 4)).toBe(AccessRefusal.none);
    expect(rig.qp.placeReceive(4, Uint8Array.of(5, 6), 0, 2)).toBe(AccessRefusal.none);
    expect(rig.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: 6 })).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(4090)]).toEqual([1, 2, 3, 4, 5, 6]);
    expectOutcome(rig.recvCompletions, [1, 0]);
  });

  it('fails it at the first byte past the region', () => {
    rig.receives.post(1, [rig.piece(4090, 100)]);
    rig.qp.beginReceive();
    expect(rig.qp.placeReceive(0, Uint8Array.of(1, 2, 3, 4), 0, 4)).toBe(AccessRefusal.none);
    expect(rig.qp.placeReceive(4, Uint8Array.of(5, 6, 7), 0, 3)).toBe(AccessRefusal.receiveInvalid);
    expectOutcome(rig.recvCompletions, [1, locProtErr]);
  });

  it('accepts a Send of no bytes whatever the receive names', () => {
    rig.receives.post(1, [{ addr: 0, length: 64, lkey: 0 }]);
    expect(rig.receive([])).toBe(AccessRefusal.none);
    expectOutcome(rig.recvCompletions, [1, 0]);
  });

  it('fails a receive whose region is deregistered meanwhile', () => {
    const mr = rig.register(rig.pd);
    rig.receives.post(1, [rig.piece(0, 8, mr)]);
    rig.qp.beginReceive();
    mr.close();
    expect(rig.qp.placeReceive(0, Uint8Array.of(1), 0, 1)).toBe(AccessRefusal.memoryLost);
    expect(rig.memory[0]).toBe(0);
    expectOutcome(rig.recvCompletions, [1, locProtErr]);
  });
});

describe('a shared receive queue', () => {
  const shared = (srqLimit = 0): NicRig => new NicRig({ srq: { maxWr: 8, srqLimit } });

  it('serves several QPs, each completing to its own CQ with its own number', () => {
    const rig = shared();
    const other = rig.connectedQP(rig.pd);
    rig.receives.post(1, [rig.piece(0, 1)]);
    rig.receives.post(2, [rig.piece(1, 1)]);
    other.beginReceive();
    rig.receive([5]);
    other.placeReceive(0, Uint8Array.of(6), 0, 1);
    other.completeReceive({ ...NO_MESSAGE, lengthBytes: 1 });
    expect([...rig.memory.subarray(0, 2)]).toEqual([6, 5]);
    expect(rig.recvCompletions.poll()).toMatchObject([
      { wrId: 2, qpn: rig.qp.qpn },
      { wrId: 1, qpn: other.qpn },
    ]);
  });

  it('counts receives of each stream and reports once when few are left [SEC-6.4.3.1-01]', () => {
    const rig = shared(2);
    for (let wrId = 0; wrId < 5; wrId += 1) rig.receives.post(wrId, [rig.piece(0, 4)]);
    rig.receive([1]);
    rig.receive([1]);
    rig.receive([1]);
    expect(rig.asyncEvents()).toEqual([]);
    rig.receive([1]);
    expect(rig.effects()).toMatchObject([
      { type: 'async', event: AsyncEventType.srqLimitReached, object: rig.srq },
    ]);
    expect(rig.srq?.query().srqLimit).toBe(0);
    rig.receive([1]);
    expect(rig.asyncEvents()).toEqual([]);
    expect(rig.qp.receivesTaken).toBe(5);
  });

  it('can be armed again, or disarmed, and refuses a limit beyond its size', () => {
    const rig = shared();
    rig.srq?.modify({ srqLimit: 1 });
    rig.receives.post(1, [rig.piece(0, 4)]);
    rig.receive([1]);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.srqLimitReached]);
    rig.srq?.modify({ srqLimit: 8 });
    rig.srq?.modify({ srqLimit: 0 });
    rig.receives.post(2, [rig.piece(0, 4)]);
    rig.receive([1]);
    expect(rig.asyncEvents()).toEqual([]);
    expect(() => rig.srq?.modify({ srqLimit: 9 })).toThrow(failure('EINVAL'));
  });

  it('checks its pieces against its own protection domain', () => {
    const rig = shared();
    const qp = rig.connectedQP(rig.nic.allocPD());
    rig.receives.post(1, [rig.piece(0, 4)]);
    expect(qp.beginReceive()).toBe(AccessRefusal.none);
    expect(qp.placeReceive(0, Uint8Array.of(8), 0, 1)).toBe(AccessRefusal.none);
    expect(rig.memory[0]).toBe(8);
  });

  it('keeps its receives when one of its QPs fails, and reports the last WQE of that QP', () => {
    const rig = shared();
    rig.receives.post(1, [rig.piece(0, 4)]);
    rig.receives.post(2, [rig.piece(0, 4)]);
    rig.qp.beginReceive();
    rig.qp.modify(QPState.ERR, 0);
    expectOutcome(rig.recvCompletions, [1, wrFlushErr]);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.qpLastWqeReached]);
    expect(rig.connectedQP(rig.pd).beginReceive()).toBe(AccessRefusal.none);
  });

  it('cannot be closed while QPs use it, and frees its PD afterwards', () => {
    const rig = shared();
    expect(() => rig.srq?.close()).toThrow(failure('EBUSY'));
    rig.qp.close(0);
    rig.srq?.close();
    rig.srq?.close();
    rig.mr.close();
    rig.pd.close();
  });
});
