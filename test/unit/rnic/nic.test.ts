import { describe, expect, it } from 'vitest';
import { cqBytes, rqBytes, sqBytes } from '#contract/protocol/queue-layout';
import { MWType, QPState } from '#contract/verbs/enums';
import { DEFAULT_PROFILE, deviceProfile } from '#daemon/rnic/device-profile';
import { Nic } from '#daemon/rnic/nic';
import type { QPInit } from '#daemon/rnic/queue-pair-init';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { NicRig } from '#test/support/nic-rig';

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
const code = (name: string): unknown => expect.objectContaining({ code: name });

const CAPABILITIES = {
  maxSendWr: 10,
  maxRecvWr: 5,
  maxSendSge: 2,
  maxRecvSge: 3,
  maxInlineData: 32,
};

function qpInit(nic: Nic, fields: Partial<QPInit> = {}): QPInit {
  const cq = nic.createCQ({ cqe: 4, ring, tag: undefined });
  return {
    sendCQ: cq,
    recvCQ: cq,
    srq: undefined,
    capabilities: CAPABILITIES,
    sqSigAll: false,
    ring,
    tag: undefined,
    ...fields,
  };
}

describe('limits', () => {
  it('reports the profile; the ring layout caps the values it fixes', () => {
    const profile = { maxQp: 3, maxSge: 99, maxSgeRd: 9, maxInline: 4096, irdMax: 7, ordMax: 8 };
    const nic = new Nic({ name: 'n', seed: 1, profile });
    expect(nic.queryDevice()).toMatchObject({
      maxQp: 3,
      maxSge: 6,
      maxSgeRd: 1,
      maxInline: 80,
      maxQpRdAtom: 7,
      maxQpInitRdAtom: 8,
      maxCq: DEFAULT_PROFILE.maxCq,
    });
    expect(deviceProfile({ maxSge: 2 }).maxSge).toBe(2);
  });

  it('offers both atomics, and reports them [RDMAPX-1.1-01]', () => {
    expect(new Nic({ name: 'n', seed: 1 }).queryDevice()).toMatchObject({
      atomics: true,
      immediateData: true,
    });
  });

  it('fails with ENOMEM one past each limit, and frees the slot when an object closes', () => {
    const profile = { maxPd: 1, maxMr: 1, maxMw: 1, maxCq: 1, maxSrq: 1, maxQp: 1 };
    const nic = new Nic({ name: 'n', seed: 1, profile });
    const pd = nic.allocPD();
    expect(() => nic.allocPD()).toThrow(code('ENOMEM'));
    const init = qpInit(nic);
    expect(() => qpInit(nic)).toThrow(code('ENOMEM'));
    const makers = [
      () => nic.allocMW(pd, MWType.type2),
      () => nic.createSRQ(pd, { maxWr: 1, maxSge: 1, srqLimit: 0, ring, tag: undefined }),
      () => nic.createQP(pd, init),
    ];
    for (const make of makers) {
      const first = make();
      expect(make).toThrow(code('ENOMEM'));
      first.close(0);
      make().close(0);
    }
  });

  it('refuses sizes at their edge and one past it', () => {
    const nic = new Nic({ name: 'n', seed: 1, profile: { maxQpWr: 64, maxCqe: 16, maxSrqWr: 8 } });
    const pd = nic.allocPD();
    for (const cqe of [0, 17, 1.5, Number.NaN]) {
      expect(() => nic.createCQ({ cqe, ring, tag: 0 })).toThrow(code('EINVAL'));
    }
    expect(nic.createCQ({ cqe: 16, ring, tag: 0 }).count).toBe(16);
    for (const fields of [
      { maxWr: 0, maxSge: 1, srqLimit: 0 },
      { maxWr: 9, maxSge: 1, srqLimit: 0 },
      { maxWr: 8, maxSge: 7, srqLimit: 0 },
      { maxWr: 8, maxSge: 1, srqLimit: 9 },
    ]) {
      expect(() => nic.createSRQ(pd, { ...fields, ring, tag: 0 })).toThrow(code('EINVAL'));
    }
    for (const fields of [
      { maxSendWr: 0 },
      { maxSendWr: 65 },
      { maxRecvWr: 65 },
      { maxRecvWr: -1 },
      { maxSendSge: 7 },
      { maxRecvSge: 7 },
      { maxInlineData: 81 },
    ]) {
      const init = qpInit(nic, { capabilities: { ...CAPABILITIES, ...fields } });
      expect(() => nic.createQP(pd, init)).toThrow(code('EINVAL'));
    }
    expect(() => nic.allocMW(pd, 3 as MWType)).toThrow(code('EINVAL'));
  });

  it('ignores the sizes of a receive queue that the queue pair does not have', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const pd = nic.allocPD();
    const srq = nic.createSRQ(pd, { maxWr: 1, maxSge: 1, srqLimit: 0, ring, tag: 0 });
    for (const size of [-1, 0.5, Number.NaN, 2 ** 32 - 1]) {
      const capabilities = { ...CAPABILITIES, maxRecvWr: size, maxRecvSge: size };
      const qp = nic.createQP(pd, qpInit(nic, { srq, capabilities }));
      expect(qp.capabilities).toEqual({ ...CAPABILITIES, maxRecvWr: 0, maxRecvSge: 0 });
      expect(() => nic.createQP(pd, qpInit(nic, { capabilities }))).toThrow(code('EINVAL'));
    }
  });

  it('refuses closed queues', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const pd = nic.allocPD();
    const init = qpInit(nic);
    init.sendCQ.close();
    expect(() => nic.createQP(pd, init)).toThrow(code('EINVAL'));
    const srq = nic.createSRQ(pd, { maxWr: 1, maxSge: 1, srqLimit: 0, ring, tag: 0 });
    srq.close();
    expect(() => nic.createQP(pd, qpInit(nic, { srq }))).toThrow(code('EINVAL'));
  });
});

