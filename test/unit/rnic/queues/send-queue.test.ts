import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode as Op, QueueFlag, SQE } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { hi, lo, NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { readFence, signalled, solicited, valid } = QueueFlag;
const SIGNALLED = signalled;
const RKEY = 0x11223344;

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

describe('messages', () => {
  it('sends a Send gathered from several pieces and completes it once framed', () => {
    rig.memory.set([1, 2, 3], 0);
    rig.memory.set([9, 8], 100);
    rig.send({ opcode: Op.send, wrId: 7, sges: [rig.piece(0, 3), rig.piece(100, 2)] });
    expect(rig.stream.sent).toHaveLength(1);
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.send,
      lengthBytes: 5,
      solicited: false,
      payload: [1, 2, 3, 9, 8],
    });
    expect(rig.sendCompletions.poll()).toEqual([
      {
        wrId: 7,
        opcode: Op.send,
        status: CQEStatus.success,
        bytes: 5,
        flags: valid,
        immediate: 0n,
        qpn: rig.qp.qpn,
      },
    ]);
  });

  it('frees the element when it is taken, and completes it only once framed [RDMAP-5.5-10]', () => {
    rig.stream.budget = 0;
    rig.send({ opcode: Op.send, sges: [rig.piece(0, 4)] });
    expect(rig.qp.ring[SQE.flags]).toBe(0);
    expectOutcome(rig.sendCompletions);
  });

  it('carries solicited event and the STag to invalidate', () => {
    rig.send({ opcode: Op.sendRemoteInv, flags: solicited, rkey: 0xcafe0001, sges: [] });
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.sendWithInvalidate,
      lengthBytes: 0,
      solicited: true,
      invalidateStag: 0xcafe0001,
    });
  });

  it('a Write has one remote buffer and any number of local pieces [RDMAP-5.1-05]', () => {
    rig.send({
      opcode: Op.write,
      rkey: RKEY,
      raddr: 0xfedc_ba98_7654_3210n,
      sges: [rig.piece(0, 10), rig.piece(20, 10), rig.piece(40, 10)],
    });
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.write,
      lengthBytes: 30,
      remoteStag: RKEY,
      remoteToHi: 0xfedcba98,
      remoteToLo: 0x76543210,
    });
  });

  it('takes inline payload from the element, without any registration', () => {
    const inline = Uint8Array.from({ length: 80 }, (_, index) => index);
    rig.send({ opcode: Op.send, inline });
    rig.send({ opcode: Op.write, inline: inline.subarray(0, 5), rkey: RKEY });
    expect(rig.stream.sent.map(({ payload }) => payload)).toEqual([[...inline], [0, 1, 2, 3, 4]]);
  });

  it('a Write with immediate is two messages and one completion [RDMAPX-6-01]', () => {
    rig.stream.budget = 1;
    rig.send({
      opcode: Op.writeWithImm,
      wrId: 3,
      flags: SIGNALLED | solicited,
      rkey: RKEY,
      sges: [rig.piece(0, 4)],
      immediate: 0x0102_0304_0506_0708n,
    });
    expect(rig.stream.sent[0]).toMatchObject({ kind: OutboundKind.write, lengthBytes: 4 });
    expectOutcome(rig.sendCompletions);
    rig.stream.budget = 1;
    rig.qp.doorbell(0);
    expect(rig.stream.sent[1]).toMatchObject({
      kind: OutboundKind.immediate,
      solicited: true,
      immediateHi: 0x01020304,
      immediateLo: 0x05060708,
    });
    expect(rig.sendCompletions.poll()).toMatchObject([
      { wrId: 3, opcode: Op.writeWithImm, status: CQEStatus.success, bytes: 4 },
    ]);
  });

  it('sends no Immediate Data except after a Write that has them', () => {
    const sges = [rig.piece(0, 8)];
    rig.send({ opcode: Op.read, wrId: 1, rkey: RKEY, sges });
    rig.send({ opcode: Op.writeWithImm, wrId: 2, rkey: RKEY, sges, immediate: 5n });
    rig.send({ opcode: Op.fetchAndAdd, wrId: 3, rkey: RKEY, sges });
    rig.send({ opcode: Op.write, wrId: 4, rkey: RKEY, sges });
    const { readRequest, write, immediate, atomic } = OutboundKind;
    expect(rig.stream.sent.map(({ kind }) => kind)).toEqual([
      readRequest,
      write,
      immediate,
      atomic,
      write,
    ]);
  });

  it('Immediate Data alone carries its 64 bits unchanged [RDMAPX-6.1-01]', () => {
    rig.send({ opcode: Op.immediate, immediate: 0xffee_ddcc_bbaa_9988n });
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.immediate,
      lengthBytes: 8,
      immediateHi: 0xffeeddcc,
      immediateLo: 0xbbaa9988,
    });
  });
});

