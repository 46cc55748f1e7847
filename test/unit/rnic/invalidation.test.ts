import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, MWType } from '#contract/verbs/enums';
import type { MW } from '#daemon/rnic/memory/memory-window';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { SendProducer } from '#test/support/flag-ring-client';
import { NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { ALL_ACCESS, MEMORY_ADDRESS, WatchedBacking } from '#test/support/test-memory';

const START = BigInt(MEMORY_ADDRESS);
const WINDOW_ACCESS = Access.remoteRead | Access.remoteWrite;

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

/** Delivers a Send with Invalidate; four receives are posted first. */
function invalidate(stag: number): AccessRefusal {
  rig.receives.post(77, [rig.piece(4000, 8)]);
  return rig.receive([1], { invalidates: true, invalidateStag: stag });
}

/** Binds a window through the rig's QP; returns the completion's status. */
function bind(
  mw: MW,
  fields: { key?: number; access?: number; lkey?: number; offset?: number; length?: number } = {},
): number | undefined {
  rig.send({
    opcode: SQOpcode.bindMW,
    wrId: 50,
    rkey: mw.rkey,
    raddr: START + BigInt(fields.offset ?? 0),
    bind: {
      key: fields.key ?? 0x42,
      access: fields.access ?? WINDOW_ACCESS,
      lkey: fields.lkey ?? rig.mr.lkey,
      length: BigInt(fields.length ?? 16),
    },
  });
  return rig.sendCompletions.poll().find(({ wrId }) => wrId === 50)?.status;
}

function localInvalidate(stag: number): number | undefined {
  rig.send({ opcode: SQOpcode.localInv, wrId: 60, rkey: stag });
  return rig.sendCompletions.poll().find(({ wrId }) => wrId === 60)?.status;
}

describe('Send with Invalidate', () => {
  it('revokes the STag and names it in the completion [RDMAP-5.3-09, RDMAP-3.2-02, SEC-6.2.2-02]', () => {
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.none);
    expect(rig.recvCompletions.poll()).toMatchObject([
      {
        wrId: 77,
        status: 0,
        bytes: 1,
        flags: QueueFlag.valid | QueueFlag.remoteInvalidate,
        immediate: BigInt(rig.mr.rkey),
      },
    ]);
    expect(rig.write(rig.mr.rkey, START, [1])).toBe(AccessRefusal.stagInvalid);
    expect(rig.qp.checkReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS, 1)).toBe(
      AccessRefusal.stagInvalid,
    );
  });

  it('earlier data are placed, later data refused [RDMAP-5.3-11]', () => {
    expect(rig.write(rig.mr.rkey, START, [1])).toBe(AccessRefusal.none);
    invalidate(rig.mr.rkey);
    expect(rig.write(rig.mr.rkey, START, [2])).toBe(AccessRefusal.stagInvalid);
    expect(rig.memory[0]).toBe(1);
  });

  it('keeps the memory usable for its owner [SEC-6.3.3-01]', () => {
    invalidate(rig.mr.rkey);
    rig.send({ opcode: SQOpcode.send, wrId: 1, sges: [rig.piece(0, 4)] });
    expectOutcome(rig.sendCompletions, [1, 0]);
  });

  it('completes in error when the STag may not be revoked [RDMAP-7.2-04, RDMAP-5.3-10]', () => {
    const foreign = rig.register(rig.nic.allocPD());
    const local = rig.register(rig.pd, { access: Access.localWrite });
    const cases = [
      [0xdeadbeef, AccessRefusal.stagInvalid],
      [rig.mr.rkey ^ 1, AccessRefusal.stagInvalid],
      [foreign.rkey, AccessRefusal.stagNotAssociated],
      [local.rkey, AccessRefusal.cannotInvalidate],
    ] as const;
    for (const [stag, refusal] of cases) {
      expect(invalidate(stag >>> 0)).toBe(refusal);
      expect(rig.recvCompletions.poll()).toMatchObject([
        { wrId: 77, status: CQEStatus.remInvReqErr, flags: QueueFlag.valid },
      ]);
    }
    expect(rig.connectedQP(foreign.pd).checkReadSource(foreign.rkey, 0, MEMORY_ADDRESS, 1)).toBe(
      AccessRefusal.none,
    );
  });

  it('refuses an STag that is invalid already', () => {
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.none);
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.stagInvalid);
  });

  it('does not revoke an STag that other streams of the domain use [RDMAP-8.1.1-01, SEC-6.4.5-01]', () => {
    const other = rig.connectedQP(rig.pd);
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.cannotInvalidate);
    expect(other.checkReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS, 1)).toBe(AccessRefusal.none);
    other.close(0);
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.none);
  });

  it('does not affect a region that has windows bound', () => {
    expect(bind(rig.nic.allocMW(rig.pd, MWType.type1))).toBe(0);
    expect(invalidate(rig.mr.rkey)).toBe(AccessRefusal.cannotInvalidate);
  });
});

