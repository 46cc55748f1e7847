import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DaemonBudget } from '#daemon/clients/objects/daemon-budget';
import { HandleSpace } from '#daemon/clients/objects/handle-space';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import { daemonLimits } from '#daemon/main/host-limits';
import { libc } from '#native-bridge/libc/libc';
import { commands } from '#test/support/kernel-commands';
import { RINGS, request, UverbsRig } from '#test/support/uverbs-rig';

const ftruncate = libc.func('int ftruncate(int, int64_t)');
let rig: UverbsRig;

beforeEach(() => {
  rig = new UverbsRig();
  rig.must(commands.getContext());
});

afterEach(() => rig.close());

describe('numbers of objects', () => {
  it('the lowest free number first', () => {
    const space = new HandleSpace<string>();
    for (const text of ['a', 'b', 'c']) space.add(() => text);
    space.remove(0);
    space.remove(1);
    space.remove(1);
    space.remove(99);
    expect(space.size).toBe(1);
    expect(space.add((handle) => `new ${handle}`)).toBe('new 0');
    expect(space.find(1)).toBeUndefined();
    expect(space.values()).toEqual(['new 0', 'c']);
  });

  it('a number stays free if its object cannot be created', () => {
    const space = new HandleSpace<string>();
    const refuse = (): string => {
      throw new Error('no');
    };
    expect(() => space.add(refuse)).toThrow('no');
    expect([space.size, space.add((handle) => `${handle}`)]).toEqual([0, '0']);
  });
});

describe('the file of rings', () => {
  it('holds each ring at its offset, never one that siw’s provider treats as an error', () => {
    const keys = Array.from({ length: 3 }, () => {
      return rig.must(commands.createCQ(0n, 1)).getUint32(16, true);
    });
    const { first, step } = RINGS;
    expect(keys).toEqual([first, first + step, first + 2 * step]);
    // A long one goes after all mappings, and small ones still fill holes.
    expect(rig.must(commands.createCQ(0n, 10_000)).getUint32(16, true)).toBe(first + 0x1_0000);
    expect(rig.must(commands.createCQ(0n, 1)).getUint32(16, true)).toBe(first + 3 * step);
    rig.server.assertDeepInvariants();
  });

  it('takes few mappings of the daemon for many rings, and returns all of them', async () => {
    const budget = new DaemonBudget(daemonLimits({ connections: 64, descriptors: 1024 }), {});
    const many = new UverbsRig({}, { ...DEFAULT_QUOTAS, budget });
    const mappings = (): number | undefined => budget.uses()['mappings']?.used;
    many.must(commands.getContext());
    const { length } = Array.from({ length: 1000 }, () => many.create(commands.createCQ(0n, 1)));
    expect(mappings()).toBeLessThan(length / 50);
    many.server.assertDeepInvariants();
    // A ring is not cleared with another one in the same part.
    const last = many.file.table.ofKind('cq').at(-1)?.ring.view;
    last?.fill(0xee);
    for (let handle = 0; handle < length - 1; handle += 1) many.must(commands.destroyCQ(handle));
    expect(last?.every((byte) => byte === 0xee)).toBe(true);
    many.must(commands.destroyCQ(length - 1));
    // One mapping stays for the next rings.
    expect([mappings(), last?.every((byte) => byte === 0)]).toEqual([1, true]);
    await many.close();
    expect(mappings()).toBe(0);
  });

  it('is the memory that the device uses', () => {
    rig.must(commands.createCQ(0n, 5));
    const mapped = rig.map(RINGS.first, 8 * 32 + 8);
    const [cq] = rig.file.table.ofKind('cq');
    mapped.view[3] = 77;
    expect(cq?.cq.ring[3]).toBe(77);
    mapped.release();
  });

  it('cannot be made shorter, and grows though the program makes it longer', () => {
    const resized = (bytes: number): number => {
      let result = 0;
      const send = (descriptor: number): void => {
        result = ftruncate(descriptor, bytes);
      };
      rig.execute(request(ShimOp.rings)).attach?.(send);
      return result;
    };
    rig.must(commands.createCQ(0n, 5));
    expect(resized(0)).toBe(-1);
    expect(resized(2 ** 30)).toBe(0);
    rig.must(commands.createCQ(0n, 5));
    rig.map(RINGS.first + RINGS.step, 8 * 32 + 8).release();
  });

  it('has zeros in place of a former ring, and never another ring', () => {
    rig.must(commands.createCQ(0n, 5));
    const mapped = rig.map(RINGS.first, 8 * 32 + 8);
    mapped.view.fill(0xee);
    rig.must(commands.destroyCQ(0));
    expect(mapped.view.every((byte) => byte === 0)).toBe(true);
    expect(rig.must(commands.createCQ(0n, 5)).getUint32(16, true)).toBe(RINGS.first + RINGS.step);
    mapped.release();
  });

  it('keeps the contents of the rings when the program is cut off', () => {
    rig.must(commands.createCQ(0n, 5));
    const mapped = rig.map(RINGS.first, 8 * 32 + 8);
    mapped.view.fill(0xee);
    rig.file.mappings.leave();
    rig.must(commands.destroyCQ(0));
    expect(mapped.view.every((byte) => byte === 0xee)).toBe(true);
    mapped.release();
  });

  it.each([4, 512, 1024])(
    'shows after a send ring of %i entries whether the queue pair is connected',
    (sendWr) => {
      rig.create(commands.allocPD());
      rig.create(commands.createCQ(0n, 4));
      const reply = rig.must(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, sendWr }));
      const ringBytes = sendWr * 120;
      const fileBytes = Math.ceil((ringBytes + 8) / 4096) * 4096;
      const key = Number(reply.getBigUint64(48, true));
      const [element] = rig.file.table.ofKind('qp');
      expect(element?.sendRing.view).toHaveLength(fileBytes);
      expect(element?.sendRing.mappedBytes).toBe(ringBytes);
      const mapped = rig.map(key, ringBytes);
      const memory = element?.sendRing.view ?? new Uint8Array(0);
      const word = new Uint32Array(memory.buffer, memory.byteOffset + fileBytes - 8, 1);
      expect(word[0]).toBe(0);
      rig.must(commands.modifyQP(2, 1, { state: 6 }));
      expect(word[0]).toBe(1);
      mapped.release();
    },
  );
});