describe('signalling', () => {
  it('completes only signalled work requests', () => {
    rig.send({ opcode: Op.send, wrId: 1, flags: 0 });
    rig.send({ opcode: Op.send, wrId: 2, flags: SIGNALLED });
    expectOutcome(rig.sendCompletions, [2, CQEStatus.success]);
  });

  it('completes all work requests if the QP is configured to', () => {
    const rig = new NicRig({ sqSigAll: true });
    rig.send({ opcode: Op.send, wrId: 1, flags: 0 });
    expectOutcome(rig.sendCompletions, [1, CQEStatus.success]);
  });
});

describe('reads', () => {
  const read = (rig: NicRig, wrId: number, offset = 0, length = 16): void =>
    rig.send({
      opcode: Op.read,
      wrId,
      rkey: RKEY,
      raddr: 0x2000n,
      sges: [rig.piece(offset, length)],
    });

  it('a Read completes with its response, not before [RDMAP-5.2.2-04, RDMAP-5.5-13]', () => {
    read(rig, 1, 32, 4);
    const sinkTo = MEMORY_ADDRESS + 32;
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.readRequest,
      lengthBytes: 4,
      remoteStag: RKEY,
      remoteToHi: 0,
      remoteToLo: 0x2000,
      sinkStag: rig.mr.lkey,
      sinkToHi: 0,
      sinkToLo: sinkTo,
    });
    expect(rig.qp.placeReadResponse(rig.mr.lkey, 0, sinkTo, Uint8Array.of(5, 6, 7, 8), 0, 4)).toBe(
      0,
    );
    expectOutcome(rig.sendCompletions);
    rig.qp.readCompleted();
    expect([...rig.memory.subarray(31, 37)]).toEqual([0, 5, 6, 7, 8, 0]);
    expect(rig.sendCompletions.poll()).toMatchObject([
      { wrId: 1, opcode: Op.read, status: CQEStatus.success, bytes: 4 },
    ]);
  });

  it('responses complete the reads in order [RDMAP-5.5-14]', () => {
    read(rig, 1);
    read(rig, 2);
    rig.qp.readCompleted();
    expectOutcome(rig.sendCompletions, [1, 0]);
    rig.qp.readCompleted();
    expectOutcome(rig.sendCompletions, [2, 0]);
  });

  it('names the sink as peers would, when their address differs from the local one', () => {
    const mr = rig.register(rig.pd, { iova: 0x7000_0000_0000 });
    rig.send({ opcode: Op.read, rkey: RKEY, sges: [rig.piece(8, 4, mr)] });
    const { sinkToHi, sinkToLo } = rig.stream.sent[0] ?? { sinkToHi: 0, sinkToLo: 0 };
    expect([sinkToHi, sinkToLo]).toEqual([0x7000, 8]);
    rig.qp.placeReadResponse(mr.lkey, 0x7000, 8, Uint8Array.of(1, 2, 3, 4), 0, 4);
    expect([...rig.memory.subarray(8, 12)]).toEqual([1, 2, 3, 4]);
  });

  it('a response stays within the sink of the oldest Read [RDMAP-5.2.2-06, RDMAP-5.2.2-07]', () => {
    read(rig, 1, 16, 8);
    const bytes = new Uint8Array(16).fill(0xee);
    const to = MEMORY_ADDRESS + 16;
    const place = (stag: number, toHi: number, toLo: number, length: number): number =>
      rig.qp.placeReadResponse(stag, toHi, toLo, bytes, 0, length);
    expect(place(rig.mr.lkey ^ 1, 0, to, 8)).toBe(1);
    expect(place(rig.mr.lkey, 0, to - 1, 4)).toBe(3);
    expect(place(rig.mr.lkey, 0, to + 1, 8)).toBe(3);
    expect(place(rig.mr.lkey, 0x1000_0000, to, 4)).toBe(3);
    expect(place(rig.mr.lkey, 0xffffffff, 0xfffffffe, 4)).toBe(5);
    expect(rig.memory.every((byte) => byte === 0)).toBe(true);
    expect(place(rig.mr.lkey, 0, to, 8)).toBe(0);
  });

  it('refuses response data once the sink was deregistered', () => {
    const mr = rig.register(rig.pd);
    rig.send({ opcode: Op.read, rkey: RKEY, sges: [rig.piece(0, 8, mr)] });
    const stag = mr.lkey;
    mr.close();
    expect(rig.qp.placeReadResponse(stag, 0, MEMORY_ADDRESS, new Uint8Array(8), 0, 8)).toBe(1);
  });

  it('a Read of no bytes needs no sink, and names none [RDMAP-5.2.1-08]', () => {
    rig.send({ opcode: Op.read, wrId: 1, rkey: RKEY });
    rig.send({
      opcode: Op.read,
      wrId: 2,
      rkey: RKEY,
      sges: [{ addr: 99, length: 0, lkey: 0xbad }],
    });
    expect(rig.stream.sent).toMatchObject([
      { lengthBytes: 0, sinkStag: 0, sinkToHi: 0, sinkToLo: 0 },
      { lengthBytes: 0, sinkStag: 0, sinkToHi: 0, sinkToLo: 0 },
    ]);
    rig.qp.readCompleted();
    rig.qp.readCompleted();
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0]);
  });

  it('a Read with an unusable sink is refused, nothing is sent [RDMAP-5.2.2-07]', () => {
    const rig = new NicRig({ access: 0 });
    read(rig, 5);
    expect(rig.stream.sent).toEqual([]);
    expectOutcome(rig.sendCompletions, [5, CQEStatus.locProtErr]);
    expect(rig.qp.state).toBe(QPState.ERR);
  });

  it('work after a Read is sent at once, and completes after it [RDMAP-5.5-11]', () => {
    read(rig, 1);
    rig.send({ opcode: Op.write, wrId: 2, rkey: RKEY });
    rig.send({ opcode: Op.send, wrId: 3 });
    expect(rig.stream.sent).toHaveLength(3);
    expectOutcome(rig.sendCompletions);
    rig.qp.readCompleted();
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0], [3, 0]);
  });

  it('starts no more than its depth while a Read is outstanding, and continues afterwards', () => {
    const rig = new NicRig({ sqCount: 4 });
    read(rig, 1);
    for (let wrId = 2; wrId <= 6; wrId += 1) rig.send({ opcode: Op.send, wrId });
    expect(rig.stream.sent).toHaveLength(4);
    rig.qp.readCompleted();
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(6);
    expect(rig.sendCompletions.outcome().map(([wrId]) => wrId)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('reads beyond ORD wait, they do not fail [RDMAP-6.1-03]', () => {
    const rig = new NicRig({ depths: { ird: 0, ord: 2 } });
    for (let wrId = 0; wrId < 10; wrId += 1) read(rig, wrId);
    expect(rig.stream.sent).toHaveLength(2);
    for (let done = 0; done < 10; done += 1) {
      rig.qp.readCompleted();
      rig.qp.doorbell(0);
      expect(rig.stream.sent).toHaveLength(Math.min(10, done + 3));
    }
    expect(rig.sendCompletions.outcome().map(([wrId]) => wrId)).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
    ]);
  });

  it('refuses a Read when the connection has no read depth', () => {
    const rig = new NicRig({ depths: { ird: 4, ord: 0 } });
    read(rig, 1);
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locQpOpErr]);
    expect(rig.qp.state).toBe(QPState.ERR);
  });
});

