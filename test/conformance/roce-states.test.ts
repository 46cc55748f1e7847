/** States of queue pairs on RoCE devices: real hosts, on simulated time. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import { datagramEnd } from '../support/datagram-end.ts';
import { IndexRingClient } from '../support/index-ring-client.ts';
import { MASKS, mappedGid, modify, PEER } from '../support/program-steps.ts';
import { queueSizes } from '../support/queue-sizes.ts';
import { RoceWorld } from '../support/roce-host.ts';

const { RESET, INIT, RTR, RTS, SQD, SQE, ERR } = QPState;
const TYPES = [QPType.rc, QPType.uc, QPType.ud];
const A = QPAttribute;
const BITS = Array.from({ length: 21 }, (_, index) => 1 << index);
const { success, wrFlushErr } = CQEStatus;
/** The address vector of the other device. */
const THERE = { ...PEER, dgid: mappedGid(127, 0, 0, 3) };
const STEPS = [INIT, RTR, RTS] as const;

/** Queue pairs of one device, without their own memory. */
class States {
  readonly world = new RoceWorld();
  readonly #nic = this.world.device(0).nic;
  readonly #pd = this.#nic.allocPD();

  qp(type: QPType, state: QPState): QP {
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    const cq = this.#nic.createCQ({ cqe: 16, ring, tag: undefined });
    const qp = this.#nic.createQP(this.#pd, {
      ...{ type, sendCQ: cq, recvCQ: cq, srq: undefined },
      ...{ capabilities: queueSizes(4, 4, 1, 0), sqSigAll: false, ring, tag: undefined },
    });
    if (state === ERR) {
      this.change(qp, INIT, MASKS[type][0]);
      this.change(qp, ERR);
      return qp;
    }
    for (const [index, step] of STEPS.entries()) {
      if (state === RESET || (state !== SQD && step > state)) break;
      this.change(qp, step, MASKS[type][index] ?? 0);
    }
    if (state === SQD) this.change(qp, SQD);
    expect(qp.state).toBe(state);
    return qp;
  }

  change(
    qp: QP,
    state: QPState,
    mask: number = A.state,
    values: Partial<QPModification> = {},
  ): void {
    modify(qp, state, mask, { ahAttr: THERE, ...values });
    this.world.host.drain();
  }

  /** The error of a change, or '0'. */
  code(...change: Parameters<States['change']>): string {
    try {
      this.change(...change);
      return '0';
    } catch (error) {
      return String(Reflect.get(Object(error), 'code'));
    }
  }

  /** Bits that may be added to `mask`, found by trying each. */
  optional(type: QPType, from: QPState, to: QPState, mask: number): number {
    let bits = 0;
    for (const bit of BITS.filter((each) => (mask & each) === 0)) {
      const code = this.code(this.qp(type, from), to, mask | bit);
      expect(['0', 'EINVAL']).toContain(code);
      if (code === '0') bits |= bit;
    }
    return bits;
  }

  /** Bits that must be in `mask`, found by leaving out each. */
  required(type: QPType, from: QPState, to: QPState, mask: number): number {
    let bits = A.state;
    for (const bit of BITS.filter((each) => (mask & each) !== 0 && each !== A.state)) {
      if (this.code(this.qp(type, from), to, mask & ~bit) === 'EINVAL') bits |= bit;
    }
    return bits;
  }
}

const { accessFlags, pkeyIndex, qkey, curState, minRnrTimer, pathMigState } = A;

