import { beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MRInit } from '#daemon/rnic/memory/memory-region';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { hi, lo, NicRig } from '#test/support/nic-rig';
import { MEMORY_ADDRESS, SlowBacking } from '#test/support/test-memory';

const { localWrite, none, remoteAtomic, remoteRead, remoteWrite, zeroBased } = Access;
const START = BigInt(MEMORY_ADDRESS);

/** Reads source bytes as a peer does. */
function read(
  rig: NicRig,
  stag: number,
  to: bigint,
  length: number,
  qp = rig.qp,
): number[] | AccessRefusal {
  const bytes = new Uint8Array(length);
  const checked = qp.checkReadSource(stag, hi(to), lo(to), length);
  const refusal = qp.gatherReadSource(stag, hi(to), lo(to), length, bytes, 0);
  expect(refusal).toBe(checked);
  return refusal === AccessRefusal.none ? [...bytes] : refusal;
}

let rig: NicRig;

beforeEach(() => {
  rig = new NicRig();
});

describe('registration', () => {
  const init = (fields: Partial<MRInit>): MRInit => ({
    backing: new ViewBacking(new Uint8Array(64)),
    backingOffset: 0,
    lengthBytes: 64,
    address: 0x1000,
    iova: 0x1000,
    access: none,
    key: undefined,
    ...fields,
  });

  it('returns lkey, rkey and STag as one number, with the requested key in its low byte', () => {
    const mr = rig.register(rig.pd, { key: 0xa5 });
    expect(mr.lkey).toBe(mr.rkey);
    expect(mr.stag).toBe(mr.lkey);
    expect(mr.stag & 0xff).toBe(0xa5);
    expect(mr.stag >>> 8).toBeGreaterThan(0);
  });

  const refused: [string, string, Partial<MRInit>][] = [
    ['EINVAL', 'no bytes', { lengthBytes: 0 }],
    ['EINVAL', 'half a byte', { lengthBytes: 1.5 }],
    ['EINVAL', 'more bytes than the device maps', { lengthBytes: 2 ** 47 + 1 }],
    ['EINVAL', 'an address below 0', { address: -1 }],
    ['EINVAL', 'a number that may have been rounded', { address: 2 ** 53 }],
    ['EINVAL', 'a local range beyond 64 bits', { address: 2n ** 64n - 63n }],
    ['EINVAL', 'a remote range beyond 64 bits', { iova: 2n ** 64n - 63n }],
    ['EINVAL', 'a remote address below 0', { iova: -1n }],
    ['EINVAL', 'a remote address that is no number', { iova: Number.NaN }],
    ['EINVAL', 'unknown rights', { access: 64 }],
    ['EINVAL', 'remote write without local write', { access: remoteWrite }],
    ['EINVAL', 'remote atomic without local write', { access: remoteAtomic }],
    ['EINVAL', 'a key of 9 bits', { key: 256 }],
    [
      'EOPNOTSUPP',
      'atomics on memory that has to be fetched',
      { access: remoteAtomic | localWrite, backing: new SlowBacking(new Uint8Array(64)) },
    ],
  ];
  for (const [code, what, fields] of refused) {
    it(`refuses ${what} with ${code} and keeps nothing`, () => {
      const rig = new NicRig({ profile: { maxMr: 2 } });
      expect(() => rig.nic.regMR(rig.pd, init(fields))).toThrow(expect.objectContaining({ code }));
      rig.nic.regMR(rig.pd, init({}));
    });
  }

  it('accepts the last byte of the address space', () => {
    const start = 2n ** 64n - 64n;
    const mr = rig.nic.regMR(rig.pd, init({ address: start, iova: start }));
    expect([mr.address, mr.iova]).toEqual([start, start]);
  });

  it('refuses a closed protection domain, and closes none that is in use', () => {
    const pd = rig.nic.allocPD();
    const mr = rig.register(pd);
    expect(() => pd.close()).toThrow(expect.objectContaining({ code: 'EBUSY' }));
    mr.close();
    pd.close();
    pd.close();
    expect(() => rig.register(pd)).toThrow(expect.objectContaining({ code: 'EINVAL' }));
  });
});