describe('rings', () => {
  it('requests the sizes of the layout: powers of two, the RQ after the SQ', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const asked: number[] = [];
    const source = (bytes: number): Uint8Array => {
      asked.push(bytes);
      return new Uint8Array(bytes);
    };
    expect(nic.createCQ({ cqe: 5, ring: source, tag: 0 }).count).toBe(8);
    const pd = nic.allocPD();
    const qp = nic.createQP(pd, qpInit(nic, { ring: source }));
    expect([qp.sqCount, qp.rqOffset, qp.rqCount]).toEqual([16, sqBytes(16), 8]);
    const srq = nic.createSRQ(pd, { maxWr: 3, maxSge: 1, srqLimit: 0, ring: source, tag: 0 });
    const sharing = nic.createQP(pd, qpInit(nic, { srq, ring: source }));
    expect([srq.count, sharing.rqCount]).toEqual([4, 0]);
    expect(asked).toEqual([cqBytes(8), sqBytes(16) + rqBytes(8), rqBytes(4), sqBytes(16)]);
  });

  it('of destroyed queues are not touched any more', () => {
    const rig = new NicRig();
    const { qp, nic } = rig;
    const srq = nic.createSRQ(rig.pd, { maxWr: 4, maxSge: 1, srqLimit: 0, ring, tag: 0 });
    const rings = [qp.ring, rig.sendCQ.ring, rig.recvCQ.ring, srq.ring];
    qp.close(0);
    srq.close();
    rig.sendCQ.close();
    rig.recvCQ.close();
    for (const bytes of rings) bytes.fill(0xff);
    qp.doorbell(0);
    qp.flushPosted(0);
    qp.memoryReady();
    expect(qp.beginReceive()).not.toBe(AccessRefusal.none);
    expect([srq.elements.ready(), srq.elements.readyCount()]).toEqual([false, 0]);
    expect(rings.every((bytes) => bytes.every((byte) => byte === 0xff))).toBe(true);
  });

  it('requests the RQ separately if configured, and none with a shared queue', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const asked: [string, number][] = [];
    const source = (name: string) => (bytes: number) => {
      asked.push([name, bytes]);
      return new Uint8Array(bytes);
    };
    const apart = { ring: source('send'), receiveRing: source('receive') };
    const pd = nic.allocPD();
    const cq = nic.createCQ({ cqe: 8, ring, tag: 0 });
    expect(nic.createQP(pd, qpInit(nic, { ...apart, recvCQ: cq })).rqOffset).toBe(0);
    const srq = nic.createSRQ(pd, { maxWr: 3, maxSge: 1, srqLimit: 0, ring, tag: 0 });
    nic.createQP(pd, qpInit(nic, { ...apart, srq }));
    expect(asked).toEqual([
      ['send', sqBytes(16)],
      ['receive', rqBytes(8)],
      ['send', sqBytes(16)],
    ]);
  });

  it('reads receives from the RQ’s own memory', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const cq = nic.createCQ({ cqe: 8, ring, tag: 0 });
    let receives = new Uint8Array(0);
    const receiveRing = (bytes: number): Uint8Array => {
      receives = new Uint8Array(bytes);
      return receives;
    };
    const qp = nic.createQP(nic.allocPD(), qpInit(nic, { receiveRing, recvCQ: cq }));
    receives[8] = 1;
    qp.modify(QPState.ERR, 0);
    expect(receives[8]).toBe(0);
    expect(cq.written).toBe(1);
  });

  it('reports every state that a queue pair enters', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const states: QPState[] = [];
    const onState = (state: QPState): void => void states.push(state);
    const qp = nic.createQP(nic.allocPD(), qpInit(nic, { onState }));
    qp.modify(QPState.INIT, 0);
    qp.close(0);
    expect(states).toEqual([QPState.INIT, QPState.ERR]);
  });

  it('keeps equal capabilities once, and not those of another', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const pd = nic.allocPD();
    const made = (maxInlineData: number) =>
      nic.createQP(pd, qpInit(nic, { capabilities: { ...CAPABILITIES, maxInlineData } }));
    const [first, second, other, again] = [made(32), made(32), made(16), made(32)];
    expect(second.capabilities).toBe(first.capabilities);
    expect(other.capabilities).toEqual({ ...CAPABILITIES, maxInlineData: 16 });
    expect(again.capabilities).toEqual(first.capabilities);
  });

  it('has room for one receive when none was requested', () => {
    const nic = new Nic({ name: 'n', seed: 1 });
    const init = qpInit(nic, { capabilities: { ...CAPABILITIES, maxRecvWr: 0 } });
    expect(nic.createQP(nic.allocPD(), init).rqCount).toBe(1);
  });

  it('refuses memory that is too small or not aligned, and keeps nothing', () => {
    const nic = new Nic({ name: 'n', seed: 1, profile: { maxCq: 1 } });
    const small = (bytes: number): Uint8Array => new Uint8Array(bytes - 1);
    const odd = (bytes: number): Uint8Array => new Uint8Array(new ArrayBuffer(bytes + 4), 4);
    const none = (): Uint8Array => {
      throw new RangeError('no memory');
    };
    expect(() => nic.createCQ({ cqe: 1, ring: small, tag: 0 })).toThrow(code('EINVAL'));
    expect(() => nic.createCQ({ cqe: 1, ring: odd, tag: 0 })).toThrow(code('EINVAL'));
    expect(() => nic.createCQ({ cqe: 1, ring: none, tag: 0 })).toThrow(RangeError);
    nic.createCQ({ cqe: 1, ring, tag: 0 });
  });
});

