/** Payload of short sends is read with one system call, except where that would be wrong. */
import { beforeEach, expect, it } from 'vitest';
import { QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { ProcessBacking } from '#daemon/clients/objects/process-backing';
import { ReadAhead } from '#daemon/rnic/memory/read-ahead';
import { addressOf } from '#native-bridge/libc/libc';
import { ProcessMemory } from '#native-bridge/libc/process-vm';
import { NicRig } from '#test/support/nic-rig';
import { KeepingBacking } from '#test/support/test-memory';

/** Memory that a system call reads, and how many bytes each read. */
class CountingBacking extends KeepingBacking {
  readonly reads: number[] = [];
  aheadBytes = 64;

  bytesAhead(): number {
    return this.aheadBytes;
  }

  override read(offset: number, length: number, target: Uint8Array, start: number): boolean {
    this.reads.push(length);
    return super.read(offset, length, target, start);
  }
}

let rig: NicRig;
let reads: readonly number[];

beforeEach(() => {
  rig = new NicRig({
    backing: (bytes) => {
      const backing = new CountingBacking(bytes);
      reads = backing.reads;
      return backing;
    },
  });
  for (let at = 0; at < 64; at += 1) rig.memory[at] = at;
});

function post(offset: number, flags = 0): void {
  rig.sends.post({ opcode: SQOpcode.send, flags, sges: [rig.piece(offset, 2)] });
}

/** The payloads of all sends, of two bytes each. */
function sentBytes(): number[] {
  return rig.stream.sent.flatMap(({ payload }) => payload);
}

it('sends that are posted together are read together', () => {
  for (const offset of [0, 8, 4]) post(offset);
  rig.qp.doorbell(0);
  expect(sentBytes()).toEqual([0, 1, 8, 9, 4, 5]);
  expect(reads).toEqual([64]);
});

it('a send that is posted alone is read alone, each time', () => {
  for (const value of [7, 8]) {
    rig.memory[0] = value;
    post(0);
    rig.qp.doorbell(0);
  }
  expect(sentBytes()).toEqual([7, 1, 8, 1]);
  expect(reads).toEqual([2, 2]);
});

it('a send that is posted later is not served from earlier reads', () => {
  rig.stream.budget = 1;
  for (const offset of [0, 8]) post(offset);
  rig.qp.doorbell(0);
  rig.memory[16] = 99;
  post(16);
  rig.stream.budget = Number.POSITIVE_INFINITY;
  rig.qp.doorbell(0);
  expect(sentBytes()).toEqual([0, 1, 8, 9, 99, 17]);
  expect(reads).toEqual([64, 2]);
});

it('a fenced send and the next one send the bytes of the Read before them', () => {
  post(0);
  rig.sends.post({ opcode: SQOpcode.read, rkey: 1, sges: [rig.piece(16, 2)] });
  post(16, QueueFlag.readFence);
  post(17);
  rig.qp.doorbell(0);
  rig.memory.set([70, 71, 72], 16);
  rig.qp.readCompleted();
  rig.qp.doorbell(0);
  expect(sentBytes().slice(-4)).toEqual([70, 71, 71, 72]);
});

it('sends nothing from memory that was deregistered in the meantime', () => {
  rig.stream.budget = 1;
  for (const offset of [0, 8]) post(offset, QueueFlag.signalled);
  rig.qp.doorbell(0);
  rig.mr.close();
  rig.stream.budget = Number.POSITIVE_INFINITY;
  rig.qp.doorbell(0);
  expect(rig.stream.sent[1]?.payload).toEqual([0, 0]);
});

it('without hits, most sends are read alone', () => {
  const backing = new CountingBacking(new Uint8Array(4096));
  backing.aheadBytes = 8;
  const ahead = new ReadAhead({ index: 0, ready: () => true, readyCount: () => 100 });
  const target = new Uint8Array(2);
  for (let order = 0; order < 34; order += 1) {
    expect(ahead.aim(order).read(backing, order * 100, 2, target, 0)).toBe(true);
  }
  expect(backing.reads.filter((bytes) => bytes === 8)).toHaveLength(2);
  expect(backing.reads.filter((bytes) => bytes === 2)).toHaveLength(32);
});

it('reads stay within a page and a region', () => {
  const bytes = new Uint8Array(3 * 4096);
  const address = Number(addressOf(bytes));
  const process_ = new ProcessMemory(process.pid);
  const backing = new ProcessBacking(process_, address, bytes.length);
  const toPage = 4096 - (address % 4096);
  expect(backing.bytesAhead(0)).toBe(Math.min(toPage, bytes.length));
  expect(backing.bytesAhead(toPage)).toBe(4096);
  expect(backing.bytesAhead(toPage - 1)).toBe(1);
  expect(backing.bytesAhead(bytes.length - 3)).toBeLessThanOrEqual(3);
  expect(backing.bytesAhead(bytes.length + 1)).toBe(0);
  backing.release();
  expect(backing.bytesAhead(0)).toBe(0);
  process_.close();
});