describe('remote access', () => {
  it('has each right separately [SEC-2.2.2-01, SEC-6.3.5-01, RDMAP-3.2-06]', () => {
    const rights = [
      [none, AccessRefusal.stagInvalid, AccessRefusal.stagInvalid],
      [remoteRead, AccessRefusal.access, AccessRefusal.none],
      [localWrite | remoteWrite, AccessRefusal.none, AccessRefusal.access],
      [localWrite | remoteWrite | remoteRead, AccessRefusal.none, AccessRefusal.none],
      [localWrite | remoteAtomic, AccessRefusal.access, AccessRefusal.access],
    ] as const;
    for (const [access, write, source] of rights) {
      const { rkey } = rig.register(rig.pd, { access });
      expect(rig.write(rkey, START, [1])).toBe(write);
      expect(rig.qp.checkReadSource(rkey, 0, MEMORY_ADDRESS, 1)).toBe(source);
    }
  });

  it('a Write without the right places nothing [DDP-7.1-11]', () => {
    const { rkey } = rig.register(rig.pd, { access: remoteRead | localWrite });
    expect(rig.write(rkey, START, [1, 2, 3])).toBe(AccessRefusal.access);
    expect(rig.memory.every((byte) => byte === 0)).toBe(true);
  });

  it('a Read of memory without remote read is refused [RDMAP-4.8-17]', () => {
    const { rkey } = rig.register(rig.pd, { access: localWrite | remoteWrite });
    expect(read(rig, rkey, START, 4)).toBe(AccessRefusal.access);
  });

  it('an unknown STag, or a wrong key, is invalid [DDP-7.1-09, DDP-8.3-03, RDMAP-4.8-15]', () => {
    for (const stag of [0, 0xffffffff, 0xdeadbeef, rig.mr.rkey ^ 0x01, rig.mr.rkey ^ 0x100]) {
      expect(rig.write(stag >>> 0, START, [1])).toBe(AccessRefusal.stagInvalid);
      expect(read(rig, stag >>> 0, START, 1)).toBe(AccessRefusal.stagInvalid);
    }
  });

  it('an STag of another domain is refused [DDP-7.1-10, DDP-8.2-02, SEC-6.1.1-02, RDMAP-4.8-18]', () => {
    const { rkey } = rig.register(rig.nic.allocPD());
    expect(rig.write(rkey, START, [1])).toBe(AccessRefusal.stagNotAssociated);
    expect(read(rig, rkey, START, 1)).toBe(AccessRefusal.stagNotAssociated);
    expect(rig.memory[0]).toBe(0);
  });

  it('bounds are kept to the byte, at both ends [DDP-7.1-12, DDP-7.1-13, SEC-6.2.1-01]', () => {
    const mr = rig.register(rig.pd, { offset: 3, length: 101 });
    const first = START + 3n;
    const end = first + 101n;
    for (const [to, length, refusal] of [
      [first - 1n, 1, AccessRefusal.bounds],
      [first - 1n, 2, AccessRefusal.bounds],
      [first, 101, AccessRefusal.none],
      [first, 102, AccessRefusal.bounds],
      [end - 4n, 4, AccessRefusal.none],
      [end - 4n, 5, AccessRefusal.bounds],
      [end - 1n, 1, AccessRefusal.none],
      [end, 1, AccessRefusal.bounds],
      [0n, 1, AccessRefusal.bounds],
      [first + (1n << 32n), 1, AccessRefusal.bounds],
      [first + (1n << 53n), 1, AccessRefusal.bounds],
      [first | (1n << 63n), 1, AccessRefusal.bounds],
    ] as const) {
      expect(rig.write(mr.rkey, to, new Array<number>(length).fill(1))).toBe(refusal);
    }
    expect([rig.memory[2], rig.memory[3], rig.memory[103], rig.memory[104]]).toEqual([0, 1, 1, 0]);
  });

  it('a Read source stays in its range, up to its very end [RDMAP-4.8-16, RDMAP-7.2-05]', () => {
    rig.memory.set([1, 2, 3, 4], 4092);
    expect(read(rig, rig.mr.rkey, START + 4092n, 4)).toEqual([1, 2, 3, 4]);
    expect(read(rig, rig.mr.rkey, START + 4093n, 4)).toBe(AccessRefusal.bounds);
    expect(rig.qp.checkReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS, 0xffffffff)).toBe(
      AccessRefusal.bounds,
    );
  });

  it('a wrap at 2^64 is reported before the bounds [DDP-7.1-14, DDP-7.1-17, RDMAP-4.8-19]', () => {
    const top = (1n << 64n) - 4n;
    for (const [to, length, refusal] of [
      [top, 3, AccessRefusal.bounds],
      [top, 4, AccessRefusal.toWrap],
      [top, 5, AccessRefusal.toWrap],
      [(1n << 64n) - 1n, 1, AccessRefusal.toWrap],
    ] as const) {
      expect(rig.write(rig.mr.rkey, to, new Array<number>(length).fill(1))).toBe(refusal);
      expect(rig.qp.checkReadSource(rig.mr.rkey, hi(to), lo(to), length)).toBe(refusal);
    }
    expect(rig.qp.checkReadSource(rig.mr.rkey, 0xffffffff, 0xfffffff0, 0xffffffff)).toBe(
      AccessRefusal.toWrap,
    );
  });

  it('keeps bounds to the byte wherever the region is [DDP-4.2-07, DDP-7.1-12, DDP-7.1-13]', () => {
    const length = 100n;
    for (const first of [
      2n ** 53n - 50n,
      2n ** 53n + 1n,
      2n ** 63n - 3n,
      0xffff_ffff_ffff_e001n,
      0xdead_beef_ffff_fff0n,
      2n ** 64n - length - 1n,
    ]) {
      const rig = new NicRig();
      const { rkey } = rig.register(rig.pd, { offset: 3, length: Number(length), iova: first });
      for (const [to, size, refusal] of [
        [first, 100, AccessRefusal.none],
        [first + 1n, 1, AccessRefusal.none],
        [first + length - 1n, 1, AccessRefusal.none],
        [first - 1n, 1, AccessRefusal.bounds],
        [first - 1n, 2, AccessRefusal.bounds],
        [first, 101, AccessRefusal.bounds],
        [first + length, 1, AccessRefusal.bounds],
        [first ^ 1n, 100, AccessRefusal.bounds],
        [first ^ (1n << 32n), 1, AccessRefusal.bounds],
        [first ^ (1n << 53n), 1, AccessRefusal.bounds],
        [first ^ (1n << 63n), 1, AccessRefusal.bounds],
        [0n, 1, AccessRefusal.bounds],
      ] as const) {
        rig.memory.fill(0);
        // A range that reaches the end of the address space wraps.
        const expected = to + BigInt(size) >= 2n ** 64n ? AccessRefusal.toWrap : refusal;
        expect(rig.write(rkey, to, new Array<number>(size).fill(1))).toBe(expected);
        expect(rig.qp.checkReadSource(rkey, hi(to), lo(to), size)).toBe(expected);
        if (refusal !== AccessRefusal.none)
          expect(rig.memory.every((byte) => byte === 0)).toBe(true);
        else expect(rig.memory.indexOf(1)).toBe(3 + Number(to - first));
      }
    }
  });

  it('reaches all but the end of a region at the end of the address space [DDP-7.1-14]', () => {
    const { rkey } = rig.register(rig.pd, { length: 8, iova: 2n ** 64n - 8n });
    expect(rig.write(rkey, 2n ** 64n - 8n, [1, 2, 3, 4, 5, 6, 7])).toBe(AccessRefusal.none);
    expect(rig.write(rkey, 2n ** 64n - 1n, [9])).toBe(AccessRefusal.toWrap);
    expect([...rig.memory.subarray(0, 9)]).toEqual([1, 2, 3, 4, 5, 6, 7, 0, 0]);
  });

  it('counts from 0 in a zero-based region, and from its own address in another', () => {
    const access = localWrite | remoteWrite;
    const zero = rig.register(rig.pd, { access: access | zeroBased, offset: 8 });
    const far = rig.register(rig.pd, { access, offset: 16, iova: 0x1f_ffff_0000_0000 });
    expect(zero.iova).toBe(0n);
    expect(rig.write(zero.rkey, 0n, [1])).toBe(AccessRefusal.none);
    expect(rig.write(zero.rkey, START + 8n, [9])).toBe(AccessRefusal.bounds);
    expect(rig.write(far.rkey, 0x1f_ffff_0000_0001n, [2])).toBe(AccessRefusal.none);
    expect(rig.write(far.rkey, START + 16n, [9])).toBe(AccessRefusal.bounds);
    expect([...rig.memory.subarray(8, 18)]).toEqual([1, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
  });

  it('every access fails once it is deregistered [DDP-8.3-01, DDP-8.3-02, SEC-6.2.2-01]', () => {
    const mr = rig.register(rig.pd, { offset: 3, length: 10 });
    const { rkey } = mr;
    expect(rig.write(rkey, START + 3n, [5])).toBe(AccessRefusal.none);
    mr.close();
    mr.close();
    expect(rig.write(rkey, START + 3n, [6])).toBe(AccessRefusal.stagInvalid);
    expect(read(rig, rkey, START + 3n, 1)).toBe(AccessRefusal.stagInvalid);
    expect(rig.memory[3]).toBe(5);
    const again = rig.register(rig.pd, { offset: 3, length: 10 });
    expect(again.rkey >>> 8).not.toBe(rkey >>> 8);
    expect(rig.write(again.rkey, START + 3n, [6])).toBe(AccessRefusal.none);
  });

  it('two STags expose two halves of one buffer [SEC-6.3.4-01]', () => {
    const left = rig.register(rig.pd, { offset: 0, length: 2048 });
    const right = rig.register(rig.pd, { offset: 2048, length: 2048 });
    expect(rig.write(left.rkey, START + 2047n, [1])).toBe(AccessRefusal.none);
    expect(rig.write(left.rkey, START + 2047n, [1, 1])).toBe(AccessRefusal.bounds);
    expect(rig.write(right.rkey, START + 2048n, [1])).toBe(AccessRefusal.none);
    expect(rig.write(right.rkey, START + 2047n, [1])).toBe(AccessRefusal.bounds);
  });

  it('distinguishes lost memory from forbidden memory', () => {
    const shrunk = rig.register(rig.pd, { backing: new ViewBacking(new Uint8Array(8)) });
    expect(rig.write(shrunk.rkey, START + 8n, [1])).toBe(AccessRefusal.memoryLost);
    expect(read(rig, rig.mr.rkey, START, 1)).toEqual([0]);
    expect(
      rig.qp.gatherReadSource(shrunk.rkey, 0, MEMORY_ADDRESS + 8, 1, new Uint8Array(1), 0),
    ).toBe(AccessRefusal.memoryLost);
  });

  it('distinguishes memory of an ended process from lost memory', () => {
    const backing = Object.assign(new ViewBacking(new Uint8Array(8)), { ownerGone: true });
    const orphan = rig.register(rig.pd, { backing });
    expect(
      rig.qp.gatherReadSource(orphan.rkey, 0, MEMORY_ADDRESS + 8, 1, new Uint8Array(1), 0),
    ).toBe(AccessRefusal.ownerGone);
  });

  it('counts refusals', () => {
    rig.write(0, START, [1]);
    rig.write(rig.mr.rkey, 0n, [1]);
    rig.write(rig.mr.rkey, START, [1, 2]);
    expect(rig.nic.counters).toMatchObject({ accessErrors: 2, placedBytes: 2 });
  });
});
