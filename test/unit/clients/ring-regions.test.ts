import { fstatSync } from 'node:fs';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { SharedAllocation } from '#daemon/clients/objects/client-memory';
import { FreeSpace } from '#daemon/clients/objects/free-space';
import { RingRegions } from '#daemon/clients/objects/ring-regions';

const KIB = 1024;
const MIB = 1024 * KIB;
const BLOCK_BYTES = 512;

let regions: ReturnType<typeof regionsOf>;

beforeEach(() => {
  regions = regionsOf();
});

describe('free space', () => {
  it('gives parts that never overlap, and is one part again when all are back', () => {
    const lengths = fc.integer({ min: 1, max: 40 });
    const steps = fc.array(fc.tuple(fc.boolean(), lengths, fc.nat()), { maxLength: 300 });
    fc.assert(
      fc.property(steps, (sequence) => {
        const space = new FreeSpace(256);
        const owners = new Int16Array(256).fill(-1);
        const held: { offset: number; lengthBytes: number }[] = [];
        for (const [taking, lengthBytes, choice] of sequence) {
          if (taking) {
            const offset = space.take(lengthBytes);
            const fits = owners.join('').includes('-1'.repeat(lengthBytes));
            expect(offset !== undefined).toBe(fits);
            if (offset === undefined) continue;
            expect(owners.subarray(offset, offset + lengthBytes).every((at) => at === -1)).toBe(
              true,
            );
            owners.fill(1, offset, offset + lengthBytes);
            held.push({ offset, lengthBytes });
          } else if (held.length > 0) {
            const [part] = held.splice(choice % held.length, 1);
            if (part === undefined) continue;
            owners.fill(-1, part.offset, part.offset + part.lengthBytes);
            space.give(part.offset, part.lengthBytes);
          }
        }
        for (const { offset, lengthBytes } of held) space.give(offset, lengthBytes);
        expect(space.empty).toBe(true);
      }),
    );
  });

  it('is broken by parts that are returned twice or were never taken', () => {
    const space = new FreeSpace(64);
    expect(space.take(16)).toBe(0);
    expect(space.take(16)).toBe(16);
    space.give(0, 16);
    for (const offset of [0, 8, 24, 48]) {
      expect(() => space.give(offset, 24)).toThrow(/freed part was not allocated/);
    }
  });
});

describe('the rings of a client', () => {
  it('share one file, each on its own cache lines', () => {
    const rings = [100, 5000, 64, 1].map((length) => made(regions, length));
    expect(new Set(rings.map(({ mapping }) => mapping.token)).size).toBe(1);
    expect(rings.map(({ mapping }) => mapping.within?.offset)).toEqual([0, 128, 5184, 5248]);
    expect(rings.map(({ view }) => view.length)).toEqual([100, 5000, 64, 1]);
    expect(new Set(rings.map(({ view }) => view.buffer)).size).toBe(1);
    regions.close();
  });

  it('begin with zeros, even in memory that an earlier one or the client has written', () => {
    const first = made(regions, 256);
    made(regions, 64);
    first.view.fill(7);
    first.release();
    const second = made(regions, 200);
    expect(second.mapping.within?.offset).toBe(0);
    expect([...second.view]).toEqual(Array.from({ length: 200 }, () => 0));
    regions.close();
  });

  it('are released once, however often release is called', () => {
    const first = made(regions, 64);
    first.release();
    const second = made(regions, 64);
    first.release();
    expect(made(regions, 64).mapping.within?.offset).toBe(64);
    second.release();
    regions.close();
  });

  it('continue in another file, twice as long, when one is full', () => {
    const lengths = new Map<string, number>();
    for (let ring = 0; ring < 40; ring++) {
      const { token, within } = made(regions, 64 * KIB).mapping;
      lengths.set(token, within?.lengthBytes ?? 0);
    }
    expect([...lengths.values()]).toEqual([256 * KIB, 512 * KIB, MIB, 2 * MIB]);
    expect(regions.count).toBe(4);
    regions.close();
  });

  it('fill holes before a file is added, whatever the order in which they are released', () => {
    const rings = Array.from({ length: 64 }, () => made(regions, 4 * KIB));
    expect(regions.count).toBe(1);
    const odd = rings.filter((_, index) => index % 2 === 1);
    for (const ring of odd) ring.release();
    for (const _ of odd) made(regions, 4 * KIB);
    expect(regions.count).toBe(1);
    regions.close();
  });

  it('need separate memory when they are long, or when there are too many files', () => {
    expect(regions.create(4 * MIB + 1)).toBeUndefined();
    expect(regions.count).toBe(0);
    const rings: (SharedAllocation | undefined)[] = [];
    do rings.push(regions.create(4 * MIB));
    while (rings.at(-1) !== undefined);
    expect(regions.count).toBe(64);
    rings[0]?.release();
    expect(regions.create(4 * MIB)).toBeDefined();
    regions.close();
    expect(regions.count).toBe(0);
  });

  it('give their pages back once more than 1 MiB is unused, except those of neighbours', () => {
    const rings = Array.from({ length: 600 }, () => made(regions, 4 * KIB));
    for (const { view } of rings) view.fill(1);
    const tokens = [...new Set(rings.map(({ mapping }) => mapping.token))];
    const usedBytes = () => {
      return tokens.reduce((sum, token) => {
        return sum + fstatSync(regions.descriptorOf(token) ?? -1).blocks * BLOCK_BYTES;
      }, 0);
    };
    expect(usedBytes()).toBe(600 * 4 * KIB);
    const [kept, ...others] = rings;
    for (const ring of others) ring.release();
    expect(regions.keptBytes).toBeLessThanOrEqual(MIB);
    expect(usedBytes()).toBeLessThanOrEqual(MIB + 4 * KIB);
    expect(kept?.view.every((byte) => byte === 1)).toBe(true);
    regions.close();
  });

  it('leave no descriptor and no written byte behind', () => {
    const ring = made(regions, 64);
    const { view, mapping } = ring;
    view.fill(1);
    expect(regions.descriptorOf(mapping.token)).toBeTypeOf('number');
    regions.close();
    expect(regions.descriptorOf(mapping.token)).toBeUndefined();
    expect(view[0]).toBe(0);
    ring.release();
  });
});

function regionsOf(): RingRegions {
  let tokens = 0;
  return new RingRegions(() => `token ${tokens++}`);
}

function made(regions: RingRegions, lengthBytes: number): SharedAllocation {
  const ring = regions.create(lengthBytes);
  if (ring === undefined) throw new Error('no ring');
  return ring;
}
