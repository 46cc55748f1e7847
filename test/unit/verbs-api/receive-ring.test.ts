import { describe, expect, it } from 'vitest';
import { ReceiveRing } from '#verbs-api/client/receive-ring';

const ELEMENT = 112;

describe('ReceiveRing', () => {
  it('writes elements at its offset in the mapping, wraps, and is full at an unconsumed one', () => {
    const memory = new Uint8Array(240 + 2 * ELEMENT);
    const view = new DataView(memory.buffer);
    const ring = new ReceiveRing(memory, 240, 2, 2);
    const sgList = [
      { addr: 2 ** 40 + 1, length: 10, lkey: 3 },
      { addr: 5n, length: 6, lkey: 4 },
    ];
    expect(ring.post({ wrId: 9, sgList })).toBeUndefined();
    expect(ring.post({ sgList: [] })).toBeUndefined();
    expect(ring.post({ sgList: [] })).toBe('ENOMEM');
    expect(view.getBigUint64(240, true)).toBe(9n);
    expect(view.getUint16(248, true)).toBe(1);
    expect(view.getUint8(250)).toBe(2);
    expect(view.getBigUint64(256, true)).toBe(2n ** 40n + 1n);
    expect(view.getUint32(264, true)).toBe(10);
    expect(view.getUint32(268, true)).toBe(3);
    expect(view.getBigUint64(272, true)).toBe(5n);
    expect(view.getUint8(240 + ELEMENT + 10)).toBe(0);
    view.setUint16(248, 0, true);
    expect(ring.post({ wrId: 10, sgList: [] })).toBeUndefined();
    expect(view.getBigUint64(240, true)).toBe(10n);
    expect(view.getUint8(250)).toBe(0);
  });

  it('refuses too many or malformed SGEs with EINVAL', () => {
    const ring = new ReceiveRing(new Uint8Array(ELEMENT), 0, 1, 1);
    const sge = { addr: 0, length: 1, lkey: 1 };
    expect(ring.post({ sgList: [sge, sge] })).toBe('EINVAL');
    expect(ring.post({ sgList: [{ ...sge, length: -1 }] })).toBe('EINVAL');
    expect(ring.post({ sgList: [{ ...sge, addr: Number.NaN }] })).toBe('EINVAL');
    expect(ring.post({ sgList: [sge], wrId: 2 ** 53 })).toBe('EINVAL');
    expect(ring.post({ sgList: [sge] })).toBeUndefined();
  });
});
