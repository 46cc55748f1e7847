/**
 * STag checks against a naive model: a list of regions and windows, searched with `bigint`
 * arithmetic for every access, over one array of bytes.
 */
import fc from 'fast-check';
import { describe, it } from 'vitest';
import { SQOpcode } from '#contract/protocol/queue-layout';
import { Access, MWType } from '#contract/verbs/enums';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { MW } from '#daemon/rnic/memory/memory-window';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { QP } from '#daemon/rnic/queue-pair';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { ReceiveProducer, SendProducer } from '../support/flag-ring-client.ts';
import { hi, lo, NicRig, NO_MESSAGE, ScriptedStream } from '../support/nic-rig.ts';
import { MEMORY_ADDRESS } from '../support/test-memory.ts';

const MEMORY_BYTES = 256;
const START = BigInt(MEMORY_ADDRESS);
const REMOTE = Access.remoteRead | Access.remoteWrite;

/** The model's state of one STag. */
interface ModelEntry {
  stag: number;
  pd: number;
  valid: boolean;
  live: boolean;
  access: number;
  /** First byte as an address of peers, and as an offset in the memory. */
  base: bigint;
  offset: number;
  length: number;
  /** Index of the only QP that may use it, for a bound type 2 window. */
  qp: number | undefined;
  /** Index of the region under a bound window. */
  region: number | undefined;
  readonly window: MW | undefined;
  readonly mr: MR | undefined;
}

/** Two protection domains with two connected QPs each, and their model. */
class World {
  readonly rig = new NicRig({ connected: false, memoryBytes: MEMORY_BYTES, cqe: 4096 });
  readonly pds: PD[] = [this.rig.nic.allocPD(), this.rig.nic.allocPD()];
  readonly qps: QP[] = [];
  readonly sends: SendProducer[] = [];
  readonly receives: ReceiveProducer[] = [];
  readonly entries: ModelEntry[] = [];
  readonly shadow = new Uint8Array(MEMORY_BYTES);

  constructor() {
    for (let index = 0; index < 4; index += 1) this.#connect(index);
  }

  #connect(index: number): void {
    const pd = this.pds[index >> 1];
    if (pd === undefined) throw new Error('no such domain');
    const qp = this.rig.createQP(pd);
    qp.attach(new ScriptedStream(qp));
    qp.established({ ird: 4, ord: 4 }, 0);
    this.qps[index] = qp;
    this.sends[index] = new SendProducer(qp);
    this.receives[index] = new ReceiveProducer(qp.ring, qp.rqOffset, qp.rqCount);
  }

  qp(index: number): QP {
    const qp = this.qps[index];
    if (qp === undefined) throw new Error('no such QP');
    return qp;
  }

  /** The model's answer to an access. */
  expect(qp: number, stag: number, to: bigint, length: number, right: number): AccessRefusal {
    const entry = this.entries.find((one) => one.live && one.stag === stag);
    if (entry === undefined || !entry.valid) return AccessRefusal.stagInvalid;
    if (entry.pd !== qp >> 1) return AccessRefusal.stagNotAssociated;
    if (entry.qp !== undefined && entry.qp !== qp) return AccessRefusal.stagNotAssociated;
    if ((entry.access & right) === 0) return AccessRefusal.access;
    if (to + BigInt(length) >= 1n << 64n) return AccessRefusal.toWrap;
    if (to < entry.base || to + BigInt(length) > entry.base + BigInt(entry.length)) {
      return AccessRefusal.bounds;
    }
    return AccessRefusal.none;
  }

  place(stag: number, to: bigint): number {
    const entry = this.entries.find((one) => one.live && one.stag === stag);
    return entry === undefined ? 0 : entry.offset + Number(to - entry.base);
  }
}

type Step = (world: World) => void;

const right = fc.constantFrom(Access.remoteRead, Access.remoteWrite);
const qpIndex = fc.integer({ min: 0, max: 3 });
const entryIndex = fc.nat({ max: 30 });