describe('attributes of a transition', () => {
  const CONNECTION = A.ahAttr | A.pathMtu | A.rqPsn | A.destQpNum;
  const RTS_RC = A.timeout | A.retryCnt | A.rnrRetry | A.maxRdAtomic | A.sqPsn;
  const OWN = accessFlags | pkeyIndex;
  it.each<[string, QPType, QPState, QPState, number, number]>([
    ['RC to INIT [IBV-ATTR-01]', QPType.rc, RESET, INIT, OWN | A.portNum, 0],
    ['UC to INIT [IBV-ATTR-01]', QPType.uc, RESET, INIT, OWN | A.portNum, 0],
    ['UD to INIT [IBV-ATTR-02]', QPType.ud, RESET, INIT, pkeyIndex | A.portNum | qkey, 0],
    [
      'RC to RTR [IBV-ATTR-03]',
      ...([QPType.rc, INIT, RTR] as const),
      CONNECTION | minRnrTimer | A.maxDestRdAtomic,
      OWN,
    ],
    ['UC to RTR [IBV-ATTR-04]', QPType.uc, INIT, RTR, CONNECTION, OWN],
    ['UD to RTR [IBV-ATTR-05]', QPType.ud, INIT, RTR, 0, pkeyIndex | qkey],
    [
      'RC to RTS [IBV-ATTR-06]',
      ...([QPType.rc, RTR, RTS] as const),
      RTS_RC,
      curState | accessFlags | minRnrTimer | pathMigState,
    ],
    [
      'UC to RTS [IBV-ATTR-07]',
      ...([QPType.uc, RTR, RTS] as const),
      A.sqPsn,
      curState | accessFlags | pathMigState,
    ],
    ['UD to RTS [IBV-ATTR-08]', QPType.ud, RTR, RTS, A.sqPsn, curState | qkey],
  ])('%s: required ones, permitted ones, no others', (_, type, from, to, must, may) => {
    const states = new States();
    const mask = must | A.state;
    expect(states.required(type, from, to, mask)).toBe(mask);
    expect(states.optional(type, from, to, mask)).toBe(may);
  });

  const SQD_RC = OWN | A.portNum | A.ahAttr | A.timeout | A.retryCnt | A.rnrRetry | A.maxRdAtomic;
  it.each<[string, QPType, QPState, number]>([
    ['RC in RTS', QPType.rc, RTS, curState | accessFlags | minRnrTimer | pathMigState],
    ['UC in RTS', QPType.uc, RTS, curState | accessFlags | pathMigState],
    ['UD in RTS', QPType.ud, RTS, curState | qkey],
    ['RC in SQD', QPType.rc, SQD, SQD_RC | minRnrTimer | A.maxDestRdAtomic | pathMigState],
    ['UC in SQD', QPType.uc, SQD, OWN | pathMigState],
    ['UD in SQD', QPType.ud, SQD, pkeyIndex | qkey],
  ])('%s: optional bits, with and without the state [IBV-ATTR-09]', (_, type, state, may) => {
    const states = new States();
    expect(states.optional(type, state, state, A.state)).toBe(may);
    expect(states.optional(type, state, state, 0) & ~A.state).toBe(may);
  });

  it.each([
    [INIT, { portNum: 2 }, 'EINVAL'],
    [RTR, { pathMtu: 0 }, 'EINVAL'],
    [RTR, { pathMtu: 6 }, 'EINVAL'],
    [RTR, { ahAttr: { ...THERE, isGlobal: false } }, 'EINVAL'],
    [RTR, { ahAttr: { ...THERE, sgidIndex: 9 } }, 'ENODATA'],
    [RTS, { timeout: 32 }, 'EINVAL'],
    [RTS, { maxRdAtomic: 129 }, 'EINVAL'],
    [RTS, { retryCnt: 255 }, '0'],
  ] as const)(
    'to state %i with %o: %s, and a refusal changes nothing [IBV-ATTR-11, IBV-ATTR-12, IBV-ATTR-13, IBV-QP-07, ROCE-GRH-04]',
    (state, values, expected) => {
      const states = new States();
      const qp = states.qp(QPType.rc, (state - 1) as QPState);
      const before = qp.queryPath();
      const mask = MASKS[QPType.rc][state - 1];
      expect(states.code(qp, state, mask, values)).toBe(expected);
      if (expected !== '0') expect(qp.queryPath()).toEqual(before);
    },
  );

  it('of a current state must be the true one [IBV-ATTR-14]', () => {
    const states = new States();
    const qp = states.qp(QPType.rc, RTR);
    const mask = MASKS[QPType.rc][2] | curState;
    expect(states.code(qp, RTS, mask, { curState: INIT })).toBe('EINVAL');
    expect(states.code(qp, RTS, mask, { curState: RTR })).toBe('0');
  });

  it('are shown by a query: PSNs of 24 bits, depths as powers of two [IBV-ATTR-15, IBV-ATTR-16]', () => {
    const states = new States();
    const qp = states.qp(QPType.rc, INIT);
    states.change(qp, RTR, MASKS[QPType.rc][1], { rqPsn: 0xff12_3456, maxDestRdAtomic: 5 });
    states.change(qp, RTS, MASKS[QPType.rc][2], { sqPsn: 0xffff_ffff, maxRdAtomic: 3 });
    expect(qp.queryPath()).toMatchObject({
      state: RTS,
      rqPsn: 0x12_3456,
      sqPsn: 0xff_ffff,
      maxDestRdAtomic: 8,
      maxRdAtomic: 4,
    });
  });
});