describe('fences', () => {
  it('waits for outstanding reads and atomics, and holds back what follows', () => {
    rig.send({ opcode: Op.read, wrId: 1, rkey: RKEY, sges: [rig.piece(0, 8)] });
    rig.send({ opcode: Op.fetchAndAdd, wrId: 2, rkey: RKEY, sges: [rig.piece(8, 8)] });
    rig.send({ opcode: Op.send, wrId: 3, flags: SIGNALLED | readFence });
    rig.send({ opcode: Op.send, wrId: 4 });
    expect(rig.stream.sent).toHaveLength(2);
    rig.qp.readCompleted();
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(2);
    rig.qp.atomicCompleted(0, 0);
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(4);
    expect(rig.sendCompletions.outcome().map(([wrId]) => wrId)).toEqual([1, 2, 3, 4]);
  });

  it('does not wait when nothing is outstanding', () => {
    rig.send({ opcode: Op.send, wrId: 1, flags: SIGNALLED | readFence });
    expectOutcome(rig.sendCompletions, [1, 0]);
  });
});

describe('atomics', () => {
  it('FetchAdd is sent with compare data 0 and compare mask all ones [RDMAPX-5.2.1-06]', () => {
    rig.send({
      opcode: Op.fetchAndAdd,
      rkey: RKEY,
      raddr: 0x1008n,
      operand: 0x1_0000_0002n,
      sges: [rig.piece(0, 8)],
    });
    expect(rig.stream.sent[0]).toMatchObject({
      kind: OutboundKind.atomic,
      atomicOperation: 0,
      remoteStag: RKEY,
      remoteToLo: 0x1008,
      atomicOperandHi: 1,
      atomicOperandLo: 2,
      atomicOperandMaskHi: 0,
      atomicOperandMaskLo: 0,
      atomicCompareHi: 0,
      atomicCompareLo: 0,
      atomicCompareMaskHi: 0xffffffff,
      atomicCompareMaskLo: 0xffffffff,
    });
  });

  it('CmpSwap takes both values and returns the original [RDMAPX-5.1.2-04]', () => {
    rig.send({
      opcode: Op.compAndSwap,
      wrId: 9,
      rkey: RKEY,
      raddr: 0x1008n,
      operand: 0xaan,
      compare: 1n,
      sges: [rig.piece(16, 8)],
    });
    expect(rig.stream.sent[0]).toMatchObject({
      atomicOperation: 2,
      atomicOperandLo: 0xaa,
      atomicOperandMaskHi: 0xffffffff,
      atomicOperandMaskLo: 0xffffffff,
      atomicCompareLo: 1,
      atomicCompareMaskLo: 0xffffffff,
    });
    rig.qp.atomicCompleted(hi(0x1122_3344_5566_7788n), lo(0x1122_3344_5566_7788n));
    expect([...rig.memory.subarray(16, 24)]).toEqual([
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
    ]);
    expect(rig.sendCompletions.poll()).toMatchObject([
      { wrId: 9, opcode: Op.compAndSwap, status: 0, bytes: 8 },
    ]);
  });

  it('atomics and reads share ORD [RDMAPX-5.2-01]', () => {
    const rig = new NicRig({ depths: { ird: 2, ord: 2 } });
    const sges = [rig.piece(0, 8)];
    rig.send({ opcode: Op.read, wrId: 1, rkey: RKEY, sges });
    rig.send({ opcode: Op.fetchAndAdd, wrId: 2, rkey: RKEY, sges });
    rig.send({ opcode: Op.compAndSwap, wrId: 3, rkey: RKEY, sges });
    expect(rig.stream.sent).toHaveLength(2);
    rig.qp.readCompleted();
    rig.qp.doorbell(0);
    expect(rig.stream.sent).toHaveLength(3);
  });

  it.each([
    ['an RDMA Read over iWARP', Op.read],
    ['an atomic', Op.fetchAndAdd],
  ])('reports that %s takes one SGE', (what, opcode) => {
    const rig = new NicRig();
    rig.send({ opcode, wrId: 1, rkey: RKEY, sges: [rig.piece(0, 4), rig.piece(4, 4)] });
    const [event] = rig.effects();
    expect(event).toMatchObject({ type: 'async', text: `${what} takes one SGE, not 2` });
  });

  it('refuses a result buffer that is not 8 bytes of writable memory', () => {
    for (const [sges, status] of [
      [[[0, 7]], CQEStatus.locLenErr],
      [[], CQEStatus.locLenErr],
      [
        [
          [0, 4],
          [4, 4],
        ],
        CQEStatus.locQpOpErr,
      ],
      [[[4092, 8]], CQEStatus.locProtErr],
    ] as const) {
      const rig = new NicRig();
      const pieces = sges.map(([offset, length]) => rig.piece(offset, length));
      rig.send({ opcode: Op.fetchAndAdd, wrId: 1, rkey: RKEY, sges: pieces });
      expectOutcome(rig.sendCompletions, [1, status]);
      expect(rig.stream.sent).toEqual([]);
    }
  });

  it('fails when the memory for its result is lost', () => {
    const mr = rig.register(rig.pd);
    rig.send({ opcode: Op.fetchAndAdd, wrId: 1, rkey: RKEY, sges: [rig.piece(0, 8, mr)] });
    mr.close();
    rig.qp.atomicCompleted(0, 1);
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr]);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.qpAccessErr]);
    expect(rig.stream.calls).toHaveLength(1);
  });
});

