import { fstatSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { closeDescriptor, duplicateDescriptor } from '#native-bridge/libc/descriptor';
import { libc, SystemCallError } from '#native-bridge/libc/libc';
import {
  readStrictCommit,
  reservePages,
  SHARED_MEMORY_MAX_BYTES,
  SharedFile,
  SharedMemory,
} from '#native-bridge/libc/shared-memory';
import { patient } from '#test/support/patience';
import { temporaryFolder } from '#test/support/temporary-folder';

/** Mappings of this process whose file has the name. */
function mappings(name: string): number {
  const lines = readFileSync('/proc/self/maps', 'latin1').split('\n');
  return lines.filter((line) => line.includes(`memfd:${name} `)).length;
}

/** A second descriptor of the memory, as the other side gets one. */
function descriptorOf(memory: SharedMemory): number {
  if (memory.descriptor === undefined) throw new Error('closed');
  return duplicateDescriptor(memory.descriptor);
}

/** A quarter of Linux's default of vm.max_map_count. */
const CHURNED = 16_000;

describe('shared memory', () => {
  it('starts with zeros and is seen by both mappings', () => {
    const ours = SharedMemory.create('unit-both', 10_000);
    const theirs = SharedMemory.map(descriptorOf(ours), 10_000);
    expect(ours.view.length).toBe(10_000);
    expect(theirs.view.every((byte) => byte === 0)).toBe(true);
    ours.view[9_999] = 0xa5;
    expect(theirs.view[9_999]).toBe(0xa5);
    Atomics.add(new Int32Array(theirs.view.buffer, 0, 1), 0, 3);
    expect(Atomics.load(new Int32Array(ours.view.buffer, 0, 1), 0)).toBe(3);
    ours.release();
    theirs.release();
  });

  it('cannot be resized by a holder of its descriptor: no SIGBUS', () => {
    const ftruncate = libc.func('int ftruncate(int fd, int64_t length)') as (
      fd: number,
      length: number,
    ) => number;
    const memory = SharedMemory.create('unit-sealed', 8192);
    const theirs = descriptorOf(memory);
    expect(ftruncate(theirs, 0)).toBe(-1);
    expect(ftruncate(theirs, 100_000)).toBe(-1);
    expect(memory.view[8191]).toBe(0);
    closeDescriptor(theirs);
    memory.release();
  });

  it('frees its pages at once on release, while late accesses stay harmless', () => {
    const memory = SharedMemory.create('unit-release', 65_536);
    const { view } = memory;
    view.fill(7);
    expect(mappings('unit-release')).toBe(1);
    memory.release();
    memory.release();
    expect(mappings('unit-release')).toBe(0);
    expect(memory.descriptor).toBeUndefined();
    expect(view[100]).toBe(0);
    view[100] = 1;
  });

  it('remains for the other side after a release, and is zeroed for every side by clear()', () => {
    const ours = SharedMemory.create('unit-owner', 65_536);
    const first = SharedMemory.map(descriptorOf(ours), 65_536);
    const second = SharedMemory.map(descriptorOf(ours), 65_536);
    ours.view.fill(7);
    first.release();
    expect(second.view[4096]).toBe(7);
    ours.clear();
    ours.release();
    ours.clear();
    expect(second.view.every((byte) => byte === 0)).toBe(true);
    second.view[0] = 1;
    second.release();
  });

  it('refuses a file smaller than its declared size', () => {
    const memory = SharedMemory.create('unit-small', 4096);
    expect(() => SharedMemory.map(descriptorOf(memory), 4097)).toThrow(SystemCallError);
    expect(mappings('unit-small')).toBe(1);
    memory.release();
  });

  it('allocates its pages when reserved: no SIGBUS for lack of memory', () => {
    const memory = SharedMemory.create('unit-reserved', 1 << 20);
    const blocks = () => fstatSync(memory.descriptor ?? -1).blocks;
    expect(blocks()).toBe(0);
    reservePages(memory.descriptor ?? -1, 0, memory.lengthBytes);
    expect(blocks() * 512).toBe(1 << 20);
    expect(() => reservePages(1_000_000, 0, 4096)).toThrow(/EBADF/);
    memory.release();
  });

  it('has its pages from the start under strict overcommit', () => {
    const blocks = (fd: number | undefined) => fstatSync(fd ?? -1).blocks * 512;
    for (const strict of [true, false]) {
      const memory = SharedMemory.create('unit-strict', 1 << 20, strict);
      expect(blocks(memory.descriptor)).toBe(strict ? 1 << 20 : 0);
      memory.release();
      const file = new SharedFile('unit-strict');
      const part = file.map(4096, 2 ** 20);
      file.reserve(8192, 65_536, strict);
      expect(blocks(file.descriptor)).toBe(strict ? 65_536 : 0);
      part.release();
      file.close();
    }
  });

  it.each([
    ['0', false],
    ['1', false],
    ['2', true],
  ])('overcommit_memory %s is strict: %s', (mode, strict) => {
    const path = join(temporaryFolder(), 'overcommit_memory');
    writeFileSync(path, `${mode}\n`);
    expect(readStrictCommit(path)).toBe(strict);
    expect(readStrictCommit(`${path}-missing`)).toBe(false);
  });

  it('counts the mappings of this process', () => {
    const before = SharedMemory.mappings;
    const memory = SharedMemory.create('unit-count', 4096);
    expect(SharedMemory.mappings).toBe(before + 1);
    memory.release();
  });

  it('is collected before a churn of small mappings reaches the limit of the process', async () => {
    const before = SharedMemory.mappings;
    let most = 0;
    for (let cycle = 0; cycle < 5; cycle += 1) {
      const held: SharedMemory[] = [];
      while (held.length < CHURNED) {
        for (let count = 0; count < 100; count += 1) {
          const memory = SharedMemory.create('iwarpd-test', 1);
          memory.closeDescriptor();
          held.push(memory);
        }
        // The collector does part of its work between turns.
        await new Promise((resolve) => setImmediate(resolve));
      }
      most = Math.max(most, SharedMemory.mappings - before);
      for (const memory of held) memory.release();
    }
    expect(most).toBeLessThan(2.5 * CHURNED);
  });

  it('unmaps collected memory in parts, one in each turn, however much there is', async () => {
    setFlagsFromString('--expose-gc');
    const collect: () => void = runInNewContext('gc');
    const before = SharedMemory.mappings;
    for (let count = 0; count < 4000; count += 1) SharedMemory.create('unit-many', 4096).release();
    await new Promise(setImmediate);
    let [last, most] = [SharedMemory.mappings, 0];
    expect(last).toBeGreaterThan(before + 2000);
    const deadline = patient();
    for (let turn = 0; last > before; turn += 1) {
      deadline.throwIfAborted();
      if (turn % 64 === 0) collect();
      await new Promise(setImmediate);
      most = Math.max(most, last - SharedMemory.mappings);
      last = SharedMemory.mappings;
    }
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(1024);
  });

  it('rejects more than one view can cover, in any file', () => {
    for (const lengthBytes of [SHARED_MEMORY_MAX_BYTES + 1, 2 ** 47, 0, -1, Number.NaN]) {
      expect(() => SharedMemory.create('unit-long', lengthBytes)).toThrow(/ENOMEM.*one mapping/);
      const memory = SharedMemory.create('unit-long', 4096);
      expect(() => SharedMemory.map(descriptorOf(memory), lengthBytes)).toThrow(/ENOMEM/);
      memory.release();
    }
    expect(mappings('unit-long')).toBe(0);
  });

  it('reports the errno when there is no such memory', () => {
    expect(() => SharedMemory.create('unit-huge', 2 ** 52)).toThrow(/ENOMEM|EFBIG|EINVAL/);
    expect(() => SharedMemory.map(1_000_000, 4096)).toThrow(/EBADF/);
  });
});
