import { describe, expect, it } from 'vitest';
import { WCFlag, WCOpcode, WCStatus } from '#contract/verbs/enums';
import { CompletionRing } from '#verbs-api/client/completion-ring';

const ELEMENT = 32;

function makeRing(count: number) {
  const memory = new Uint8Array(count * ELEMENT + 8);
  const view = new DataView(memory.buffer);
  let put = 0;
  return {
    ring: new CompletionRing(memory, count),
    view,
    complete(cqe: { opcode: number; flags?: number; status?: number; immediate?: bigint }) {
      const at = (put % count) * ELEMENT;
      view.setBigUint64(at, BigInt(put), true);
      view.setUint8(at + 9, cqe.opcode);
      view.setUint16(at + 10, cqe.status ?? 0, true);
      view.setUint32(at + 12, 100 + put, true);
      view.setBigUint64(at + 16, cqe.immediate ?? 0n, true);
      view.setBigUint64(at + 24, 77n, true);
      view.setUint8(at + 8, 1 | (cqe.flags ?? 0));
      put += 1;
    },
  };
}

describe('CompletionRing', () => {
  it('returns completions in order, frees their elements, and wraps', () => {
    const { ring, view, complete } = makeRing(2);
    for (let round = 0; round < 3; round += 1) {
      expect(ring.take()).toBeUndefined();
      complete({ opcode: 3 });
      complete({ opcode: 8 });
      expect(ring.take()).toMatchObject({ wrId: BigInt(round * 2), opcode: WCOpcode.send });
      expect(ring.take()).toEqual({
        wrId: BigInt(round * 2 + 1),
        status: WCStatus.success,
        opcode: WCOpcode.recv,
        byteLen: 100 + round * 2 + 1,
        qpNum: 77,
        wcFlags: 0,
        immData: 0n,
        invalidatedRkey: 0,
        srcQp: 0,
      });
      expect(view.getUint32(8, true)).toBe(0);
    }
  });

  it.each([
    [0, WCOpcode.rdmaWrite],
    [1, WCOpcode.rdmaRead],
    [3, WCOpcode.send],
    [5, WCOpcode.send],
    [6, WCOpcode.fetchAdd],
    [7, WCOpcode.compSwap],
    [8, WCOpcode.recv],
    [16, WCOpcode.send],
    [17, WCOpcode.rdmaWrite],
    [18, WCOpcode.bindMW],
    [19, WCOpcode.localInv],
  ])('translates opcode %i to %i', (opcode, expected) => {
    const { ring, complete } = makeRing(1);
    complete({ opcode });
    expect(ring.take()?.opcode).toBe(expected);
  });

  it.each([
    [0, WCStatus.success],
    [1, WCStatus.locLenErr],
    [2, WCStatus.locProtErr],
    [3, WCStatus.locQpOpErr],
    [4, WCStatus.wrFlushErr],
    [5, WCStatus.badRespErr],
    [6, WCStatus.locAccessErr],
    [7, WCStatus.remAccessErr],
    [8, WCStatus.remInvReqErr],
    [9, WCStatus.generalErr],
    [10, WCStatus.mwBindErr],
    [11, WCStatus.remOpErr],
    [12, WCStatus.retryExcErr],
    [13, WCStatus.rnrRetryExcErr],
    [999, WCStatus.generalErr],
  ])('translates status %i to %i', (status, expected) => {
    const { ring, complete } = makeRing(1);
    complete({ opcode: 3, status });
    expect(ring.take()?.status).toBe(expected);
  });

  it('reports Immediate Data and an invalidated STag by their flags only', () => {
    const { ring, complete } = makeRing(4);
    const immediate = 0xffff_0000_1234_5678n;
    complete({ opcode: 8, flags: 128, immediate });
    complete({ opcode: 8, flags: 32, immediate: 0xaabbccddn });
    complete({ opcode: 8, immediate });
    expect(ring.take()).toMatchObject({
      opcode: WCOpcode.recvImmediate,
      wcFlags: WCFlag.withImm,
      immData: immediate,
      invalidatedRkey: 0,
    });
    expect(ring.take()).toMatchObject({
      opcode: WCOpcode.recv,
      wcFlags: WCFlag.withInv,
      immData: 0n,
      invalidatedRkey: 0xaabbccdd,
    });
    expect(ring.take()).toMatchObject({ wcFlags: 0, immData: 0n, invalidatedRkey: 0 });
  });

  it('arms in the word after the last element and never narrows a wider request', () => {
    const { ring, view } = makeRing(4);
    const notify = 4 * ELEMENT;
    ring.arm(true);
    expect(view.getUint32(notify, true)).toBe(1);
    ring.arm(false);
    expect(view.getUint32(notify, true)).toBe(3);
    ring.arm(true);
    expect(view.getUint32(notify, true)).toBe(3);
  });
});