describe('local invalidation', () => {
  it('revokes remote access by a work request [DDP-8.3-02]', () => {
    expect(localInvalidate(rig.mr.rkey)).toBe(0);
    expect(rig.write(rig.mr.rkey, START, [1])).toBe(AccessRefusal.stagInvalid);
    // The peer may have been faster: an already invalid STag is not an error.
    expect(localInvalidate(rig.mr.rkey)).toBe(0);
  });

  it('keeps its place after a fence, and completes in order', () => {
    rig.send({ opcode: SQOpcode.read, wrId: 1, sges: [rig.piece(0, 8)] });
    rig.send({
      opcode: SQOpcode.localInv,
      wrId: 2,
      rkey: rig.mr.rkey,
      flags: QueueFlag.signalled | QueueFlag.readFence,
    });
    expect(rig.write(rig.mr.rkey, START, [1])).toBe(AccessRefusal.none);
    rig.qp.readCompleted();
    rig.qp.doorbell(0);
    expect(rig.write(rig.mr.rkey, START, [1])).toBe(AccessRefusal.stagInvalid);
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0]);
  });

  it('refuses memory of another domain and memory without remote access', () => {
    for (const pick of [
      () => rig.register(rig.nic.allocPD()),
      () => rig.register(rig.pd, { access: Access.localWrite }),
    ]) {
      rig = new NicRig();
      expect(localInvalidate(pick().rkey)).toBe(CQEStatus.mwBindErr);
    }
  });
});