function pick(world: World, index: number): ModelEntry | undefined {
  return world.entries.length === 0 ? undefined : world.entries[index % world.entries.length];
}

const register: fc.Arbitrary<Step> = fc
  .record({
    pd: fc.integer({ min: 0, max: 1 }),
    offset: fc.nat({ max: MEMORY_BYTES - 1 }),
    length: fc.integer({ min: 1, max: MEMORY_BYTES }),
    access: fc.integer({ min: 0, max: 63 }),
    iova: fc.constantFrom(
      0n,
      7n,
      2n ** 32n - 5n,
      2n ** 53n - 9n,
      2n ** 63n - 3n,
      2n ** 64n - BigInt(MEMORY_BYTES),
    ),
  })
  .map((fields) => (world) => {
    const { pd, offset, access, iova } = fields;
    const length = Math.min(fields.length, MEMORY_BYTES - offset);
    const domain = world.pds[pd];
    const change = access & (Access.remoteWrite | Access.remoteAtomic);
    if (domain === undefined || (change !== 0 && (access & Access.localWrite) === 0)) return;
    const mr = world.rig.register(domain, { offset, length, access, iova });
    world.entries.push({
      stag: mr.stag,
      pd,
      valid: (access & (REMOTE | Access.remoteAtomic)) !== 0,
      live: true,
      access,
      base: (access & Access.zeroBased) !== 0 ? 0n : iova,
      offset,
      length,
      qp: undefined,
      region: undefined,
      window: undefined,
      mr,
    });
  });

const allocateWindow: fc.Arbitrary<Step> = fc
  .record({ pd: fc.integer({ min: 0, max: 1 }), type: fc.constantFrom(MWType.type1, MWType.type2) })
  .map(({ pd, type }) => (world) => {
    const domain = world.pds[pd];
    if (domain === undefined) return;
    const mw = world.rig.nic.allocMW(domain, type);
    world.entries.push({
      stag: mw.rkey,
      pd,
      valid: false,
      live: true,
      access: 0,
      base: 0n,
      offset: 0,
      length: 0,
      qp: undefined,
      region: undefined,
      window: mw,
      mr: undefined,
    });
  });

/** Binds only if the model allows it; a refused bind would end the QP. */
const bind: fc.Arbitrary<Step> = fc
  .record({
    qp: qpIndex,
    window: entryIndex,
    region: entryIndex,
    skip: fc.nat({ max: 40 }),
    length: fc.integer({ min: 1, max: 60 }),
    access: fc.constantFrom(0, Access.remoteRead, Access.remoteWrite, REMOTE),
    zeroBased: fc.boolean(),
    key: fc.integer({ min: 0, max: 255 }),
  })
  .map(({ qp, window, region, skip, length, access, zeroBased, key }) => (world) => {
    const target = pick(world, window);
    const source = pick(world, region);
    if (target?.window === undefined || source?.mr === undefined) return;
    if (!target.live || !source.live || target.pd !== qp >> 1 || source.pd !== qp >> 1) return;
    if ((source.access & Access.mwBind) === 0 || skip + length > source.length) return;
    if ((access & Access.remoteWrite) !== 0 && (source.access & Access.localWrite) === 0) return;
    const type2 = target.window.type === MWType.type2;
    if (type2 && target.valid) return;
    const rights = access | (zeroBased ? Access.zeroBased : 0);
    world.sends[qp]?.post({
      opcode: SQOpcode.bindMW,
      rkey: target.stag,
      raddr: START + BigInt(source.offset + skip),
      bind: { key, access: rights, lkey: source.stag, length: BigInt(length) },
    });
    world.qp(qp).doorbell(0);
    target.stag = ((target.stag & ~0xff) | key) >>> 0;
    target.valid = true;
    target.access = rights;
    target.base = zeroBased ? 0n : source.base + BigInt(skip);
    target.offset = source.offset + skip;
    target.length = length;
    target.qp = type2 ? qp : undefined;
    target.region = world.entries.indexOf(source);
  });

