import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ShimOp } from '../../../../daemon/ipc/kernel/shim-protocol.ts';
import { HandleSpace } from '../../../../daemon/ipc/objects/handle-space.ts';
import { IpcFormatError } from '../../../../verbs-api/contract/protocol/ipc-value.ts';
import { bytesOf } from '../../../support/hex.ts';
import { commands, le, request, UverbsRig } from '../../../support/uverbs-rig.ts';

const EINVAL = -22;
let rig: UverbsRig;

beforeEach(() => {
  rig = new UverbsRig();
  rig.must(commands.getContext());
});

afterEach(async () => {
  await rig.close();
});

function mapStatus(key: number, lengthBytes: number | bigint): number {
  const payload = bytesOf(le(lengthBytes, 8));
  return rig.execute(request(ShimOp.mmap, { argument: key, payload })).status;
}

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

describe('keys', () => {
  it('are pages from 0, never the one that siw’s provider treats as an error', () => {
    const keys = Array.from({ length: 0x92 }, () => {
      return rig.must(commands.createCQ(0n, 1)).getUint32(16, true);
    });
    expect(keys.slice(0, 3)).toEqual([0, 0x1000, 0x2000]);
    expect(keys.slice(-3)).toEqual([0x8f000, 0x91000, 0x92000]);
    rig.must(commands.destroyCQ(1));
    expect(rig.must(commands.createCQ(0n, 1)).getUint32(16, true)).toBe(0x1000);
  });
});

describe('mmap', () => {
  it('maps the memory that the device uses', () => {
    rig.must(commands.createCQ(0n, 5));
    const mapped = rig.map(0, 8 * 32 + 8);
    const [cq] = rig.file.table.ofKind('cq');
    mapped.view[3] = 77;
    expect(cq?.cq.ring[3]).toBe(77);
    mapped.release();
  });

  it('refuses invalid keys, other lengths, and a second mapping', () => {
    rig.must(commands.createCQ(0n, 200));
    expect(mapStatus(0x1000, 4096)).toBe(EINVAL);
    expect(mapStatus(0x90000, 4096)).toBe(EINVAL);
    expect(mapStatus(1, 200)).toBe(EINVAL);
    expect(mapStatus(2 ** 53, 4096)).toBe(EINVAL);
    expect(mapStatus(0, 4096)).toBe(EINVAL);
    expect(mapStatus(0, 0)).toBe(EINVAL);
    expect(mapStatus(0, 0xffff_ffff_ffff_ffffn)).toBe(EINVAL);
    expect(mapStatus(0, 256 * 32 + 8)).toBe(0);
    rig.must(commands.createCQ(0n, 200));
    rig.map(0x1000, 256 * 32 + 8).release();
    expect(mapStatus(0x1000, 256 * 32 + 8)).toBe(EINVAL);
  });

  it('a request without a length ends the file', () => {
    const short = request(ShimOp.mmap, { payload: new Uint8Array(4) });
    expect(() => rig.execute(short)).toThrow(IpcFormatError);
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
      expect(element?.sendRing.memory.view).toHaveLength(fileBytes);
      expect(element?.sendRing.mappedBytes).toBe(ringBytes);
      const mapped = rig.map(key, ringBytes);
      const memory = element?.sendRing.memory.view ?? new Uint8Array(0);
      const word = new Uint32Array(memory.buffer, memory.byteOffset + fileBytes - 8, 1);
      expect(word[0]).toBe(0);
      rig.must(commands.modifyQP(2, 1, { state: 6 }));
      expect(word[0]).toBe(1);
      mapped.release();
    },
  );
});