describe('numbers', () => {
  it('numbers queue pairs from 1, and reuses none in use', () => {
    const rig = new NicRig();
    expect(rig.qp.qpn).toBe(1);
    rig.createQP(rig.pd).close(0);
    expect(rig.createQP(rig.pd).qpn).toBe(3);
    expect(rig.nic.findQP(3)?.qpn).toBe(3);
  });

  it('draws STags from all 32 bits, none twice, none that repeats by seed [RDMAP-8.1.1-02]', () => {
    const stags = (seed: number): number[] => {
      const nic = new Nic({ name: 'n', seed });
      const pd = nic.allocPD();
      return Array.from({ length: 10_000 }, () => nic.allocMW(pd, MWType.type1).rkey);
    };
    const first = stags(1);
    expect(new Set(first.map((stag) => stag >>> 8)).size).toBe(10_000);
    for (let bit = 0; bit < 32; bit += 1) {
      const ones = first.filter((stag) => ((stag >>> bit) & 1) === 1).length;
      expect(ones).toBeGreaterThan(4_000);
      expect(ones).toBeLessThan(6_000);
    }
    expect(first).not.toEqual(stags(2));
    expect(first).toEqual(stags(1));
  });

  it('does not reuse an STag immediately [SEC-6.1.1-05]', () => {
    const rig = new NicRig();
    const given: number[] = [];
    for (let round = 0; round < 20_000; round += 1) {
      const mr = rig.register(rig.pd);
      given.push(mr.stag >>> 8);
      mr.close();
    }
    const lastUse = new Map<number, number>();
    given.forEach((index, round) => {
      const before = lastUse.get(index);
      if (before !== undefined) expect(round - before).toBeGreaterThan(1000);
      lastUse.set(index, round);
    });
  });

  it('never returns index 0 nor the number that siw treats as an error', () => {
    const draws = [0, 0x900 << 8, 0x90042, 0x7700];
    const nic = new Nic({ name: 'n', seed: 1, random: () => draws.shift() ?? 0x123400 });
    expect(nic.allocMW(nic.allocPD(), MWType.type1).rkey >>> 8).toBe(0x77);
  });
});