describe('invalid elements written by a client', () => {
  const good = { addr: MEMORY_ADDRESS, length: 8 };
  const cases: [string, CQEStatus, (rig: NicRig) => Parameters<NicRig['send']>[0]][] = [
    ['an unknown opcode', 3, () => ({ opcode: 200 })],
    ['an opcode that only the kernel uses', 3, () => ({ opcode: Op.readLocalInv })],
    ['a receive', 3, () => ({ opcode: Op.receive })],
    ['more SGEs than an element holds', 3, () => ({ opcode: Op.send, numSge: 7 })],
    ['255 SGEs', 3, () => ({ opcode: Op.write, numSge: 255 })],
    [
      'two sinks of a Read',
      3,
      (rig) => ({ opcode: Op.read, sges: [rig.piece(0, 1), rig.piece(1, 1)] }),
    ],
    ['an inline Read', 3, () => ({ opcode: Op.read, inline: Uint8Array.of(1) })],
    [
      'inline payload beyond the element',
      1,
      () => ({ opcode: Op.send, inline: new Uint8Array(8), inlineLength: 81 }),
    ],
    [
      'inline payload of 4 GiB',
      1,
      () => ({ opcode: Op.send, inline: new Uint8Array(8), inlineLength: 0xffffffff }),
    ],
    [
      'inline payload that reaches over the Immediate Data',
      1,
      () => ({ opcode: Op.writeWithImm, inline: new Uint8Array(8), inlineLength: 65 }),
    ],
    ['a sixth SGE in place of Immediate Data', 3, () => ({ opcode: Op.writeWithImm, numSge: 6 })],
    [
      'an lkey that does not exist',
      2,
      () => ({ opcode: Op.send, sges: [{ ...good, lkey: 0x12345678 }] }),
    ],
    [
      'an lkey with another key',
      2,
      (rig) => ({ opcode: Op.send, sges: [{ ...good, lkey: rig.mr.lkey ^ 1 }] }),
    ],
    [
      'one byte too many',
      2,
      (rig) => ({ opcode: Op.send, sges: [{ ...good, length: 4097, lkey: rig.mr.lkey }] }),
    ],
    [
      'an address below the region',
      2,
      (rig) => ({
        opcode: Op.send,
        sges: [{ ...good, addr: MEMORY_ADDRESS - 1, lkey: rig.mr.lkey }],
      }),
    ],
    [
      'a bad piece among good ones',
      2,
      (rig) => ({
        opcode: Op.send,
        sges: [rig.piece(0, 8), { ...good, lkey: 1 }, rig.piece(8, 8)],
      }),
    ],
    [
      'a bind of no window',
      10,
      () => ({ opcode: Op.bindMW, bind: { key: 1, access: 0, lkey: 0, length: 1n } }),
    ],
    ['an invalidation of nothing', 10, () => ({ opcode: Op.localInv, rkey: 0x55555500 })],
  ];
  for (const [what, status, fields] of cases) {
    it(`completes ${what} in error, terminates and flushes [RDMAP-7.1-02]`, () => {
      rig.sends.post({ ...fields(rig), wrId: 1 });
      rig.sends.post({ opcode: Op.send, wrId: 2 });
      rig.receives.post(3, [rig.piece(0, 8)]);
      rig.qp.doorbell(0);
      expectOutcome(rig.sendCompletions, [1, status], [2, CQEStatus.wrFlushErr]);
      expectOutcome(rig.recvCompletions, [3, CQEStatus.wrFlushErr]);
      expect(rig.qp.state).toBe(QPState.ERR);
      expect(rig.stream.sent).toEqual([]);
      expect(rig.stream.calls).toHaveLength(1);
      expect(rig.stream.calls[0]).toMatch(/^fail: /);
      expect(rig.asyncEvents()).toEqual([AsyncEventType.qpFatal]);
    });
  }

  it('never reports an opcode or status unknown to clients', () => {
    for (let opcode = 0; opcode < 256; opcode += 1) {
      const rig = new NicRig();
      rig.sends.post({ opcode, numSge: 255 });
      rig.sends.post({ opcode });
      rig.qp.doorbell(0);
      for (const completion of rig.sendCompletions.poll()) {
        expect(completion.status).toBeLessThanOrEqual(CQEStatus.mwBindErr);
        expect(Object.values(Op)).toContain(completion.opcode);
      }
    }
  });

  it('refuses an SGE in memory of another protection domain [SEC-6.1.1-02]', () => {
    const foreign = rig.register(rig.nic.allocPD());
    rig.send({ opcode: Op.send, wrId: 1, sges: [rig.piece(0, 8, foreign)] });
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr]);
  });

  it('ignores pieces of no bytes', () => {
    rig.memory.set([4, 5], 0);
    rig.send({
      opcode: Op.send,
      wrId: 1,
      sges: [{ addr: 0, length: 0, lkey: 0xbad }, rig.piece(0, 2)],
    });
    expect(rig.stream.sent[0]?.payload).toEqual([4, 5]);
  });

  it('sends nothing of a region that was deregistered while its message waited', () => {
    const mr = rig.register(rig.pd);
    rig.stream.budget = 0;
    rig.send({ opcode: Op.send, wrId: 1, sges: [rig.piece(0, 8, mr)] });
    mr.close();
    rig.stream.budget = 1;
    rig.qp.doorbell(0);
    expect(rig.stream.sent[0]).toMatchObject({ refusal: 1, payload: [0, 0, 0, 0, 0, 0, 0, 0] });
    rig.qp.terminated('us', { kind: 'local', text: 'local memory' }, 0);
    expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr]);
  });
});

describe('uncompleted work', () => {
  it('records its progress after the ring: the next element, and the uncompleted ones before it', () => {
    const progress = new Int32Array(1);
    const rig = new NicRig({ sqCount: 4, depths: { ird: 1, ord: 1 }, progress });
    const notified = () => [(progress[0] ?? 0) & 0xffff, (progress[0] ?? 0) >>> 16];
    rig.send({ opcode: Op.send });
    expect(notified()).toEqual([1, 0]);
    const read = { opcode: Op.read, rkey: RKEY, raddr: 0n, sges: [rig.piece(0, 8)] };
    rig.send(read);
    expect(notified()).toEqual([2, 1]);
    // This one is taken, and waits for a read slot.
    rig.send(read);
    expect(notified()).toEqual([3, 2]);
    rig.send({ opcode: Op.send });
    expect(notified()).toEqual([3, 2]);
    rig.qp.modify(QPState.ERR, 0);
    expect(notified()).toEqual([4, 0]);
  });
});