describe('memory windows', () => {
  for (const type of [MWType.type1, MWType.type2]) {
    it(`opens a part of a region to peers under its own key (type ${type})`, () => {
      const mw = rig.nic.allocMW(rig.pd, type);
      const index = mw.rkey >>> 8;
      expect(mw.bound).toBe(false);
      expect(rig.write(mw.rkey, START, [1])).toBe(AccessRefusal.stagInvalid);
      expect(bind(mw, { key: 0x42, offset: 100, length: 16 })).toBe(0);
      expect(mw.rkey).toBe(((index << 8) | 0x42) >>> 0);
      expect(rig.write(mw.rkey, START + 100n, [7])).toBe(AccessRefusal.none);
      expect(rig.write(mw.rkey, START + 99n, [7])).toBe(AccessRefusal.bounds);
      expect(rig.write(mw.rkey, START + 115n, [7, 7])).toBe(AccessRefusal.bounds);
      expect(rig.write(mw.rkey ^ 1, START + 100n, [7])).toBe(AccessRefusal.stagInvalid);
      expect([...rig.memory.subarray(99, 102)]).toEqual([0, 7, 0]);
      // Its key is for peers only.
      rig.send({
        opcode: SQOpcode.send,
        wrId: 1,
        sges: [{ addr: MEMORY_ADDRESS + 100, length: 1, lkey: mw.rkey }],
      });
      expectOutcome(rig.sendCompletions, [1, CQEStatus.locProtErr]);
    });
  }

  it('grants the rights of the bind, with offsets from 0 on request', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    bind(mw, { access: Access.remoteRead | Access.zeroBased, offset: 10 });
    expect(rig.qp.checkReadSource(mw.rkey, 0, 0, 16)).toBe(AccessRefusal.none);
    expect(rig.qp.checkReadSource(mw.rkey, 0, 1, 16)).toBe(AccessRefusal.bounds);
    expect(rig.write(mw.rkey, 0n, [1])).toBe(AccessRefusal.access);
  });

  it('counts as its region does for peers', () => {
    const mr = rig.register(rig.pd, { iova: 0x5000_0000_0000 });
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    bind(mw, { lkey: mr.lkey, offset: 10 });
    expect(rig.write(mw.rkey, 0x5000_0000_000an, [3])).toBe(AccessRefusal.none);
    expect(rig.memory[10]).toBe(3);
  });

  it('rebinds a type 1 window and revokes the old key; a bind of no bytes unbinds it', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    bind(mw, { key: 1 });
    const old = mw.rkey;
    expect(bind(mw, { key: 2, offset: 32 })).toBe(0);
    expect(rig.write(old, START, [1])).toBe(AccessRefusal.stagInvalid);
    expect(rig.write(mw.rkey, START + 32n, [1])).toBe(AccessRefusal.none);
    expect(bind(mw, { key: 3, length: 0, lkey: 0 })).toBe(0);
    expect(mw.bound).toBe(false);
    expect(mw.rkey & 0xff).toBe(3);
    expect(rig.write(mw.rkey, START + 32n, [1])).toBe(AccessRefusal.stagInvalid);
  });

  it('binds a type 2 window again only after it was invalidated, by owner or peer', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type2);
    expect(bind(mw, { key: 1 })).toBe(0);
    expect(localInvalidate(mw.rkey)).toBe(0);
    expect(rig.write(mw.rkey, START, [1])).toBe(AccessRefusal.stagInvalid);
    expect(bind(mw, { key: 2 })).toBe(0);
    expect(invalidate(mw.rkey)).toBe(AccessRefusal.none);
    expect(mw.bound).toBe(false);
    expect(localInvalidate(mw.rkey)).toBe(0);
    expect(bind(mw, { key: 3 })).toBe(0);
    expect(bind(mw, { key: 4 })).toBe(CQEStatus.mwBindErr);
  });

  it('a type 2 window serves one stream only [DDP-8.2-01, DDP-8.2-03, SEC-6.1.1-01, SEC-6.1.1-03]', () => {
    const other = rig.connectedQP(rig.pd);
    const whole = rig.nic.allocMW(rig.pd, MWType.type1);
    const single = rig.nic.allocMW(rig.pd, MWType.type2);
    const access = WINDOW_ACCESS | Access.remoteAtomic;
    bind(whole, { access });
    bind(single, { access });
    expect(rig.write(whole.rkey, START, [1], other)).toBe(AccessRefusal.none);
    expect(rig.write(single.rkey, START, [1])).toBe(AccessRefusal.none);
    expect(rig.write(single.rkey, START, [2], other)).toBe(AccessRefusal.stagNotAssociated);
    expect(other.checkReadSource(single.rkey, 0, MEMORY_ADDRESS, 1)).toBe(
      AccessRefusal.stagNotAssociated,
    );
    expect(rig.memory[0]).toBe(1);
    // Only a window of one stream can be invalidated while the domain has several streams.
    expect(invalidate(whole.rkey)).toBe(AccessRefusal.cannotInvalidate);
    expect(invalidate(single.rkey)).toBe(AccessRefusal.none);
  });

  it('another stream cannot invalidate a type 2 window, nor its own QP [RDMAP-4.8-20]', () => {
    const other = rig.connectedQP(rig.pd);
    const producer = new SendProducer(other);
    const mw = rig.nic.allocMW(rig.pd, MWType.type2);
    producer.post({
      opcode: SQOpcode.bindMW,
      rkey: mw.rkey,
      raddr: START,
      bind: { key: 9, access: WINDOW_ACCESS, lkey: rig.mr.lkey, length: 16n },
    });
    other.doorbell(0);
    expect(mw.bound).toBe(true);
    expect(invalidate(mw.rkey)).toBe(AccessRefusal.stagNotAssociated);
    expect(mw.bound).toBe(true);
    expect(localInvalidate(mw.rkey)).toBe(CQEStatus.mwBindErr);
  });

  it('ends with the QP that a type 2 window was bound to', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type2);
    bind(mw);
    rig.qp.close(0);
    expect(mw.bound).toBe(false);
    rig.mr.close();
  });

  it('keeps its region registered while it is bound', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    bind(mw);
    expect(() => rig.mr.close()).toThrow(expect.objectContaining({ code: 'EBUSY' }));
    mw.close();
    mw.close();
    rig.mr.close();
  });

  const refused: [string, (rig: NicRig) => Parameters<typeof bind>[1], MWType?][] = [
    [
      'a region without the bind right',
      (rig) => ({ lkey: rig.register(rig.pd, { access: ALL_ACCESS & ~Access.mwBind }).lkey }),
    ],
    ['a region that does not exist', () => ({ lkey: 0x1234 })],
    ['a region of another domain', (rig) => ({ lkey: rig.register(rig.nic.allocPD()).lkey })],
    ['a range beyond the region', () => ({ offset: 4090, length: 7 })],
    ['2^63 bytes', () => ({ length: 2 ** 63 })],
    ['local rights', () => ({ access: Access.localWrite })],
    ['unknown rights', () => ({ access: 0x8000_0000 })],
    [
      'remote write if the owner may only read',
      (rig) => ({ lkey: rig.register(rig.pd, { access: Access.mwBind }).lkey }),
    ],
    ['no bytes for a type 2 window', () => ({ length: 0 }), MWType.type2],
  ];
  for (const [what, fields, type] of refused) {
    it(`refuses to bind ${what}, and the window stays as it was`, () => {
      const mw = rig.nic.allocMW(rig.pd, type ?? MWType.type1);
      const before = mw.rkey;
      expect(bind(mw, fields(rig))).toBe(CQEStatus.mwBindErr);
      expect(mw.bound).toBe(false);
      expect(mw.rkey).toBe(before);
    });
  }

  it('a QP cannot bind or free objects of another domain [SEC-6.1.1-02]', () => {
    const mw = rig.nic.allocMW(rig.nic.allocPD(), MWType.type1);
    expect(bind(mw)).toBe(CQEStatus.mwBindErr);
  });

  it('limits the local work of one turn, and requests another', () => {
    const rig = new NicRig({ sqCount: 4 });
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    const again = (): void =>
      rig.sends.post({
        opcode: SQOpcode.bindMW,
        rkey: mw.rkey,
        raddr: START,
        flags: 0,
        bind: { key: 1, access: Access.remoteAtomic, lkey: region.lkey, length: 16n },
      });
    // A client that posts the next bind while the device works on this one.
    const backing = new WatchedBacking(rig.memory);
    const region = rig.register(rig.pd, { backing });
    backing.onAsked = again;
    again();
    rig.qp.doorbell(0);
    expect(rig.nic.counters.binds).toBe(4);
    expect(rig.effects()).toEqual([{ type: 'resume', qp: rig.qp }]);
    rig.qp.doorbell(0);
    expect(rig.nic.counters.binds).toBe(8);
  });
});