describe('states', () => {
  const STATES = [RESET, INIT, RTR, RTS, SQD, SQE, ERR];
  it.each<[string, QPState, QPState[]]>([
    ['RESET leads to INIT alone [IBV-QP-01]', RESET, [RESET, INIT]],
    ['INIT leads to RTR, and to itself [IBV-QP-02]', INIT, [RESET, INIT, RTR, ERR]],
    ['RTR leads to RTS [IBV-QP-03]', RTR, [RESET, RTS, ERR]],
    ['RTS leads to SQD [IBV-QP-04]', RTS, [RESET, RTS, SQD, ERR]],
    ['SQD leads back to RTS [IBV-QP-05]', SQD, [RESET, RTS, SQD, ERR]],
    ['ERR leads to RESET alone [IBV-QP-06]', ERR, [RESET, ERR]],
  ])('%s, and all but RESET to ERR [IBV-QP-08, IBV-QP-09]', (_, from, legal) => {
    const states = new States();
    for (const type of TYPES) {
      const [init, rtr, rts] = MASKS[type];
      const masks = new Map<QPState, number>([
        [INIT, init],
        [RTR, rtr],
        [RTS, from === RTR ? rts : A.state],
      ]);
      for (const to of STATES) {
        const qp = states.qp(type, from);
        const code = states.code(qp, to, masks.get(to));
        expect([type, to, code]).toEqual([type, to, legal.includes(to) ? '0' : 'EINVAL']);
        expect(qp.state).toBe(code === '0' ? to : from);
      }
    }
  });

  it('begin with RESET, under a number of 24 bits that InfiniBand does not reserve [IBV-QP-10, IBV-QP-11]', () => {
    const states = new States();
    const qps = Array.from({ length: 8 }, () => states.qp(QPType.rc, RESET));
    expect(new Set(qps.map(({ state }) => state))).toEqual(new Set([RESET]));
    const numbers = qps.map(({ qpn }) => qpn);
    expect(new Set(numbers).size).toBe(8);
    expect(Math.min(...numbers)).toBeGreaterThan(1);
    expect(Math.max(...numbers)).toBeLessThan(0xff_ffff);
  });
});