const deregister: fc.Arbitrary<Step> = entryIndex.map((index) => (world) => {
  const entry = pick(world, index);
  if (entry === undefined || !entry.live) return;
  const own = world.entries.indexOf(entry);
  const used = world.entries.some((one) => one.live && one.valid && one.region === own);
  if (used) return;
  entry.mr?.close();
  entry.window?.close();
  entry.live = false;
});

/** Send with Invalidate of a type 2 window: the one kind that several streams do not share. */
const invalidate: fc.Arbitrary<Step> = fc
  .record({ qp: qpIndex, index: entryIndex })
  .map(({ qp, index }) => (world) => {
    const entry = pick(world, index);
    if (entry === undefined) return;
    const user = world.qp(qp);
    world.receives[qp]?.post(1, []);
    user.beginReceive();
    const refusal = user.completeReceive({
      ...NO_MESSAGE,
      invalidates: true,
      invalidateStag: entry.stag,
    });
    const own = entry.live && entry.valid && entry.pd === qp >> 1 && entry.qp === qp;
    if ((refusal === AccessRefusal.none) !== own) throw new Error(`invalidation gave ${refusal}`);
    if (own) entry.valid = false;
  });

const access: fc.Arbitrary<Step> = fc
  .record({
    qp: qpIndex,
    index: entryIndex,
    flip: fc.constantFrom(0, 0, 0, 1, 0x100, 0x8000_0000),
    from: fc.constantFrom('base', 'end', 'top'),
    delta: fc.integer({ min: -3, max: 3 }),
    length: fc.integer({ min: 1, max: MEMORY_BYTES }),
    right,
  })
  .map((fields) => (world) => {
    const { qp, from, delta, length } = fields;
    const entry = pick(world, fields.index);
    if (entry === undefined) return;
    const stag = (entry.stag ^ fields.flip) >>> 0;
    const ends = {
      base: entry.base,
      end: entry.base + BigInt(entry.length - length),
      top: 1n << 64n,
    };
    const to = BigInt.asUintN(64, ends[from] + BigInt(delta));
    const expected = world.expect(qp, stag, to, length, fields.right);
    const bytes = new Uint8Array(length).fill(1 + (world.entries.length % 250));
    const user = world.qp(qp);
    if (fields.right === Access.remoteWrite) {
      const refusal = user.placeWrite(stag, hi(to), lo(to), bytes, 0, length);
      if (refusal !== expected) throw new Error(`write gave ${refusal}, not ${expected}`);
      if (refusal === AccessRefusal.none) world.shadow.set(bytes, world.place(stag, to));
    } else {
      const refusal = user.gatherReadSource(stag, hi(to), lo(to), length, bytes, 0);
      if (refusal !== expected) throw new Error(`read gave ${refusal}, not ${expected}`);
      const at = world.place(stag, to);
      if (refusal === AccessRefusal.none && !same(bytes, world.shadow.subarray(at, at + length))) {
        throw new Error('the read returned other bytes');
      }
    }
  });

function same(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}

describe('STag checks', () => {
  it('agree with a model that searches a list [SEC-6.2.1-01, SEC-6.1.1-02]', () => {
    const step = fc.oneof(
      { arbitrary: register, weight: 3 },
      { arbitrary: allocateWindow, weight: 2 },
      { arbitrary: bind, weight: 4 },
      { arbitrary: deregister, weight: 1 },
      { arbitrary: invalidate, weight: 2 },
      { arbitrary: access, weight: 12 },
    );
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120 }), (steps) => {
        const world = new World();
        for (const one of steps) one(world);
        if (!same(world.rig.memory, world.shadow)) throw new Error('the memory differs');
      }),
      { numRuns: 400 },
    );
  });
});
