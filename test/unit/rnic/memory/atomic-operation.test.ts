import { beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { atomicAccess, hi, lo, NicRig } from '#test/support/nic-rig';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { localWrite, remoteAtomic, remoteRead, remoteWrite, zeroBased } = Access;
const ONES = (1n << 64n) - 1n;

interface Operation {
  readonly operation: number;
  readonly original: bigint;
  readonly operand?: bigint;
  readonly mask?: bigint;
  readonly compare?: bigint;
  readonly compareMask?: bigint;
}

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

/** Performs one atomic at offset 8 of the rig's memory: returns its result and the memory. */
function perform(fields: Operation): [bigint, bigint] {
  const view = new DataView(rig.memory.buffer);
  view.setBigUint64(8, fields.original, true);
  const access = atomicAccess({
    operation: fields.operation,
    stag: rig.mr.rkey,
    toLo: MEMORY_ADDRESS + 8,
    operandHi: hi(fields.operand ?? 0n),
    operandLo: lo(fields.operand ?? 0n),
    operandMaskHi: hi(fields.mask ?? 0n),
    operandMaskLo: lo(fields.mask ?? 0n),
    compareHi: hi(fields.compare ?? 0n),
    compareLo: lo(fields.compare ?? 0n),
    compareMaskHi: hi(fields.compareMask ?? 0n),
    compareMaskLo: lo(fields.compareMask ?? 0n),
  });
  expect(rig.qp.executeAtomic(access)).toBe(AccessRefusal.none);
  expect([view.getBigUint64(0, true), view.getBigUint64(16, true)]).toEqual([0n, 0n]);
  const original = (BigInt(access.originalHi) << 32n) | BigInt(access.originalLo);
  return [original, view.getBigUint64(8, true)];
}

describe('FetchAdd', () => {
  const add = (original: bigint, operand: bigint, mask = 0n): [bigint, bigint] =>
    perform({ operation: 0, original, operand, mask });

  it('adds field by field and returns the original [RDMAPX-5.1.1-01]', () => {
    expect(add(0x01ff_02fe_03fd_04fcn, 0x0101_0101_0101_0101n, 0x8080_8080_8080_8080n)).toEqual([
      0x01ff_02fe_03fd_04fcn,
      0x0200_03ff_04fe_05fdn,
    ]);
  });

  it('with mask 0 adds 64 bits, and drops the carry out of bit 63 [RDMAPX-5.1.1-02]', () => {
    expect(add(ONES, 1n)[1]).toBe(0n);
    expect(add(ONES, 1n, 1n << 63n)[1]).toBe(0n);
    expect(add(0xffff_ffffn, 1n)[1]).toBe(0x1_0000_0000n);
    expect(add(5n, ONES)[1]).toBe(4n);
  });

  it('two 32-bit fields do not carry; with all ones it is XOR [RDMAPX-5.1.1-03]', () => {
    expect(add(0xffff_ffffn, 1n, 0x8000_0000_8000_0000n)[1]).toBe(0n);
    expect(add(0xf0f0_f0f0_1234_5678n, 0xffff_0000_ffff_0000n, ONES)[1]).toBe(
      0x0f0f_f0f0_edcb_5678n,
    );
  });

  it('adding 0 returns the value and changes nothing [RDMAPX-1.1-02]', () => {
    expect(add(0x1234n, 0n)).toEqual([0x1234n, 0x1234n]);
  });

  it('counts in the byte order of the memory [RDMAPX-5.1.1-05]', () => {
    rig.memory.set([0xff], 8);
    const access = atomicAccess({ stag: rig.mr.rkey, toLo: MEMORY_ADDRESS + 8, operandLo: 1 });
    rig.qp.executeAtomic(access);
    expect([access.originalHi, access.originalLo]).toEqual([0, 0xff]);
    expect([...rig.memory.subarray(8, 16)]).toEqual([0, 1, 0, 0, 0, 0, 0, 0]);
  });
});

describe('CmpSwap', () => {
  const swap = (fields: Omit<Operation, 'operation'>): [bigint, bigint] =>
    perform({ operation: 2, ...fields });

  it('swaps masked bits if masked bits are equal [RDMAPX-5.1.2-01]', () => {
    const fields = {
      original: 0x1122_3344_5566_7788n,
      compareMask: 0xffffn,
      operand: 0xaaaa_aaaa_aaaa_aaaan,
      mask: 0xffff_0000_0000_0000n,
    };
    expect(swap({ ...fields, compare: 0x7788n })).toEqual([
      fields.original,
      0xaaaa_3344_5566_7788n,
    ]);
    expect(swap({ ...fields, compare: 0x7789n })).toEqual([fields.original, fields.original]);
  });

  it('compare mask 0 always matches, swap mask 0 never changes [RDMAPX-5.1.2-02]', () => {
    expect(swap({ original: 5n, operand: 9n, mask: ONES })[1]).toBe(9n);
    expect(swap({ original: 5n, compare: 5n, compareMask: ONES, operand: 9n })[1]).toBe(5n);
    const full = { compareMask: ONES, operand: 9n, mask: ONES };
    expect(swap({ original: 5n, compare: 4n, ...full })[1]).toBe(5n);
    expect(swap({ original: 5n, compare: 5n, ...full })[1]).toBe(9n);
    expect(swap({ original: 5n, compare: 5n | (1n << 63n), ...full })[1]).toBe(5n);
  });
});

describe('an atomic requires', () => {
  const at = (stag: number, to: number): AccessRefusal =>
    rig.qp.executeAtomic(atomicAccess({ stag, toLo: to, operandLo: 1 }));

  it('an aligned word, and otherwise changes nothing [RDMAPX-5.1.1-04, RDMAPX-5.1.2-03, RDMAPX-8.2-02]', () => {
    for (const operation of [0, 2]) {
      const access = atomicAccess({
        operation,
        stag: rig.mr.rkey,
        toLo: MEMORY_ADDRESS + 4,
        operandLo: 1,
        operandMaskLo: operation === 2 ? 1 : 0,
      });
      expect(rig.qp.executeAtomic(access)).toBe(AccessRefusal.misaligned);
    }
    expect(rig.memory.every((byte) => byte === 0)).toBe(true);
  });

  it('alignment in memory, whatever the TO [RDMAPX-5.2.1-05]', () => {
    const mr = rig.register(rig.pd, { access: localWrite | remoteAtomic | zeroBased, offset: 4 });
    expect(at(mr.rkey, 4)).toBe(AccessRefusal.none);
    expect(at(mr.rkey, 0)).toBe(AccessRefusal.misaligned);
    expect(rig.memory[8]).toBe(1);
  });

  it('access rights, protection domain, bounds and a valid STag [RDMAPX-8.2-03]', () => {
    const noAtomic = rig.register(rig.pd, { access: localWrite | remoteWrite | remoteRead });
    const foreign = rig.register(rig.nic.allocPD());
    expect(at(noAtomic.rkey, MEMORY_ADDRESS)).toBe(AccessRefusal.access);
    expect(at(foreign.rkey, MEMORY_ADDRESS)).toBe(AccessRefusal.stagNotAssociated);
    expect(at(rig.mr.rkey, MEMORY_ADDRESS + 4096 - 4)).toBe(AccessRefusal.bounds);
    expect(at(rig.mr.rkey, MEMORY_ADDRESS + 4096 - 8)).toBe(AccessRefusal.none);
    expect(at(0xdeadbeef, MEMORY_ADDRESS)).toBe(AccessRefusal.stagInvalid);
  });

  it('many streams through several STags lose no addition [RDMAPX-5-01, RDMAPX-5.3-01]', () => {
    const other = rig.register(rig.pd);
    const qps = [rig.qp, rig.connectedQP(rig.pd), rig.connectedQP(rig.pd)];
    const seen = new Set<number>();
    for (let round = 0; round < 300; round += 1) {
      const stag = round % 2 === 0 ? rig.mr.rkey : other.rkey;
      const access = atomicAccess({ stag, toLo: MEMORY_ADDRESS, operandLo: 1 });
      expect(qps[round % 3]?.executeAtomic(access)).toBe(AccessRefusal.none);
      seen.add(access.originalLo);
    }
    expect(seen.size).toBe(300);
    expect(new DataView(rig.memory.buffer).getUint32(0, true)).toBe(300);
    expect(rig.nic.counters.atomics).toBe(300);
  });

  it('refuses an operation code that is not assigned', () => {
    const access = atomicAccess({ operation: 1, stag: rig.mr.rkey, toLo: MEMORY_ADDRESS });
    expect(rig.qp.executeAtomic(access)).toBe(AccessRefusal.access);
  });
});
