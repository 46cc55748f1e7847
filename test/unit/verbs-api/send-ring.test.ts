import { describe, expect, it } from 'vitest';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { SendFields } from '#contract/verbs/work-request';
import { SendRing } from '#verbs-api/client/send-ring';

const ELEMENT = 120;
const VALID = 1;

function makeRing(count: number, limits: { maxSge?: number; maxInline?: number } = {}) {
  // Reused queue memory is dirty; only the flags of a free element are 0.
  const memory = new Uint8Array(count * ELEMENT).fill(0xa5);
  const view = new DataView(memory.buffer);
  for (let index = 0; index < count; index += 1) view.setUint32(index * ELEMENT + 8, 0, true);
  const ring = new SendRing(memory, {
    count,
    maxSge: limits.maxSge ?? 6,
    maxInline: limits.maxInline ?? 80,
    sqSigAll: false,
  });
  return {
    ring,
    memory,
    view,
    consume: (index: number) => view.setUint16(index * ELEMENT + 8, 0, true),
  };
}

const SEND: SendFields = { opcode: WROpcode.send };

describe('SendRing: elements', () => {
  it('writes a Send with flags and scatter/gather elements where siw expects them', () => {
    const { ring, view } = makeRing(4);
    const refused = ring.post({
      wrId: 0x1122334455667788n,
      opcode: WROpcode.send,
      flags: SendFlag.signaled | SendFlag.solicited | SendFlag.fence,
      sgList: [
        { addr: 0x7fff_1234_5678, length: 100, lkey: 0xaabbccdd },
        { addr: 0xffff_ffff_ffff_fff0n, length: 8, lkey: 7 },
      ],
    });
    expect(refused).toBeUndefined();
    expect(view.getBigUint64(0, true)).toBe(0x1122334455667788n);
    expect(view.getUint16(8, true)).toBe(VALID | 4 | 8 | 16);
    expect(view.getUint8(10)).toBe(2);
    expect(view.getUint8(11)).toBe(3);
    expect(view.getBigUint64(24, true)).toBe(0x7fff_1234_5678n);
    expect(view.getUint32(32, true)).toBe(100);
    expect(view.getUint32(36, true)).toBe(0xaabbccdd);
    expect(view.getBigUint64(40, true)).toBe(0xffff_ffff_ffff_fff0n);
    expect(view.getUint32(48, true)).toBe(8);
    expect(view.getUint32(52, true)).toBe(7);
  });

  it.each([
    ['rdmaWrite', { opcode: WROpcode.rdmaWrite }, 0],
    ['rdmaRead', { opcode: WROpcode.rdmaRead }, 1],
  ] as const)('writes the remote address and key of %s', (_name, wr, opcode) => {
    const { ring, view } = makeRing(2);
    ring.post({ ...wr, remoteAddr: 0xfedc_ba98_7654_3210n, rkey: 0x8000_0001 });
    expect(view.getUint8(11)).toBe(opcode);
    expect(view.getUint32(12, true)).toBe(0x8000_0001);
    expect(view.getBigUint64(16, true)).toBe(0xfedc_ba98_7654_3210n);
  });

  it('writes inline payload into the element and its length into the first SGE', () => {
    const { ring, view, memory } = makeRing(2);
    const inlineData = Uint8Array.from({ length: 80 }, (_, index) => index + 1);
    expect(
      ring.post({ opcode: WROpcode.send, flags: SendFlag.inline, inlineData }),
    ).toBeUndefined();
    expect(view.getUint16(8, true)).toBe(VALID | 2);
    expect(view.getUint8(10)).toBe(1);
    expect(view.getUint32(32, true)).toBe(80);
    expect(memory.subarray(40, 120)).toEqual(inlineData);
  });

  it('writes atomics, Immediate Data, invalidations and binds where the extensions put them', () => {
    const { ring, view } = makeRing(8);
    const sgList = [{ addr: 64, length: 8, lkey: 5 }];
    const remote = { remoteAddr: 64, rkey: 1 };
    ring.post({ opcode: WROpcode.atomicFetchAndAdd, sgList, compareAdd: -1n, ...remote });
    ring.post({ opcode: WROpcode.atomicCmpAndSwap, sgList, compareAdd: 3, swap: 4, ...remote });
    ring.post({ opcode: WROpcode.immediate, immData: 0x0102030405060708n });
    ring.post({ opcode: WROpcode.rdmaWriteWithImm, sgList, immData: 9, ...remote });
    ring.post({ opcode: WROpcode.localInv, invalidateRkey: 0x0badf00d });
    ring.post({ opcode: WROpcode.sendWithInv, invalidateRkey: 0xfeedface });
    ring.post({
      opcode: WROpcode.bindMW,
      bind: { rkey: 0x12345678, lkey: 11, addr: 4096, length: 2 ** 33, access: Access.remoteRead },
    });
    const at = (index: number, position: number): number => index * ELEMENT + position;
    expect(view.getUint8(at(0, 11))).toBe(6);
    expect(view.getBigUint64(at(0, 40), true)).toBe(0xffff_ffff_ffff_ffffn);
    expect(view.getUint8(at(1, 11))).toBe(7);
    expect(view.getBigUint64(at(1, 40), true)).toBe(4n);
    expect(view.getBigUint64(at(1, 48), true)).toBe(3n);
    expect(view.getUint8(at(2, 11))).toBe(16);
    expect(view.getUint8(at(2, 10))).toBe(0);
    expect(view.getBigUint64(at(2, 104), true)).toBe(0x0102030405060708n);
    expect(view.getUint8(at(3, 11))).toBe(17);
    expect(view.getBigUint64(at(3, 104), true)).toBe(9n);
    expect(view.getUint8(at(4, 11))).toBe(19);
    expect(view.getUint32(at(4, 12), true)).toBe(0x0badf00d);
    expect(view.getUint8(at(5, 11))).toBe(5);
    expect(view.getUint32(at(5, 12), true)).toBe(0xfeedface);
    expect(view.getUint8(at(6, 11))).toBe(18);
    expect(view.getUint32(at(6, 12), true)).toBe(0x12345678);
    expect(view.getBigUint64(at(6, 16), true)).toBe(4096n);
    expect(view.getUint8(at(6, 40))).toBe(0x78);
    expect(view.getUint32(at(6, 44), true)).toBe(Access.remoteRead);
    expect(view.getUint32(at(6, 48), true)).toBe(11);
    expect(view.getBigUint64(at(6, 56), true)).toBe(2n ** 33n);
  });
});

