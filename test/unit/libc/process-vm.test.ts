import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { addressOf } from '#native-bridge/libc/libc';
import { allowTracer, ProcessMemory, yamaScope } from '#native-bridge/libc/process-vm';

/** This process's own memory, which needs no permission. */
let memory: ProcessMemory;

beforeEach(() => {
  memory = new ProcessMemory(process.pid);
});
afterEach(() => memory.close());

describe('memory of a process', () => {
  it('is read and written at any offset of the local buffers', () => {
    const remote = new Uint8Array(100_000).map((_, index) => index & 0xff);
    const address = Number(addressOf(remote));
    const local = new Uint8Array(70_000);
    expect(memory.read(address + 5, local, 9, 60_000)).toBe(true);
    expect(local.subarray(9, 60_009)).toEqual(remote.subarray(5, 60_005));
    expect(local[8]).toBe(0);
    expect(local[60_009]).toBe(0);
    const view = local.subarray(1000, 2000).fill(0xa5);
    expect(memory.write(address, view, 10, 20)).toBe(true);
    expect(remote.subarray(0, 20).every((byte) => byte === 0xa5)).toBe(true);
    expect(remote[20]).toBe(20);
  });

  it('carries out deferred writes in one transfer, in order', () => {
    const remote = new Uint8Array(1000);
    const address = Number(addressOf(remote));
    const first = Uint8Array.from({ length: 300 }, (_, index) => index & 0xff);
    const second = new Uint8Array(50).fill(0xee);
    expect(memory.writeLater(address, first, 0, 100)).toBe(true);
    expect(memory.writeLater(address + 100, first, 100, 200)).toBe(true);
    expect(memory.writeLater(address + 500, second, 1, 20)).toBe(true);
    expect(memory.writeLater(address + 10, second, 0, 5)).toBe(true);
    expect(remote.every((byte) => byte === 0)).toBe(true);
    expect(memory.flush()).toBe(true);
    const expected = new Uint8Array(1000);
    expected.set(first, 0);
    expected.fill(0xee, 500, 520);
    expected.fill(0xee, 10, 15);
    expect(remote).toEqual(expected);
  });

  it('carries out deferred writes when it can defer no more, and before any other access', () => {
    const remote = new Uint8Array(1000);
    const address = Number(addressOf(remote));
    const bytes = new Uint8Array(8).fill(1);
    for (let at = 0; at < 400; at += 2) memory.writeLater(address + at, bytes, 0, 1);
    expect(remote[0]).toBe(1);
    expect(remote[398]).toBe(0);
    expect(memory.write(address + 500, bytes, 0, 1)).toBe(true);
    expect([remote[398], remote[500]]).toEqual([1, 1]);
    memory.writeLater(address + 600, bytes, 0, 1);
    const back = new Uint8Array(1);
    expect(memory.read(address + 600, back, 0, 1)).toBe(true);
    expect(back[0]).toBe(1);
  });

  it('reports the loss at the next flush, not to the access that carried the writes out', () => {
    const bytes = new Uint8Array(8);
    const address = Number(addressOf(bytes));
    expect(memory.writeLater(4096, bytes, 0, 8)).toBe(true);
    expect(memory.read(address, new Uint8Array(8), 0, 8)).toBe(true);
    expect(memory.writeLater(address, bytes, 0, 8)).toBe(true);
    expect(memory.flush()).toBe(false);
    expect(memory.flush()).toBe(true);
  });

  it('reports a loss to the owner of the write, and carries out all other writes', () => {
    const bytes = Uint8Array.of(1, 2, 3, 4);
    const remote = new Uint8Array(8);
    const address = Number(addressOf(remote));
    const [whole, lost, other] = [{}, {}, {}];
    expect(memory.writeLater(address, bytes, 0, 2, whole)).toBe(true);
    expect(memory.writeLater(4096, bytes, 0, 4, lost)).toBe(true);
    expect(memory.writeLater(address + 2, bytes, 2, 2, whole)).toBe(true);
    expect(memory.writeLater(address + 4, bytes, 0, 4, other)).toBe(true);
    expect(memory.flush(whole)).toBe(true);
    expect([...remote]).toEqual([1, 2, 3, 4, 1, 2, 3, 4]);
    expect(memory.lastError).toBe('EFAULT');
    expect(memory.flush(other)).toBe(true);
    expect(memory.flush(lost)).toBe(false);
    expect(memory.flush(lost)).toBe(true);
  });

  it('carries out deferred reads in one transfer, after deferred writes', () => {
    const remote = Uint8Array.from({ length: 1000 }, (_, index) => index & 0xff);
    const address = Number(addressOf(remote));
    const target = new Uint8Array(300);
    for (let index = 0; index < 100; index += 1) {
      expect(memory.readLater(address + 2 * index, target, 3 * index, 2)).toBe(true);
    }
    expect(target.subarray(270).every((byte) => byte === 0)).toBe(true);
    memory.writeLater(address + 198, new Uint8Array(1).fill(0xee), 0, 1);
    expect(memory.flushReads()).toBe(true);
    const expected = new Uint8Array(300);
    for (let index = 0; index < 100; index += 1) {
      expected.set([2 * index, 2 * index + 1], 3 * index);
    }
    expected[297] = 0xee;
    expect(target).toEqual(expected);
    expect(memory.readLater(4096, target, 0, 8)).toBe(true);
    expect(memory.flushReads()).toBe(false);
    expect(memory.flushReads()).toBe(true);
    expect(memory.readLater(address, target, 296, 8)).toBe(false);
  });

  it('reports deferred writes that failed', () => {
    const bytes = new Uint8Array(8);
    expect(memory.writeLater(4096, bytes, 0, 8)).toBe(true);
    expect(memory.flush()).toBe(false);
    expect(memory.lastError).toBe('EFAULT');
    expect(memory.flush()).toBe(true);
    expect(memory.writeLater(4096, bytes, 4, 8)).toBe(false);
    expect(memory.lastError).toBe('EINVAL');
    memory.writeLater(4096, bytes, 0, 8);
    memory.close();
    expect(memory.flush()).toBe(false);
    expect(memory.writeLater(4096, bytes, 0, 8)).toBe(false);
    expect(memory.lastError).toBe('EBADF');
  });

  it('fails with EFAULT for unmapped addresses, and probes both ends', () => {
    const remote = new Uint8Array(8192);
    const address = Number(addressOf(remote));
    expect(memory.probe(address, 8192)).toBeUndefined();
    expect(memory.probe(4096, 1)).toBe('EFAULT');
    expect(memory.probe(address, 2 ** 45)).toBe('EFAULT');
    expect(memory.read(4096, new Uint8Array(8), 0, 8)).toBe(false);
    expect(memory.write(4096, new Uint8Array(8), 0, 8)).toBe(false);
    expect(memory.lastError).toBe('EFAULT');
  });

  it('reports the address at which a transfer failed, except for probes', () => {
    const remote = new Uint8Array(64);
    const address = Number(addressOf(remote));
    const bytes = new Uint8Array(64);
    const notified: number[] = [];
    memory.onFault = (at) => notified.push(at);
    memory.probe(4096, 1);
    memory.read(4096, bytes, 0, 8);
    for (const at of [address, 8192, address + 8, 12_288]) memory.readLater(at, bytes, 0, 8);
    expect(memory.flushReads()).toBe(false);
    for (const at of [address, 16_384, address + 8, 20_480]) memory.writeLater(at, bytes, 0, 8);
    expect(memory.flush()).toBe(false);
    // Reads end at the first that fails; each write is tried.
    expect(notified).toEqual([4096, 8192, 16_384, 20_480]);
  });

  it('never leaves the local buffer', () => {
    const remote = new Uint8Array(64);
    const address = Number(addressOf(remote));
    expect(memory.read(address, new Uint8Array(8), 1, 8)).toBe(false);
    expect(memory.write(address, new Uint8Array(8), 8, 1)).toBe(false);
    expect(memory.lastError).toBe('EINVAL');
  });

  it('disappears with its process', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
    await once(child, 'spawn');
    const memory = new ProcessMemory(child.pid ?? 0);
    expect(memory.alive).toBe(true);
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    expect(memory.alive).toBe(false);
    expect(memory.read(0x1000, new Uint8Array(1), 0, 1)).toBe(false);
    expect(memory.write(0x1000, new Uint8Array(1), 0, 1)).toBe(false);
    expect(memory.lastError).toBe('ESRCH');
    memory.close();
  });

  it('is refused once closed, and can be closed twice', () => {
    memory.close();
    memory.close();
    const remote = new Uint8Array(8);
    expect(memory.read(Number(addressOf(remote)), new Uint8Array(8), 0, 8)).toBe(false);
  });

  it('is empty for a process that does not exist', () => {
    expect(() => new ProcessMemory(2 ** 22 + 5)).toThrow(/ESRCH|EINVAL/);
  });

  it('detects whether Yama requires permission', () => {
    const scope = yamaScope();
    expect([undefined, 0, 1, 2, 3]).toContain(scope);
    expect(allowTracer(process.pid)).toBe(scope !== undefined);
  });
});