describe('a queue pair', () => {
  const RETRIES = { timeout: 8, retryCnt: 1, rnrRetry: 7 };

  it('in ERR flushes its sends in order, then its receives, and work that is posted later [IBV-ERR-03, IBV-ERR-04, IBV-ERR-05, IBV-ERR-06]', () => {
    const world = new RoceWorld();
    const [a] = world.pair(QPType.rc, RETRIES);
    a.receives.post(7, [a.piece(0, 10)]);
    a.receives.post(8, [a.piece(0, 10)]);
    // The peer has no receive, so all of these are waiting or in flight. One is not signalled.
    a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
    a.sends.post({ opcode: SQOpcode.send, wrId: 2, flags: 0, sges: [a.piece(0, 10)] });
    a.sends.post({ opcode: SQOpcode.send, wrId: 3, sges: [a.piece(0, 10)] });
    a.ring();
    a.modify(ERR, A.state);
    expect(a.completions.outcome()).toEqual([1, 2, 3, 7, 8].map((wrId) => [wrId, wrFlushErr]));
    a.receives.post(9, [a.piece(0, 10)]);
    a.sends.post({ opcode: SQOpcode.send, wrId: 4, sges: [] });
    a.ring();
    world.run(1_000_000);
    expect(a.completions.outcome().sort()).toEqual([
      [4, wrFlushErr],
      [9, wrFlushErr],
    ]);
  });

  it('in ERR or destroyed receives no packet: its peer gives up [IBV-QP-12, IBV-QP-13]', () => {
    for (const end of ['ERR', 'destroyed']) {
      const world = new RoceWorld();
      const [a, b] = world.pair(QPType.rc, RETRIES);
      b.receives.post(7, [b.piece(0, 10)]);
      if (end === 'ERR') b.modify(ERR, A.state);
      else {
        b.qp.close(world.host.now());
        world.host.drain();
      }
      // A destroyed queue pair has no completions.
      const flushed = end === 'ERR' ? [[7, wrFlushErr]] : [];
      expect(b.completions.outcome()).toEqual(flushed);
      a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
      a.ring();
      world.run(1_000_000);
      expect(a.completions.outcome()).toEqual([[1, CQEStatus.retryExcErr]]);
      expect(a.qp.state).toBe(ERR);
    }
  });

  it('in RESET has forgotten its work, without completions, and can be connected again [IBV-QP-14, IBV-QP-15]', () => {
    const world = new RoceWorld();
    const [a, b] = world.pair(QPType.rc, RETRIES);
    a.receives.post(7, [a.piece(0, 10)]);
    a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
    a.ring();
    for (const end of [a, b]) end.modify(RESET, A.state);
    expect(a.completions.outcome()).toEqual([]);
    expect(a.qp.queryPath()).toMatchObject({ state: RESET, accessFlags: 0, destQpNum: 0 });
    a.connect(b);
    b.connect(a);
    b.memory.fill(5, 0, 4);
    const target = { raddr: a.address(64), rkey: a.mr.rkey };
    b.sends.post({ opcode: SQOpcode.write, wrId: 2, sges: [b.piece(0, 4)], ...target });
    b.ring();
    b.receives.post(8, [b.piece(0, 10)]);
    world.run(1_000_000);
    // The new Write, and no earlier Send.
    expect(b.completions.outcome()).toEqual([[2, success]]);
    expect([...a.memory.subarray(64, 68)]).toEqual([5, 5, 5, 5]);
  });

  it('sends the requests posted before RTS once it is in RTS [IBV-QP-16]', () => {
    const world = new RoceWorld();
    const [a, b] = [world.end(0), world.end(1)];
    a.connect(b, {}, RTR);
    b.connect(a);
    b.receives.post(7, [b.piece(0, 10)]);
    a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
    a.ring();
    world.run(1_000_000);
    expect(b.completions.outcome()).toEqual([]);
    a.modify(RTS, MASKS[QPType.rc][2], { sqPsn: 0xff_fffe });
    world.run();
    expect(a.completions.outcome()).toEqual([[1, success]]);
    expect(b.completions.outcome()).toEqual([[7, success]]);
  });

  it('in SQD drains until the started requests are done, and reports that once [IBV-QP-17, IBV-QP-18]', () => {
    const world = new RoceWorld();
    const [a, b] = world.pair(QPType.rc, { timeout: 14, retryCnt: 7, rnrRetry: 7 });
    const events: AsyncEventType[] = [];
    world.host.onAsync = (_device, { event }) => events.push(event);
    a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
    a.ring();
    world.run();
    a.modify(SQD, A.state);
    expect([a.qp.queryPath().draining, events]).toEqual([true, []]);
    expect(() => a.modify(RTS, A.state)).toThrow('draining');
    b.receives.post(7, [b.piece(0, 10)]);
    world.run(1_000_000);
    expect(a.completions.outcome()).toEqual([[1, success]]);
    expect([a.qp.queryPath().draining, events]).toEqual([false, [AsyncEventType.sqDrained]]);
    a.modify(RTS, A.state);
  });

  it('uses the receives posted in INIT from RTR on [IBV-QP-19]', () => {
    const world = new RoceWorld();
    const [a, b] = [world.end(0), world.end(1)];
    b.modify(INIT, MASKS[QPType.rc][0]);
    b.receives.post(7, [b.piece(0, 10)]);
    b.connect(a, {}, RTR);
    a.connect(b);
    a.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [a.piece(0, 10)] });
    a.ring();
    world.run();
    expect(b.completions.outcome()).toEqual([[7, success]]);
  });

  it('has all retries again after each progress [ROCE-RTY-05]', () => {
    const world = new RoceWorld();
    const [a, b] = world.pair(QPType.rc, { timeout: 14, retryCnt: 1 });
    // Of each message but the first, the first packet is lost.
    world.host.faults.add({ kind: 'drop', opcode: 'send', every: 2 }, undefined);
    for (let wrId = 1; wrId <= 4; wrId += 1) {
      b.receives.post(wrId, [b.piece(0, 10)]);
      a.sends.post({ opcode: SQOpcode.send, wrId, sges: [a.piece(0, 10)] });
      a.ring();
      world.run(1_000_000);
      expect(a.completions.outcome()).toEqual([[wrId, success]]);
    }
    expect(world.device(0).rocePort?.counters.timeouts).toBe(3);
  });

  it('refused for a work request fails with that status, without an event [IBV-WC-10, IBV-AE-06]', () => {
    const world = new RoceWorld();
    const [a] = world.pair();
    const events: AsyncEventType[] = [];
    world.host.onAsync = (_device, { event }) => events.push(event);
    const sges = [{ ...a.piece(0, 4), lkey: 0x999 }];
    a.sends.post({ opcode: SQOpcode.send, wrId: 4, flags: QueueFlag.signalled, sges });
    a.ring();
    world.run();
    expect(a.completions.outcome()).toEqual([[4, CQEStatus.locProtErr]]);
    expect([a.qp.state, events]).toEqual([ERR, []]);
  });
});

describe('a completion queue', () => {
  it('that is resized keeps its completions, in their order [IBV-CQ-07]', () => {
    const world = new RoceWorld();
    const { nic, pd, qp, sends, piece } = datagramEnd(world.device(0), () => world.host.drain());
    const handle = nic.createAH(pd, THERE);
    const [SEND, SIGNALED] = [2, 2];
    for (const wrId of [1, 2, 3]) {
      sends.send(wrId, SEND, SIGNALED, [piece(4)], { 24: 0x123, 28: 1, 36: handle.number });
    }
    world.host.doorbell(qp);
    world.run();
    qp.sendCQ.resize(63, (bytes) => new Uint8Array(bytes));
    expect(new IndexRingClient(qp.sendCQ.ring).outcome()).toEqual([
      [1, 0],
      [2, 0],
      [3, 0],
    ]);
  });
});