describe('SendRing: refusals', () => {
  const sge = { addr: 0, length: 8, lkey: 1 };
  const remote = { remoteAddr: 0, rkey: 1 };
  it.each<[string, SendFields]>([
    ['an unknown opcode', { opcode: 63 as WROpcode }],
    ['an unknown flag', { ...SEND, flags: 64 as SendFlag }],
    ['a negative wrId', { ...SEND, wrId: -1 }],
    ['a fractional wrId', { ...SEND, wrId: 0.5 }],
    ['too many SGEs', { ...SEND, sgList: Array.from({ length: 5 }, () => sge) }],
    ['a length above 32 bits', { ...SEND, sgList: [{ ...sge, length: 2 ** 32 }] }],
    ['a fractional address', { ...SEND, sgList: [{ ...sge, addr: 1.5 }] }],
    ['a key above 32 bits', { ...SEND, sgList: [{ ...sge, lkey: 2 ** 32 }] }],
    ['a read into two SGEs', { opcode: WROpcode.rdmaRead, ...remote, sgList: [sge, sge] }],
    ['an inline read', { opcode: WROpcode.rdmaRead, ...remote, flags: SendFlag.inline }],
    ['inline with SGEs', { ...SEND, flags: SendFlag.inline, sgList: [sge] }],
    [
      'too much inline payload',
      { ...SEND, flags: SendFlag.inline, inlineData: new Uint8Array(65) },
    ],
    ['an atomic without operand', { opcode: WROpcode.atomicFetchAndAdd, ...remote, sgList: [sge] }],
    [
      'an atomic of 4 bytes',
      {
        opcode: WROpcode.atomicFetchAndAdd,
        ...remote,
        sgList: [{ ...sge, length: 4 }],
        compareAdd: 1,
      },
    ],
    [
      'a swap without new value',
      { opcode: WROpcode.atomicCmpAndSwap, ...remote, sgList: [sge], compareAdd: 1 },
    ],
    ['Immediate Data without data', { opcode: WROpcode.immediate }],
    ['an invalidation without key', { opcode: WROpcode.localInv }],
    ['a bind without parameters', { opcode: WROpcode.bindMW }],
  ])('refuses %s with EINVAL and leaves the element free', (_name, wr) => {
    const { ring, view } = makeRing(2, { maxSge: 4, maxInline: 64 });
    expect(ring.post(wr)).toBe('EINVAL');
    expect(view.getUint16(8, true) & VALID).toBe(0);
    expect(ring.doorbellDue()).toBe(false);
    expect(ring.post(SEND)).toBeUndefined();
    expect(view.getUint16(8, true) & VALID).toBe(VALID);
  });

  it.each([
    ['rdmaWrite', {}],
    ['rdmaWriteWithImm', { immData: 1 }],
    ['rdmaRead', {}],
    ['atomicFetchAndAdd', { sgList: [sge], compareAdd: 1 }],
    ['atomicCmpAndSwap', { sgList: [sge], compareAdd: 1, swap: 2 }],
  ] as const)('refuses %s without STag or offset [DDP-5.2-07]', (name, operands) => {
    const { ring } = makeRing(2);
    const wr: SendFields = { opcode: WROpcode[name], ...operands };
    expect(ring.post({ ...wr, remoteAddr: 0 })).toBe('EINVAL');
    expect(ring.post({ ...wr, rkey: 1 })).toBe('EINVAL');
    expect(ring.post({ ...wr, ...remote })).toBeUndefined();
  });

  it('keeps Immediate Data clear of the sixth SGE and of long inline payload', () => {
    const { ring } = makeRing(4);
    const wr = { opcode: WROpcode.rdmaWriteWithImm, immData: 1, remoteAddr: 0, rkey: 1 } as const;
    const sges = (count: number) => Array.from({ length: count }, () => sge);
    expect(ring.post({ ...wr, sgList: sges(6) })).toBe('EINVAL');
    expect(ring.post({ ...wr, sgList: sges(5) })).toBeUndefined();
    const inline = { ...wr, flags: SendFlag.inline };
    expect(ring.post({ ...inline, inlineData: new Uint8Array(65) })).toBe('EINVAL');
    expect(ring.post({ ...inline, inlineData: new Uint8Array(64) })).toBeUndefined();
  });

  it('refuses with ENOMEM when the next element is not consumed yet', () => {
    const { ring, consume } = makeRing(2);
    expect(ring.post(SEND)).toBeUndefined();
    expect(ring.post(SEND)).toBeUndefined();
    expect(ring.post(SEND)).toBe('ENOMEM');
    consume(0);
    expect(ring.post(SEND)).toBeUndefined();
    expect(ring.post(SEND)).toBe('ENOMEM');
  });
});

describe('SendRing: doorbell', () => {
  it('is due once for a batch into an idle queue, and not without a post', () => {
    const { ring } = makeRing(8);
    expect(ring.doorbellDue()).toBe(false);
    for (let count = 0; count < 3; count += 1) ring.post(SEND);
    expect(ring.doorbellDue()).toBe(true);
    expect(ring.doorbellDue()).toBe(false);
  });

  it('is not due while the element before the batch is not consumed', () => {
    const { ring, consume } = makeRing(8);
    ring.post(SEND);
    ring.doorbellDue();
    ring.post(SEND);
    expect(ring.doorbellDue()).toBe(false);
    consume(0);
    consume(1);
    ring.post(SEND);
    expect(ring.doorbellDue()).toBe(true);
  });

  it.each([1, 2, 4])('is due for a batch that fills a ring of %i', (count) => {
    const { ring, consume } = makeRing(count);
    for (let round = 0; round < 3; round += 1) {
      for (let index = 0; index < count; index += 1) expect(ring.post(SEND)).toBeUndefined();
      expect(ring.doorbellDue()).toBe(true);
      for (let index = 0; index < count; index += 1) consume(index);
    }
  });
});
